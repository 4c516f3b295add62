#!/usr/bin/env python3
"""usage: bench/dropout.py [ROUNDS] [STEPS]     build/bin in PATH

Measures the cost of dropout: GPT-2 124M (batch 4, T 256) with --dropout=0.1 and without, on one rank with all cores, in
f32 and bf16, in ROUNDS (5) alternating rounds of STEPS (6) steps. Prints the medians of all steps but the first of a
round, and the medians of the rounds' fastest steps."""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    rounds, steps = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 5), (2, 6)))
    print("| precision | without, s | with dropout, s | ratio | fastest |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "text").write_bytes(b"".join(path.read_bytes() for path in sorted((ROOT / "docs").rglob("*.md"))))
        for precision in ("f32", "bf16"):
            seconds = {"0": [], "0.1": []}
            for p in seconds:
                subprocess.run(["pc-import", ROOT / "examples/gpt2-124m", f"--dropout={p}", "-o", work / "model.mlir", "--batch", "4", "--seq", "256"],
                               check=True, stderr=subprocess.DEVNULL)
                subprocess.run(["pc-compile", work / "model.mlir", f"--precision={precision}", "-o", work / p], check=True, stderr=subprocess.DEVNULL)
            for _ in range(rounds):
                for p, runs in seconds.items():
                    metrics = work / "metrics.jsonl"
                    metrics.unlink(missing_ok=True)
                    subprocess.run([work / p, "--data", f"text:{work}/text", "--steps", str(steps), "--seed", "1", "--metrics", metrics],
                                   check=True, stdout=subprocess.DEVNULL)
                    runs.append([json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()][1:])
            (without, fast), (dropped, fastest) = ((statistics.median(sum(runs, [])), statistics.median(map(min, runs)))
                                                   for runs in seconds.values())
            print(f"| {precision} | {without:.3f} | {dropped:.3f} | {dropped / without:.3f} | {fastest / fast:.3f} |", flush=True)


main()
