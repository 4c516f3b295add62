#!/usr/bin/env python3
"""Compares the losses of a Hugging Face GPT-2 that PyTorch trains in f32 or under bf16 autocast, and shows how far bf16
runs are from f32 runs.

bench/precision.sh prepares everything and calls the three commands: `init` writes the weights from which all runs
start, `train` writes one run's losses, and `table` compares them.
"""

import argparse
import json
from pathlib import Path


def model_of(options):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    return GPT2LMHeadModel(GPT2Config.from_pretrained(options.config, attn_implementation="sdpa"))


def init(options):
    model_of(options).save_pretrained(options.out, safe_serialization=True)


def train(options):
    import numpy as np
    import torch
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(options.weights, attn_implementation="sdpa")
    model.train()
    batch, length = options.batch, options.length
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    stream = torch.from_numpy(np.fromfile(options.data, dtype="uint8")[: (options.steps + 1) * batch * length].astype("int64"))
    with open(options.out, "w") as out:
        for step in range(options.steps):
            for group in optimizer.param_groups:
                group["lr"] = options.lr * min(1, (step + 1) / max(options.warmup, 1))
            at = step * batch * length + torch.arange(batch)[:, None] * length + torch.arange(length)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
                logits = model(stream[at]).logits
                loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), stream[at + 1].view(-1))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            print(json.dumps({"step": step, "loss": loss.item(), "grad_norm": norm.item()}), file=out, flush=True)


def losses(path):
    return [json.loads(line)["loss"] for line in Path(path).read_text().splitlines()]


def table(options):
    print("| against f32 | largest difference of a loss | mean | mean of the last 10 steps |")
    print("|---|---|---|---|")
    for pair in options.pairs:
        name, narrow, wide = pair.split(":")
        apart = [abs(a / b - 1) for a, b in zip(losses(narrow), losses(wide), strict=True)]
        signed = [a / b - 1 for a, b in zip(losses(narrow), losses(wide))][-10:]
        print(f"| {name}, {len(apart)} steps | {max(apart):.3%} | {sum(apart) / len(apart):.3%} | {sum(signed) / len(signed):+.3%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for action in (init, train):
        command = commands.add_parser(action.__name__)
        command.set_defaults(action=action)
        command.add_argument("--config")
        command.add_argument("--out", required=True)
    command.add_argument("--weights", required=True)
    command.add_argument("--data", required=True)
    command.add_argument("--steps", type=int, default=100)
    command.add_argument("--lr", type=float, default=6e-4)
    command.add_argument("--warmup", type=int, default=0)
    command.add_argument("--batch", type=int, default=8)
    command.add_argument("--length", type=int, default=256)
    command.add_argument("--precision", choices=["f32", "bf16"], required=True)
    command = commands.add_parser("table")
    command.set_defaults(action=table)
    command.add_argument("pairs", nargs="+", help="NAME:BF16.jsonl:F32.jsonl")
    options = parser.parse_args()
    options.action(options)


if __name__ == "__main__":
    main()
