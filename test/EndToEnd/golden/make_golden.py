#!/usr/bin/env python3
"""Writes the golden files of the end-to-end tests: tiny random models of every family, and what PyTorch makes of them.

usage: make_golden.py [NAME...]      (torch, transformers, safetensors and numpy from PyPI)

Each folder holds config.json and model.safetensors (as transformers writes them), tokens.bin (raw uint16), where targets are not the next
tokens targets.bin (raw uint16, 65436 where nothing is predicted), import-flags where pc-import needs some, and
golden.safetensors:
  logits            [B, T, V] of the first batch
  losses            [STEPS] of AdamW training;   sgd_losses [SGD_STEPS], one model only
  grad.<parameter>  gradient of the first batch's mean loss, before clipping
  after.<parameter> the parameter, or what is saved beside parameters, after STEPS steps of AdamW
Where a model has dropout, all of it is that of training with seed 1 (docs/rationale/dropout.md, of which `dropped` is a twin).
Everything is computed in double precision from the stored f32 weights and rounded to f32 at the end; PyTorch in f32
must keep well within the tests' tolerances of that.
"""

import contextlib
import re
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import numpy as np
import transformers
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).parents[1]))
from key_biases import KEY_BIASES  # pylint: disable=wrong-import-position

BATCH, SEQUENCE, STEPS, SGD_STEPS = 4, 16, 20, 5
LR, WEIGHT_DECAY, CLIP = 1e-3, 0.1, 1.0
SGD_LR = 0.05
# This is not a multiple of BATCH * SEQUENCE, so the stream wraps inside a batch.
TOKENS = 1000

DECODER = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=4, max_position_embeddings=64, rms_norm_eps=1e-5, attention_dropout=0.0,
               tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
GPT2 = dict(vocab_size=96, n_positions=24, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0,
            resid_pdrop=0.0, bos_token_id=None, eos_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16)

MODELS = {
    "gpt2": (transformers.GPT2Config, GPT2),
    # No mesh axis divides the vocabulary.
    "gpt2-odd": (transformers.GPT2Config, GPT2 | dict(vocab_size=89, n_layer=1)),
    # The padding row is that of the most frequent token of the first batch.
    "llama": (transformers.LlamaConfig, DECODER | dict(rope_parameters=LLAMA3_ROPE, pad_token_id=63)),
    # The model has fewer KV heads than four ranks, a tied table whose last row is padding, biases everywhere, and an
    # odd vocabulary.
    "llama-tied": (transformers.LlamaConfig, DECODER | dict(
        vocab_size=89, tie_word_embeddings=True, num_key_value_heads=2, attention_bias=True, mlp_bias=True, pad_token_id=-1,
        rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "mistral": (transformers.MistralConfig, DECODER | dict(
        sliding_window=None, num_key_value_heads=1, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    # A slow rotation would leave a key bias almost without a gradient (see f32_noise), hence the small theta.
    "qwen2": (transformers.Qwen2Config, DECODER | dict(
        num_key_value_heads=2, use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=30.0))),
    "qwen3": (transformers.Qwen3Config, DECODER | dict(
        num_key_value_heads=2, head_dim=12, tie_word_embeddings=True, use_sliding_window=False, attention_bias=False,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))),
}
# With YaRN, the first of four pairs keeps its frequency, the last two have a fourth of theirs, and the second is
# between.
MODELS["qwen2-yarn"] = (transformers.Qwen2Config, MODELS["qwen2"][1] | dict(rope_parameters=dict(
    rope_type="yarn", rope_theta=30.0, factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5)))
# GPT-2 has dropout everywhere, as published. The Llama has it only in attention, with grouped heads.
MODELS["gpt2-dropout"] = (transformers.GPT2Config, GPT2 | dict(attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1))
MODELS["llama-dropout"] = (transformers.LlamaConfig, DECODER | dict(
    num_key_value_heads=2, attention_dropout=0.25, rope_parameters=dict(rope_type="default", rope_theta=500.0)))
MODELS["phi3"] = (transformers.Phi3Config, DECODER | dict(
    num_key_value_heads=2, pad_token_id=63, resid_pdrop=0.1, attention_dropout=0.1, embd_pdrop=0.5, original_max_position_embeddings=64,
    rope_parameters=dict(rope_type="default", rope_theta=30.0, partial_rotary_factor=1.0)))
# Norms follow blocks instead of preceding them. Those of queries and keys normalize over all heads together.
MODELS["olmo2"] = (transformers.Olmo2Config, DECODER | dict(
    num_key_value_heads=2, pad_token_id=63, rope_parameters=dict(rope_type="default", rope_theta=30.0)))
NEOX = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5), bos_token_id=None, eos_token_id=None)
MODELS["gpt_neox"] = (transformers.GPTNeoXConfig, NEOX)
MODELS["gpt_neox-serial"] = (transformers.GPTNeoXConfig, NEOX | dict(
    use_parallel_residual=False, hidden_dropout=0.1, attention_dropout=0.1, tie_word_embeddings=True))
