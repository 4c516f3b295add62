#!/usr/bin/env python3
"""Compares the updates of Lion and AdamW on the shapes of GPT-2 124M: one rank, all cores of one CPU, f32, in alternating rounds.

usage: bench/lion.py [NAME] [--rounds N] [--layers N]

An update is the part of a step from the clip coefficient on, in the run's trace. Prints a table and writes bench/results/NAME.json (the default NAME is
lion). Needs build/bin."""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parent.parent


def update(trace):
    """Seconds of the update, and the number of its kernels."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    begin = max(event["ts"] for event in events if event["name"].startswith("clip_coefficient"))
    events = [event for event in events if event["ts"] > begin]
    return (max(event["ts"] + event["dur"] for event in events) - begin) / 1e6, len(events)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="lion")
    for name, default in (("rounds", 5), ("layers", 12)):
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()
    seconds, kernels = {"adamw": [], "lion": []}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = json.loads((ROOT / "examples/gpt2-124m/config.json").read_text()) | {"n_layer": options.layers}
        (folder / "config.json").write_text(json.dumps(config))

        def call(tool, *words):
            subprocess.run([ROOT / "build/bin" / tool, *map(str, words)], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        call("pc-import", ".", "--batch=1", "--seq=16", "-o", "model.mlir")
        (folder / "tokens.bin").write_bytes(bytes(4096))
        for optimizer in seconds:
            call("pc-compile", "model.mlir", f"--optimizer={optimizer}", "-o", optimizer)
        for _ in range(options.rounds):
            for optimizer, times in seconds.items():
                call("pc-run", "-n", 1, f"./{optimizer}", "--", "--data", "tokens.bin", "--steps", 4, "--trace", "trace.json")
                time, kernels[optimizer] = update(folder / "trace.json")
                times.append(time)
    print(f"{options.layers} layers, the least of {options.rounds} rounds\n\n| | ms per update | kernels |\n|---|---|---|")
    for optimizer, times in seconds.items():
        print(f"| {optimizer} | {min(times) * 1e3:.1f} (median {statistics.median(times) * 1e3:.1f}) | {kernels[optimizer]} |")
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({"options": vars(options), "kernels": kernels, "seconds": seconds}))


if __name__ == "__main__":
    main()
