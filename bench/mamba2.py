#!/usr/bin/env python3
"""Compares a step of Mamba-2 130M with transformers' own implementation in PyTorch: all cores of one CPU, f32, AdamW, in alternating rounds.
The module is transformers' and is exported by pc_torch.

usage: bench/mamba2.py [NAME] [--rounds N] [--steps N] [--seq N] [--layers N] [--alone]

Prints a table and writes bench/results/NAME.json (the default NAME is mamba2). --alone leaves PyTorch out. Needs torch and transformers in this
python3, and build/bin."""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/Torch")]
CONFIG = dict(vocab_size=50288, hidden_size=768, num_heads=24, head_dim=64, state_size=128, n_groups=1, expand=2, chunk_size=256)
WARM = 1  # steps that are not counted


def build(options):
    import torch
    import transformers
    from decoders import WithLoss

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    config = transformers.Mamba2Config(**CONFIG, num_hidden_layers=options.layers, tie_word_embeddings=True)
    ids = torch.randint(0, config.vocab_size, (1, options.seq))
    return WithLoss(transformers.AutoModelForCausalLM.from_config(config).float()), dict(ids=ids, targets=ids.roll(-1, 1))


def work(options):
    """PyTorch in a process of its own: prints seconds per step."""
    import torch

    module, inputs = build(options)
    optimizer = torch.optim.AdamW(module.train().parameters(), lr=1e-4)
    for step in range(WARM + options.steps):
        if step == WARM:
            start = time.perf_counter()
        module(**inputs).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print((time.perf_counter() - start) / options.steps)


def of_torch(options):
    command = [sys.executable, __file__, "--work", "--seq", options.seq, "--steps", options.steps, "--layers", options.layers]
    return float(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout.split()[-1])


def of_program(folder, options):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [ROOT / "build/bin/pc-run", "-n", 1, folder / "train", "--", "--data", folder / "tokens.bin", "--lr", 1e-4, "--metrics", metrics]
    subprocess.run([str(word) for word in [*command, "--steps", WARM + options.steps]], check=True, stdout=subprocess.DEVNULL)
    return statistics.mean([json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()][WARM:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="mamba2")
    for name, default in (("rounds", 2), ("steps", 2), ("seq", 2048), ("layers", 24)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--work", action="store_true")
    options = parser.parse_args()
    if options.work:
        return work(options)
    from pc_torch.export import export

    seconds = {"pc": []} | ({} if options.alone else {"transformers": []})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export(*build(options), "mamba2").write(folder)
        draw = random.Random(1)
        (folder / "tokens.bin").write_bytes(b"".join(draw.randrange(CONFIG["vocab_size"]).to_bytes(2, "little") for _ in range(1 << 15)))
        start = time.perf_counter()
        subprocess.run([ROOT / "build/bin/pc-compile", folder / "model.mlir", "-o", folder / "train"], check=True)
        compiled = time.perf_counter() - start
        for _ in range(options.rounds):
            seconds["pc"].append(of_program(folder, options))
            if not options.alone:
                seconds["transformers"].append(of_torch(options))
    print(f"1 sequence of {options.seq} tokens, {options.layers} layers; compiled in {compiled:.0f} s\n\n| | seconds per step | tokens/s |\n|---|---|---|")
    for name, times in seconds.items():
        print(f"| {name} | {statistics.median(times):.2f} | {options.seq / statistics.median(times):.0f} |")
    results = ROOT / "bench/results" / f"{options.name}.json"
    results.write_text(json_runs.text({"options": vars(options), "compile_seconds": compiled, "seconds": seconds}))


if __name__ == "__main__":
    main()