GEMMA = DECODER | dict(head_dim=12, num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=63, rms_norm_eps=1e-6)
MODELS["gemma"] = (transformers.GemmaConfig, GEMMA | dict(
    num_key_value_heads=1, rope_parameters=dict(rope_type="default", rope_theta=30.0)))
OPT = dict(vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24, dropout=0.1,
           attention_dropout=0.1, word_embed_proj_dim=32, pad_token_id=63, bos_token_id=None, eos_token_id=None)
MODELS["opt"] = (transformers.OPTConfig, OPT)
# Norms follow residual sums.
MODELS["opt-post"] = (transformers.OPTConfig, OPT | dict(do_layer_norm_before=False, dropout=0.0, attention_dropout=0.0))
# Attention has windows of a third of the sequence: in every second layer, in all layers, and with caps.
MODELS["gpt_neo"] = (transformers.GPTNeoConfig, dict(
    vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=5,
    max_position_embeddings=24, bos_token_id=None, eos_token_id=None))
MODELS["mistral-window"] = (transformers.MistralConfig, DECODER | dict(
    sliding_window=5, num_key_value_heads=2, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=30.0)))
MODELS["gemma2"] = (transformers.Gemma2Config, GEMMA | dict(
    sliding_window=5, query_pre_attn_scalar=10, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
    rope_parameters=dict(rope_type="default", rope_theta=30.0)))
# Layers with windows and layers without them have different rotations.
MODELS["gemma3"] = (transformers.Gemma3TextConfig, GEMMA | dict(
    sliding_window=5, query_pre_attn_scalar=10, layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=30.0), full_attention=dict(rope_type="linear", factor=2.0, rope_theta=100.0))))
# The number of heads is not a power of two, which has its own formula for slopes.
MODELS["bloom"] = (transformers.BloomConfig, dict(
    vocab_size=96, hidden_size=48, n_layer=2, n_head=6, hidden_dropout=0.1, attention_dropout=0.1, bos_token_id=None, eos_token_id=None))
# Only masked words are predicted. Dropout is 0.1, as published.
MODELS["bert"] = (transformers.BertConfig, dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24, pad_token_id=63,
    bos_token_id=None, eos_token_id=None))
# An encoder and a decoder, whose sequences differ in length. Scores have addends by buckets of distances; the last
# bucket begins inside the sequences.
T5 = dict(vocab_size=96, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=11, dropout_rate=0.1, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
MODELS["t5"] = (transformers.T5Config, T5)
# T5 1.1 has a gated MLP and a separate head, as published.
MODELS["t5-gated"] = (transformers.T5Config, T5 | dict(
    num_layers=1, feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0))
# These are mixtures of experts. The first has experts in all layers, and the loss of an uneven load. In others, some
# layers have an MLP instead of experts, chosen by number or by a list, and the weights do not add up to 1. The last
# ones use one expert per token, and all experts.
MOE = DECODER | dict(intermediate_size=24, num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=30.0))
MODELS["mixtral"] = (transformers.MixtralConfig, MOE | dict(
    num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.5))
# Experts take five tokens of a sequence. If all were chosen equally often, eight tokens would choose each.
MODELS["mixtral-capacity"] = MODELS["mixtral"]
CAPACITY = {"mixtral-capacity": 5}
QWEN3_MOE = MOE | dict(head_dim=12, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, tie_word_embeddings=True)
MODELS["qwen3_moe"] = (transformers.Qwen3MoeConfig, QWEN3_MOE | dict(
    num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1]))
MODELS["qwen3_moe-one"] = (transformers.Qwen3MoeConfig, QWEN3_MOE | dict(num_hidden_layers=1, num_experts_per_tok=1))
MODELS["qwen3_moe-all"] = (transformers.Qwen3MoeConfig, QWEN3_MOE | dict(
    num_hidden_layers=1, num_experts_per_tok=8, norm_topk_prob=True, output_router_logits=True, router_aux_loss_coef=0.1))
