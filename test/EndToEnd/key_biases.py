"""Names the biases of keys that are not rotated. They shift all scores of a query alike, so their gradient is exactly
zero, and Adam amplifies the rounding errors. For each golden model: a regular expression for the name, and the entries
concerned. Without entries it is all of them, and their gradients are not compared either."""


def by_head(heads, size):
    """Returns the entries of query_key_value.bias, in which each head has its query, key and value in this order."""
    return [f"query_key_value.bias:{(3 * head + 1) * size}:{(3 * head + 2) * size}" for head in range(heads)]


KEY_BIASES = {
    "gpt2": ["c_attn.bias:32:64"],
    "gpt2-odd": ["c_attn.bias:32:64"],
    "gpt2-dropout": ["c_attn.bias:32:64"],
    "gpt2-targets": ["c_attn.bias:32:64"],
    "gpt2-packed": ["c_attn.bias:32:64"],
    "gpt_neox": by_head(4, 8),  # a quarter of it is rotated
    "gpt_neox-serial": by_head(4, 8),
    "bloom": by_head(6, 8),
    "opt": ["k_proj.bias"],
    "opt-packed": ["k_proj.bias"],
    "opt-post": ["k_proj.bias"],
    "bert": ["self.key.bias"],
}
