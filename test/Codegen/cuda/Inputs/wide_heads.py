"""usage: wide_heads.py GOLDEN DIRECTORY
Writes configurations of golden models with heads of 64 and 128 elements, and positions and tokens for a text."""
import json
import sys
from pathlib import Path

golden, out = Path(sys.argv[1]), Path(sys.argv[2])
models = {
    "gemma2-64": dict(head_dim=64, num_attention_heads=4, num_key_value_heads=2, sliding_window=40, max_position_embeddings=256),
    "gemma2-128": dict(head_dim=128, num_attention_heads=2, num_key_value_heads=1, sliding_window=40, max_position_embeddings=256),
    "gpt2-64": dict(n_embd=128, n_head=2, n_positions=256),
    "bloom-64": dict(hidden_size=128, n_head=2),
}
for name, changes in models.items():
    config = json.loads((golden / name.split("-")[0] / "config.json").read_text())
    folder = out / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, **changes, "vocab_size": 128, "pad_token_id": None}))