# This model has sinks, biases everywhere, windows in every second layer, clamped experts whose weights are stacked in
# the file, and YaRN.
MODELS["gpt_oss"] = (transformers.GptOssConfig, MOE | dict(
    head_dim=12, sliding_window=5, num_local_experts=4, num_experts_per_tok=2, swiglu_limit=0.7, output_router_logits=True,
    router_aux_loss_coef=0.5, rope_parameters=dict(rope_type="yarn", rope_theta=30.0, factor=4.0, original_max_position_embeddings=16,
                                                   beta_fast=2.0, beta_slow=0.5, truncate=False)))
# The first model has latent queries, keys and values, rotation of adjacent pairs, a choice of experts by corrected
# sigmoids within the best groups, a shared expert, a first layer without experts, and YaRN that scales scores. The
# second has queries that are not latent, rotation of halves, one group, and biases.
DEEPSEEK = MOE | dict(num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=8,
                      num_experts_per_tok=3, moe_intermediate_size=8, n_shared_experts=2, first_k_dense_replace=1, n_group=4, topk_group=2)
MODELS["deepseek_v3"] = (transformers.DeepseekV3Config, DEEPSEEK | dict(rope_parameters=dict(
    rope_type="yarn", rope_theta=30.0, factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5, mscale=0.7, mscale_all_dim=1.0)))
MODELS["deepseek_v3-plain"] = (transformers.DeepseekV3Config, DEEPSEEK | dict(
    num_hidden_layers=1, q_lora_rank=None, rope_interleave=False, n_group=1, topk_group=1, first_k_dense_replace=0, v_head_dim=10, attention_bias=True,
    norm_topk_prob=False))
# Some targets do not count, more of them in later rows.
MODELS["gpt2-targets"] = (transformers.GPT2Config, GPT2)
# A sequence has several documents, which do not see each other. One model has a table of positions and does not predict
# the first token of a document; another has windows.
MODELS["gpt2-packed"] = (transformers.GPT2Config, GPT2)
MODELS["opt-packed"] = (transformers.OPTConfig, OPT)
MODELS["mistral-packed"] = (transformers.MistralConfig, DECODER | dict(
    sliding_window=5, num_key_value_heads=2, head_dim=8, rope_parameters=dict(rope_type="default", rope_theta=30.0)))
MASK, END = 95, 7 # tokens: of a word to be predicted, and after a document
NOT_COUNTED = -100
TARGETS = 12 # of a sequence, where there is an encoder
WITH_SGD = {"gpt2"}
SEED = 1 # of dropout
# transformers renames these when it reads a file, and back when it writes one.
IN_THE_FILE = {"gpt_neox": ("lm_head.", "embed_out."), "mixtral": (".mlp.", ".block_sparse_moe.")}
# In memory, the weights of all experts are stacked. In the file, each expert has its own tensors.
OF_EXPERTS = {"mixtral": ("w1", "w3", "w2"), "qwen3_moe": ("gate_proj", "up_proj", "down_proj"),
              "deepseek_v3": ("gate_proj", "up_proj", "down_proj")}
LEAST_MARGIN = 1e-4 # of router logits, between what is chosen and what is not


def philox(counter, key):
    """Philox4x32-10: four words of counters and two of the key to four words."""
    c, (k0, k1), low, up = [np.asarray(x, np.uint64) for x in counter], key, np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> up) ^ c[1] ^ np.uint64(k0), b & low, (a >> up) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


