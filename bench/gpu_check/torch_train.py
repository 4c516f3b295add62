#!/usr/bin/env python3
"""Trains GPT-2 or a Llama with PyTorch on one GPU, eager or compiled, with the settings of the programs that are
compared with it, and prints one line of JSON: the seconds of every step. run.py takes their median, as it does for our
programs. It needs PyTorch 2.5 or newer with CUDA, and exits with status 6 and a message without them. --device cpu
serves to try it out."""

import argparse
import json
import sys
import time
from pathlib import Path


def llama(config):
    """Llama as plain modules: RMSNorm, rotary positions, grouped heads, SwiGLU; embedding and head not tied."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    width, heads, groups = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size, eps = config.get("head_dim") or width // heads, config["rms_norm_eps"]

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return F.rms_norm(x.float(), (width,), self.weight, eps)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = Norm(), Norm()
            self.qkv = nn.Linear(width, (heads + 2 * groups) * size, bias=False)
            self.proj = nn.Linear(heads * size, width, bias=False)
            self.up = nn.Linear(width, 2 * config["intermediate_size"], bias=False)
            self.down = nn.Linear(config["intermediate_size"], width, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, -1, size).transpose(1, 2) for y in
                       self.qkv(self.norm_1(x)).split((heads * size, groups * size, groups * size), dim=2))

            def turn(y):
                low, high = y.float().chunk(2, dim=-1)
                return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(v.dtype)

            a = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, heads * size))
            gate, up = self.up(self.norm_2(x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(config["vocab_size"], width), Norm()
            self.blocks = nn.ModuleList(Block() for _ in range(config["num_hidden_layers"]))
            self.head = nn.Linear(width, config["vocab_size"], bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
            angles = torch.outer(positions, config["rope_theta"] ** -(torch.arange(0, size, 2, device=tokens.device) / size))
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x, angles.cos(), angles.sin())
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))

    torch.manual_seed(1)
    return Model()


def load_torch(device):
    def fail(why):
        print(f"torch_train.py: error: {why}", file=sys.stderr)
        sys.exit(6)

    try:
        import torch
    except ImportError as missing:
        fail(f"PyTorch is not installed ({missing}); pip install torch")
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 5):
        fail(f"PyTorch {torch.__version__} is too old; 2.5 or newer is needed")
    if device == "cuda" and not torch.cuda.is_available():
        fail(f"PyTorch {torch.__version__} finds no CUDA device (it is built for CUDA {torch.version.cuda})")
    return torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--precision", choices=("f32", "bf16"), required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    torch = load_torch(options.device)
    from gpt2_124m import gpt2

    torch.backends.cuda.matmul.allow_tf32 = False
    config = json.loads(Path(options.config).read_text())
    with torch.device(options.device):  # parameters are drawn there: one thread of a CPU takes 20 s for those of the Llama
        model = (gpt2 if config["model_type"] == "gpt2" else llama)(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    stream = torch.frombuffer(bytearray(Path(options.data).read_bytes()), dtype=torch.uint8).long().to(options.device)
    positions = torch.arange(options.batch * options.sequence, device=options.device).view(options.batch, options.sequence)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None

    def forward(tokens, targets):
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            return model(tokens, targets)

    if options.compile:
        forward = torch.compile(forward)
    seconds, losses = [], []
    for step in range(options.steps):
        synchronize()
        start = time.perf_counter()
        at = step * positions.numel() + positions
        loss = forward(stream[at % len(stream)], stream[(at + 1) % len(stream)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"step_seconds": seconds, "losses": losses, "torch": torch.__version__,
                      "peak_bytes": torch.cuda.max_memory_allocated() if options.device == "cuda" else None}))


if __name__ == "__main__":
    main()
