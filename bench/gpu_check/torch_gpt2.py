#!/usr/bin/env python3
"""Trains GPT-2 with PyTorch on one GPU, eager or compiled, as the programs it is compared with do, and prints one line of JSON."""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from gpt2_124m import gpt2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--precision", choices=("f32", "bf16"), required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    model = gpt2(json.loads(Path(options.config).read_text())).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    stream = torch.frombuffer(bytearray(Path(options.data).read_bytes()), dtype=torch.uint8).long().cuda()
    positions = torch.arange(options.batch * options.sequence, device="cuda").view(options.batch, options.sequence)

    def forward(tokens, targets):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            return model(tokens, targets)

    if options.compile:
        forward = torch.compile(forward)
    seconds, losses = [], []
    for step in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        at = step * positions.numel() + positions
        loss = forward(stream[at % len(stream)], stream[(at + 1) % len(stream)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    timed = seconds[min(10, len(seconds) // 3):]
    print(json.dumps({"tokens_per_second": positions.numel() / statistics.median(timed), "losses": losses, "torch": torch.__version__,
                      "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
