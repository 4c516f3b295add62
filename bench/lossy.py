#!/usr/bin/env python3
"""usage: bench/lossy.py [STEPS] [--mesh MESH] [--batch N] [--seq N] [PLAN...]

Trains examples/gpt2-14m on the text of the LLVM headers from the same initial values, in f32 and with values in 8 and 4 bits. Prints the mean loss of the last 10 steps,
its difference from f32, and the bytes that a rank sends per step. PLANs are names of the table below (default: all)."""
import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / "build/bin"
PLANS = {"f32": [],
         "gradients in bf16": ["--gradient-precision=bf16"],
         "gradients in 8 bits": ["--gradient-precision=int8"],
         "gradients in 4 bits": ["--gradient-precision=int4"],
         "weights, gradients and states in 8 bits": ["--weight-precision=int8", "--gradient-precision=int8", "--states=8bit"]}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("steps", nargs="?", type=int, default=100)
parser.add_argument("--mesh", default="dp=2")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--seq", type=int, default=128)
parser.add_argument("plans", nargs="*", default=list(PLANS))
options = parser.parse_args()
work = ROOT / "build/bench/lossy"
work.mkdir(parents=True, exist_ok=True)


def call(*command):
    done = subprocess.run([str(word) for word in command], cwd=work, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stdout[-500:]}{done.stderr[-2000:]}")


headers = sorted(Path("/usr/lib/llvm-22/include/llvm").resolve().rglob("*.h"))
(work / "text").write_bytes(b"".join(path.read_bytes() for path in headers))
call(BIN / "pc-import", ROOT / "examples/gpt2-14m", "-o", "model.mlir", "--batch", options.batch, "--seq", options.seq)
ranks = 1
for axis in options.mesh.split(","):
    ranks *= int(axis.split("=")[1])
base = None
print("| plan | loss | difference | bytes sent per step and rank |\n|---|---|---|---|", flush=True)
for name in options.plans:
    call(BIN / "pc-compile", "model.mlir", "-o", "program", "--mesh", options.mesh, "--zero=3", *PLANS[name])
    call(BIN / "pc-run", "-n", ranks, "./program", "--", "--data", "text:text", "--steps", options.steps, "--lr", "6e-4", "--lr-warmup", "20", "--clip", "1.0",
         "--seed", "1", "--metrics", "losses.jsonl", "--summary", "summary.json")
    last = [json.loads(line)["loss"] for line in (work / "losses.jsonl").read_text().splitlines() if '"loss"' in line][-10:]
    loss = sum(last) / len(last)
    base = base or loss
    sent = sum(row["wire_bytes"] for row in json.loads((work / "summary.json").read_text())["per_rank"][0]["traffic"])
    print(f"| {name} | {loss:.5f} | {100 * (loss / base - 1):+.3f} % | {sent / 1e6:.2f} MB |", flush=True)