class Dropout:
    """In the place of torch's: the masks that every plan of ours draws. Calls of a step are numbered in order."""

    def __init__(self):
        self.step = self.key = 0

    def __call__(self, x, p=0.5, training=True, inplace=False):
        threshold = round(65536 * p) if training else 0
        if not threshold:
            return x
        rows, last = int(np.prod(x.shape[:-1])), -(-x.shape[-1] // 8) * 8
        index = (np.arange(rows)[:, None] * last + np.arange(x.shape[-1])).astype(np.uint64)
        block, lane = index // np.uint64(8), (index % np.uint64(8)).astype(int)
        full = lambda word: np.full_like(block, word)
        words = np.stack(philox((block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), full(self.step), full((1 << 31) + self.key)), (SEED, 0)), -1)
        word = np.take_along_axis(words, (lane // 2)[..., None], -1)[..., 0]
        keep = ((word >> (16 * (lane % 2)).astype(np.uint64)) & np.uint64(0xFFFF)) >= threshold
        self.key += 1
        scale = float(np.float32(1 / (1 - threshold / 65536)))
        return x * (torch.from_numpy(keep.reshape(x.shape)).to(x.dtype) * scale)


dropout = F.dropout = Dropout()


def randomize(model, generator):
    """Random values where a fresh model has zeros and ones, and weights large enough that no gradient is tiny."""
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if "norm" in name.lower() or re.search(r"\bln_", name):
            around = 0.0 if "Gemma" in type(model).__name__ or not name.endswith("weight") else 1.0
            values = values * 0.1 + around
        else:
            values *= 0.1 if name.endswith("bias") else 0.15
        parameter.data.copy_(values)


class Stream:
    """Tokens, their targets if those are not the next tokens, and the token that ends documents, if there are any."""

    targets = end = None
    length = SEQUENCE # of a sequence of targets

    def __init__(self, tokens):
        self.tokens = tokens

    @classmethod
    def drawn(cls, name, vocabulary, generator):
        self = cls(torch.randint(0, vocabulary, (TOKENS,), generator=generator))
        draw = lambda: torch.rand(TOKENS, generator=generator)
        if name == "bert":
            masked = draw() < 0.25
            self.targets = torch.where(masked, self.tokens, NOT_COUNTED)
            self.tokens = torch.where(masked & (draw() < 0.9), MASK, self.tokens)
        if name == "gpt2-targets":
            rows = torch.arange(TOKENS) // SEQUENCE % BATCH
            self.targets = torch.where(draw() < 0.2 * (1 + rows), NOT_COUNTED, self.tokens.roll(-1))
        if name.startswith("t5"):
            self.length = TARGETS
            self.targets = torch.randint(0, vocabulary, (TOKENS * TARGETS // SEQUENCE,), generator=generator)
            self.targets = torch.where(torch.rand(len(self.targets), generator=generator) < 0.2, NOT_COUNTED, self.targets)
        if name.endswith("-packed"):
            self.end = END
            self.tokens = torch.where(draw() < 0.15, END, self.tokens)
        if name == "gpt2-packed":
            self.targets = torch.where(self.tokens == END, NOT_COUNTED, self.tokens.roll(-1))
        return self

    @classmethod
    def read(cls, folder):
        """That of a golden model."""
        numbers = lambda name, dtype: torch.from_numpy(np.fromfile(folder / name, dtype).astype(np.int64))
        self = cls(numbers("tokens.bin", "<u2"))
        if (folder / "targets.bin").exists():
            self.targets = numbers("targets.bin", "<i2")
            self.length = SEQUENCE * len(self.targets) // len(self.tokens)
        if (folder / "import-flags").exists():
            for flag, _, number in (word.partition("=") for word in (folder / "import-flags").read_text().split()):
                self.end = int(number) if flag == "--documents" else self.end
        return self

    def batch(self, step):
        """Tokens and targets [B, T] of one step, as the runtime reads them: position modulo the length of the stream."""
        at = step * BATCH * SEQUENCE + torch.arange(BATCH * SEQUENCE)
        take = lambda stream, index: stream[index % len(stream)].view(BATCH, -1)
        if self.targets is None:
            return take(self.tokens, at), take(self.tokens, at + 1)
        return take(self.tokens, at), take(self.targets, step * BATCH * self.length + torch.arange(BATCH * self.length))

    def import_flags(self, name):
        """What pc-import must know of it."""
        flags = [] if self.length == SEQUENCE else [f"--target-seq={self.length}"]
        flags += [f"--expert-capacity={CAPACITY[name]}"] if name in CAPACITY else []
        return flags + ([] if self.end is None else [f"--documents={self.end}"])

    def documents(self, tokens, model):
        """Returns the model's arguments that make attention and positions begin anew after the end of a document."""
        if self.end is None:
            return {}
        at, ends = torch.arange(SEQUENCE), tokens[:, :-1] == self.end
        starts = torch.where(torch.cat([torch.ones(BATCH, 1, dtype=torch.bool), ends], 1), at, 0).cummax(1).values
        window = getattr(model.config, "sliding_window", None) or SEQUENCE
        query, key = at[:, None], at[None, :]
        sees = (key <= query) & (key > query - window) & (key >= starts[:, :, None])
        mask = torch.where(sees, 0.0, -1e30)[:, None].to(model.dtype)
        return dict(position_ids=at - starts, attention_mask=mask)


def auto_class(name):
    """Of transformers, for a golden model."""
    return {"bert": transformers.AutoModelForMaskedLM, "t5": transformers.AutoModelForSeq2SeqLM}.get(
        MODELS[name][0].model_type, transformers.AutoModelForCausalLM)


def forward(model, stream, step):
    dropout.step, dropout.key = step, 0
    tokens, targets = stream.batch(step)
    more = stream.documents(tokens, model) | ({} if "Masked" in type(model).__name__ else dict(use_cache=False))
    if model.config.is_encoder_decoder:
        more["labels"] = targets # which the model itself moves for its decoder
    made = model(input_ids=tokens, **more)
    loss = F.cross_entropy(made.logits.flatten(0, 1), targets.flatten(), ignore_index=NOT_COUNTED)
    if getattr(model.config, "output_router_logits", False):
        loss = loss + model.config.router_aux_loss_coef * made.aux_loss
    return made.logits, loss


def train(model, stream, optimizer, steps):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        _, loss = forward(model, stream, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@contextlib.contextmanager
def no_casts_to_f32():
    """transformers casts norms and softmax to torch.float32, which would round a double precision run."""
    single, torch.float32 = torch.float32, torch.float64
    method, torch.Tensor.float = torch.Tensor.float, lambda x: x if x.dtype == torch.float64 else method(x)
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = single, method


def in_the_file(config, name, tensor):
    """Names and tensors that a parameter is in the file."""
    name = name.replace(*IN_THE_FILE.get(config.model_type, ("", "")))
    layer, _, weights = name.partition(".experts.")
    if not weights or config.model_type not in OF_EXPERTS:
        return [(name, tensor)]
    gate, up, down = OF_EXPERTS[config.model_type]
    parts = zip((gate, up), tensor.chunk(2, dim=1)) if weights == "gate_up_proj" else [(down, tensor)]
    return [(f"{layer}.experts.{i}.{part}.weight", one) for part, stack in parts for i, one in enumerate(stack)]


def in_memory(config, tensors):
    """The same the other way round: a file's tensors by the names that they have in memory."""
    there, here = IN_THE_FILE.get(config.model_type, ("", ""))
    tensors = {name.replace(here, there): tensor for name, tensor in tensors.items()}
    if config.model_type not in OF_EXPERTS:
        return tensors
    stacks = {}
    for name in sorted(name for name in tensors if ".experts." in name):
        layer, number, part = re.fullmatch(r"(.*\.experts\.)(\d+)\.(\w+)\.weight", name).groups()
        stacks.setdefault(layer, {}).setdefault(part, {})[int(number)] = tensors.pop(name)
    for layer, parts in stacks.items():
        gate, up, down = (torch.stack([one for _, one in sorted(parts[part].items())]) for part in OF_EXPERTS[config.model_type])
        tensors |= {layer + "gate_up_proj": torch.cat([gate, up], dim=1), layer + "down_proj": down}
    return tensors


def watch_margins(model, margins):
    """Appends to `margins` how far what chosen experts, and groups of them, are chosen by is from that of others, each time that the model runs."""
    def note(scores, count):
        if count < scores.shape[-1]:
            best = scores.sort(dim=-1, descending=True).values
            margins.append((best[:, count - 1] - best[:, count]).min().item())
    def watch(router, _, made):
        choice = made[0].detach()
        if hasattr(router, "e_score_correction_bias"):
            choice = choice.sigmoid() + router.e_score_correction_bias
            groups = choice.view(len(choice), router.num_group, -1)
            sums = groups.topk(2, dim=-1).values.sum(dim=-1)
            note(sums, router.topk_group)
            kept = torch.zeros_like(sums).scatter(1, sums.topk(router.topk_group, dim=-1).indices, 1)
            choice = torch.where(kept[..., None] > 0, groups, -1e30).flatten(1)
        note(choice, router.top_k)
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(watch)
    return model


def limit_experts(name, model):
    """Where experts of a golden model have a capacity they take the first so many tokens of each sequence that choose them: of others their weights are 0."""
    if name not in CAPACITY:
        return model
    def limit(router, _, made):
        logits, weights, chosen = made
        choices = torch.nn.functional.one_hot(chosen, logits.shape[-1]).sum(dim=1)
        number = choices.view(-1, SEQUENCE, choices.shape[-1]).cumsum(dim=1).view(choices.shape)
        return logits, weights * (number.gather(1, chosen) <= CAPACITY[name]), chosen
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(limit)
    return model


def reference(build, stream, with_sgd):
    """The golden tensors of one model; `build` gives a fresh copy of it."""
    golden = {}
    model = build()
    logits, loss = forward(model, stream, 0)
    loss.backward()
    golden["logits"] = logits
    for name, parameter in model.named_parameters():
        golden |= {"grad." + part: tensor for part, tensor in in_the_file(model.config, name, parameter.grad)}
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    golden["losses"] = train(model, stream, optimizer, STEPS)
    for name, parameter in model.named_parameters():
        golden |= {"after." + part: tensor for part, tensor in in_the_file(model.config, name, parameter)}
    golden |= {"after." + name: buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")} # never trained
    if with_sgd:
        model = build()
        golden["sgd_losses"] = train(model, stream, torch.optim.SGD(model.parameters(), lr=SGD_LR), SGD_STEPS)
    return {name: tensor.detach().to(torch.float).contiguous() for name, tensor in golden.items()}


def f32_noise(model, exact, single):
    """The largest part of a test's tolerance that PyTorch itself uses up in f32, and by which tensor."""
    worst = (0.0, "")
    for name, want in exact.items():
        difference = (want - single[name]).abs()
        for text in KEY_BIASES.get(model, []):
            part, *ends = text.split(":")
            if part in name and (name.startswith("after.") or not ends):
                difference[slice(*map(int, ends)) if ends else slice(None)] = 0
        relative = (difference.max() / want.abs().max()).item()
        worst = max(worst, (relative / (1e-4 if name.startswith("after.") else 1e-5), name))
    return worst


def candidate(name, seed):
    """The model, the token stream and the golden tensors that one seed gives."""
    config_class, options = MODELS[name]
    generator = torch.Generator().manual_seed(seed)

    def fresh():
        config = config_class(**options)
        if hasattr(config, "num_experts_per_tok"):
            config._experts_implementation = "eager" # pylint: disable=protected-access
        made = auto_class(name).from_config(config, attn_implementation="eager").train()
        if made.config.is_encoder_decoder and not options.get("tie_word_embeddings", True): # a new one is tied all the same
            made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach().clone())
        return limit_experts(name, made)

    model = fresh()
    randomize(model, generator)
    stream = Stream.drawn(name, options["vocab_size"], generator)
    weights = {key: value.clone() for key, value in model.state_dict().items()}

    def build(dtype):
        copy = fresh()
        copy.load_state_dict(weights)
        return copy.to(dtype)

    margins = [1.0]
    with no_casts_to_f32():
        exact = reference(lambda: watch_margins(build(torch.double), margins), stream, name in WITH_SGD)
    noise = f32_noise(name, exact, reference(lambda: build(torch.float), stream, name in WITH_SGD))
    if min(margins) < LEAST_MARGIN:
        noise = (1.0, f"a choice of experts by {min(margins):.1e}")
    return model, stream, exact, noise


def make(folder, name):
    # An entry with a gradient of nearly zero would make Adam amplify rounding, so this takes the first seed without
    # such an entry.
    for seed in range(100):
        model, stream, exact, noise = candidate(name, seed)
        if noise[0] <= 0.25:
            break
        print(f"{name}: seed {seed} uses {noise[0]:.2f} of the tolerance in {noise[1]}")
    else:
        sys.exit(f"{name}: no seed is well-conditioned")
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    stream.tokens.numpy().astype("<u2").tofile(folder / "tokens.bin")
    if stream.targets is not None:
        stream.targets.numpy().astype("<i2").tofile(folder / "targets.bin")
    if flags := stream.import_flags(name):
        (folder / "import-flags").write_text(" ".join(flags) + "\n")
    save_file(exact, folder / "golden.safetensors")
    (folder / "golden.safetensors").chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: seed {seed}, loss {exact['losses'][0]:.4f} -> {exact['losses'][-1]:.4f}, {size / 1000:.0f} KB, "
          f"f32 PyTorch uses {noise[0]:.2f} of the tolerance")


def main():
    here = Path(__file__).parent
    for name in sys.argv[1:] or MODELS:
        make(here / name, name)


if __name__ == "__main__":
    main()
