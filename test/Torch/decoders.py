"""Tiny decoders of transformers' classes that pc-import has no row for, each with random weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import transformers

transformers.logging.set_verbosity_error()
B, S, V = 8, 16, 96
COMMON = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
COMMON |= dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
KV, HEAD = dict(num_key_value_heads=2), dict(num_key_value_heads=2, head_dim=8)
GPT = dict(n_embd=32, n_layer=2, n_head=4, n_inner=64, n_positions=64, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
OLD = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
ROWS = {
    "Falcon": dict(alibi=False, new_decoder_architecture=False, attention_dropout=0.0, hidden_dropout=0.0),
    "StableLm": KV,
    "Cohere": KV,
    "Granite": KV,
    "Phi": dict(attention_dropout=0.0, resid_pdrop=0.0, embd_pdrop=0.0),
    "Starcoder2": KV | dict(attention_dropout=0.0, residual_dropout=0.0, embedding_dropout=0.0),
    "GPTJ": GPT | dict(rotary_dim=4),
    "CodeGen": GPT | dict(rotary_dim=4),
    "GPTBigCode": GPT,
    "Mpt": dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=64, expansion_ratio=2),
    "XGLM": OLD | dict(d_model=32, num_layers=2, attention_heads=4, ffn_dim=64),
    "Olmo": KV,
    "Glm": HEAD | dict(attention_dropout=0.0),
    "Glm4": HEAD,
    "Nemotron": KV,
    "SmolLM3": KV,
    "Helium": HEAD,
    "Cohere2": KV,
    "Ministral": HEAD,
    "Exaone4": KV,
    "Arcee": KV,
    "Persimmon": {},
    "BioGpt": dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, activation_dropout=0.0, layerdrop=0.0),
    "RecurrentGemma": KV | dict(lru_width=32),
    "Mamba": dict(state_size=4, expand=2),
    "Mamba2": dict(num_heads=8, head_dim=8, state_size=4, n_groups=2, expand=2, chunk_size=8),
    "OlmoHybrid": KV,
    "Rwkv": dict(attention_hidden_size=32, context_length=64),
    "Phimoe": KV | dict(num_local_experts=4),
    "Olmoe": KV | dict(num_experts=4, num_experts_per_tok=2),
}


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, targets):
        logits = self.model(input_ids=ids, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def make(name):
    config = getattr(transformers, name + "Config")(**{**COMMON, **ROWS[name]})
    ids = torch.randint(0, V, (B, S))
    return WithLoss(transformers.AutoModelForCausalLM.from_config(config).float()), dict(ids=ids, targets=ids.clone())


MODELS = {name: (lambda name=name: make(name)) for name in ROWS}
