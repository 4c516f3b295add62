#!/usr/bin/env python3
"""Writes lib/Import/HarmlessKeys.inc: the keys of config.json that do not change the results of transformers.

usage: harmless_keys.py [--check]      (torch and transformers from PyPI)

For every family, the script builds a tiny random model from a config, and again with each key at each of its values,
with the same weights; loss and every gradient must be the same (1e-5: attention kernels round differently). If a key
makes a difference, or a family refuses it, the script names it and writes nothing: lib/Import/Config.cpp must refuse
it. The importer's own test is harmless-keys.test in this folder.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers

DECODER = dict(vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, head_dim=4, max_position_embeddings=16, attention_dropout=0.0,
               bos_token_id=None, eos_token_id=None)
FAMILIES = {
    "gpt2": dict(vocab_size=23, n_positions=16, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0,
                 resid_pdrop=0.0, bos_token_id=None, eos_token_id=None),
    "llama": DECODER,
    "mistral": DECODER | dict(sliding_window=None),
    # The window is as long as the sequence. max_window_layers says which layers have it.
    "qwen2": {key: value for key, value in DECODER.items() if key != "head_dim"} |
             dict(use_sliding_window=True, sliding_window=16),
    "qwen3": DECODER | dict(use_sliding_window=True, sliding_window=16),
    "phi3": {key: value for key, value in DECODER.items() if key != "head_dim"} | dict(pad_token_id=None),
    "olmo2": {key: value for key, value in DECODER.items() if key != "head_dim"} | dict(pad_token_id=None),
    "gemma": DECODER | dict(pad_token_id=None),
    "gemma2": DECODER | dict(pad_token_id=None),
    "gemma3_text": DECODER | dict(pad_token_id=None),
    "gpt_neox": dict(vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                     max_position_embeddings=16, rotary_pct=0.5, bos_token_id=None, eos_token_id=None),
    "opt": dict(vocab_size=23, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16,
                dropout=0.0, word_embed_proj_dim=16, pad_token_id=None, bos_token_id=None, eos_token_id=None),
    "gpt_neo": dict(vocab_size=23, hidden_size=16, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
                    max_position_embeddings=16, bos_token_id=None, eos_token_id=None),
    "bloom": dict(vocab_size=23, hidden_size=16, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None),
    "bert": dict(vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16,
                 hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=None, bos_token_id=None, eos_token_id=None),
    "t5": dict(vocab_size=23, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0),
}

# Each key has values that differ from its default.
VALUES = {
    "architectures": [["BertModel"], None],
    "transformers_version": ["4.0.0"],
    "torch_dtype": ["bfloat16", "float16"],
    "dtype": ["bfloat16", "float16"],
    "_name_or_path": ["somewhere/else"],
    "use_cache": [False],
    "bos_token_id": [3],
    "eos_token_id": [4, [4, 5]],
    "sep_token_id": [5],
    "decoder_start_token_id": [6],
    "task_specific_params": [{"text-generation": {"do_sample": True, "max_length": 50}}],
    "_attn_implementation": ["eager", "sdpa"],
    "attn_implementation": ["eager", "sdpa"],
    "_attn_implementation_autoset": [True],
    "summary_type": ["last", "mean"],
    "summary_use_proj": [False],
    "summary_activation": ["tanh"],
    "summary_first_dropout": [0.5],
    "summary_proj_to_labels": [False],
    "summary_num_labels": [5],
    "output_hidden_states": [True],
    "output_attentions": [True],
    "id2label": [{"0": "no", "1": "yes", "2": "maybe"}],
    "label2id": [{"no": 0, "yes": 1}],
    "problem_type": ["regression", "multi_label_classification"],
    "is_decoder": [True, False],
    "is_encoder_decoder": [True],
    "chunk_size_feed_forward": [2],
    "tokenizer_class": ["BertTokenizer"],
    "prefix": ["once upon a time"],
    "finetuning_task": ["mnli"],
    "tf_legacy_loss": [True],
    "use_bfloat16": [True],
    "gradient_checkpointing": [True],
    "n_ctx": [4, 1024],
    "cross_attention_hidden_size": [8],
    "tie_encoder_decoder": [True],
    "reorder_and_upcast_attn": [True],
    "max_window_layers": [0, 1],
    "auto_map": [{"AutoModelForCausalLM": "modeling_mine.Mine"}],
    "keys_to_ignore_at_inference": [["past_key_values"]],
    "base_model_tp_plan": [{"layers.*.self_attn.q_proj": "colwise"}],
    "base_model_pp_plan": [{"norm": [["hidden_states"], ["hidden_states"]]}],
    "temperature": [0.5],
    "top_k": [3],
    "top_p": [0.5],
    "typical_p": [0.5],
    "repetition_penalty": [1.5],
    "length_penalty": [2.0],
    "no_repeat_ngram_size": [2],
    "encoder_no_repeat_ngram_size": [2],
    "bad_words_ids": [[[1, 2]]],
    "num_return_sequences": [2],
    "max_length": [8],
    "min_length": [4],
    "do_sample": [True],
    "early_stopping": [True],
    "num_beams": [4],
    "num_beam_groups": [2],
    "diversity_penalty": [0.5],
    "forced_bos_token_id": [1],
    "forced_eos_token_id": [2],
    "remove_invalid_values": [True],
    "exponential_decay_length_penalty": [[3, 1.5]],
    "suppress_tokens": [[1, 2]],
    "begin_suppress_tokens": [[3]],
    "output_scores": [True],
    "return_dict_in_generate": [True],
}
# Keys that are refused or used. The script must see a difference for them, which shows that its comparison works.
SEEN = [("llama", dict(is_causal=False)), ("llama", dict(rms_norm_eps=0.5)), ("gpt2", dict(scale_attn_weights=False)),
        ("mistral", dict(sliding_window=4)), ("qwen3", dict(pad_token_id=7)),
        ("qwen2", dict(sliding_window=4, max_window_layers=0))]


# Keys that only a single family ignores.
ALONE = [("gpt2", dict(pad_token_id=7))]
# Keys that only a single family reads: its row of lib/Import/Families.cpp states which values are refused.
READ = [("bert", "is_decoder"), ("t5", "decoder_start_token_id")]


def figures(family, changes):
    """Loss and gradients of the family's model; read from a directory's config.json, as a user has it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": family} | FAMILIES[family] | changes))
        config = transformers.AutoConfig.from_pretrained(folder)
    # The dtype is that of stored weights. --precision decides in which type a step computes.
    auto = {"bert": transformers.AutoModelForMaskedLM, "t5": transformers.AutoModelForSeq2SeqLM}.get(family, transformers.AutoModelForCausalLM)
    model = auto.from_config(config, dtype=torch.float32).train()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    tokens = torch.randint(0, 23, (2, 9), generator=generator)
    tokens[0, 3] = 7
    more = {} if family == "bert" else dict(use_cache=False)
    if family == "t5":
        more["labels"] = tokens[:, 1:].contiguous()
    logits = model(input_ids=tokens[:, :-1], return_dict=True, **more).logits
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def difference(want, got):
    if want.keys() != got.keys():
        return float("inf")
    return max(((want[name] - got[name]).abs().max() / want[name].abs().max().clamp(min=1e-3)).item() for name in want)


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    plain = {family: figures(family, {}) for family in FAMILIES}
    bad = []
    for family, changes in SEEN:
        if difference(plain[family], figures(family, changes)) < 1e-3:
            bad.append(f"{family}: {changes} makes no difference, but must")
    cases = [(family, {key: value}) for key, values in VALUES.items() for value in values for family in FAMILIES
             if (family, key) not in READ]
    for family, changes in cases + ALONE:
        try:
            by = difference(plain[family], figures(family, changes))
            if not by < 1e-5:
                bad.append(f"{family}: {changes} makes a difference of {by:.1e}")
        except Exception as error:  # pylint: disable=broad-except
            if "does not support an attention implementation" not in str(error):  # how, not what
                bad.append(f"{family}: {changes}: {type(error).__name__}: {error}")
    print(f"{len(VALUES)} keys, transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}")
    for line in bad:
        print(line)
    if bad:
        sys.exit(1)
    path = Path(__file__).parents[2] / "lib/Import/HarmlessKeys.inc"
    text = ("// Keys of config.json, with values that change neither the loss nor a gradient of transformers "
            f"{transformers.__version__}\n// in any family. Written by test/Import/harmless_keys.py.\n")
    for key, values in VALUES.items():
        text += "".join(f'HARMLESS("{key}", R"({json.dumps(value)})")\n' for value in values)
    if "--check" in sys.argv:
        sys.exit(path.read_text() != text)
    path.write_text(text)


if __name__ == "__main__":
    main()
