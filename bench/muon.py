#!/usr/bin/env python3
"""Measures Muon on the shapes of GPT-2 124M, in f32 on all cores of one CPU, in alternating rounds.

usage: bench/muon.py [NAME] [--rounds N] [--layers N] [--tokens N] [--width N] [--only step|owners|ddp]

step: a step on one rank with Muon and with AdamW; --tokens tokens in sequences of 1024, one per microbatch.
owners: the update on four ranks, with an owner for each matrix and with the products of all matrices on every rank, with data parallelism, ZeRO-1, ZeRO-3 and
tensor parallelism; --width is the width of this model, which has four layers. An update is the part of a step from the clip coefficient on, in the run's trace.
ddp, only on demand: a step on two ranks beside torch.optim.Muon under DDP with gloo (Newton-Schulz in f32, one 2304 x 768 matrix instead of q, k and v). Needs
torch in this python3; --tokens tokens in sequences of at most 1024.

Prints tables and writes bench/results/NAME.json (the default NAME is muon). Needs build/bin."""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import json_runs
from gpt2_124m import run_torch
from lion import ROOT, update

PLANS = {"dp": ("dp=4", [], ["--pc-data-parallel"]), "ZeRO-1": ("dp=4", ["--zero=1"], ["--pc-zero=stage=1"]), "ZeRO-3": ("dp=4", ["--zero=3"], ["--pc-zero=stage=3"]), "tp": ("tp=4", [], ["--pc-tensor-parallel"])}


class Bench:
    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        (folder / "tokens.bin").write_bytes(bytes(1 << 17))

    def call(self, tool, *words):
        subprocess.run([ROOT / "build/bin" / tool, *map(str, words)], check=True, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def model(self, batch, seq, **sizes):
        config = json.loads((ROOT / "examples/gpt2-124m/config.json").read_text()) | sizes
        (self.folder / "config.json").write_text(json.dumps(config))
        self.call("pc-import", ".", f"--batch={batch}", f"--seq={seq}", "-o", "model.mlir")

    def run(self, program, ranks, steps):
        """Seconds of the last steps, and of the last update."""
        (self.folder / "metrics.jsonl").unlink(missing_ok=True)
        self.call("pc-run", "-n", ranks, f"./{program}", "--", "--data", "tokens.bin", "--steps", steps, "--metrics", "metrics.jsonl", "--trace", "trace.json")
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return statistics.median([line["step_seconds"] for line in lines if "step_seconds" in line][1:]), update(self.folder / "trace.json")[0]

    def step(self):
        sequences, seconds = self.options.tokens // 1024, {"adamw": [], "muon": []}
        self.model(sequences, 1024, n_layer=self.options.layers)
        for optimizer in seconds:
            self.call("pc-compile", "model.mlir", f"--microbatches={sequences}", f"--optimizer={optimizer}", "-o", optimizer)
        for _ in range(self.options.rounds):
            for optimizer, times in seconds.items():
                times.append(self.run(optimizer, 1, 2)[0])
        print(f"{self.options.layers} layers, {self.options.tokens} tokens\n\n| | seconds per step |\n|---|---|")
        for optimizer, times in seconds.items():
            print(f"| {optimizer} | {min(times):.2f} |")
        print(f"\nMuon takes {min(seconds['muon']) / min(seconds['adamw']):.3f} times AdamW's step.\n")
        return seconds

    def owners(self):
        seconds = {}
        self.model(8, 32, n_embd=self.options.width, n_head=4, n_layer=4, vocab_size=512)
        for plan, (mesh, flags, passes) in PLANS.items():
            self.call("pc-compile", "model.mlir", "--optimizer=muon", "--mesh", mesh, *flags, "-o", plan + " owners")
            self.call("pc-compile", "model.mlir", "--optimizer=muon", "--mesh", mesh, *flags, "--to=step", "-o", "step.mlir")
            self.call("pc-opt", "step.mlir", f"--pc-set-mesh=mesh={mesh}", *passes, "--pc-fuse-moves", "-o", "placed.mlir")
            self.call("pc-compile", "placed.mlir", "-o", plan + " duplicated")
            seconds |= {f"{plan} {form}": [] for form in ("owners", "duplicated")}
        for _ in range(self.options.rounds):
            for program, times in seconds.items():
                times.append(self.run(program, 4, 4)[1])
        print(f"width {self.options.width}, 4 layers\n\n| plan | owners, ms | duplicated, ms | times faster |\n|---|---|---|---|")
        for plan in PLANS:
            owners, duplicated = (min(seconds[f"{plan} {form}"]) for form in ("owners", "duplicated"))
            print(f"| {plan} | {owners * 1e3:.0f} | {duplicated * 1e3:.0f} | {duplicated / owners:.2f} |")
        return seconds

    def ddp(self):
        length = min(1024, self.options.tokens // 2)
        plans = {"dp=2": [], "dp=2, ZeRO-1": ["--zero=1"]}
        worker = argparse.Namespace(config=self.folder / "config.json", data=self.folder / "tokens.bin", steps=1, precision="f32", optimizer="muon",
                                    batch=self.options.tokens // length, sequence=length)
        self.model(worker.batch, length, n_layer=self.options.layers)
        for plan, flags in plans.items():
            self.call("pc-compile", "model.mlir", "--mesh", "dp=2", *flags, "--optimizer=muon", "-o", plan)
        seconds = {name: [] for name in [*plans, "PyTorch DDP"]}
        for _ in range(self.options.rounds):
            for plan in plans:
                seconds[plan].append(self.run(plan, 2, 2)[0])
            seconds["PyTorch DDP"] += run_torch(worker, 2, False, False)["step_seconds"]
        print(f"{self.options.layers} layers, {self.options.tokens} tokens, two ranks\n\n| | seconds per step |\n|---|---|")
        for name, times in seconds.items():
            print(f"| {name} | {min(times):.2f} |")
        return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="muon")
    for name, default in (("rounds", 3), ("layers", 12), ("tokens", 24576), ("width", 256)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--only", choices=("step", "owners", "ddp"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(temporary), options)
        seconds = {part: getattr(bench, part)() for part in ([options.only] if options.only else ["step", "owners"])}
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({"options": vars(options), "seconds": seconds}))


if __name__ == "__main__":
    main()
