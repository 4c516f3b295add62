#!/usr/bin/env python3
"""Trains the shape of GPT-2 1.5B in f32 on one CPU rank, with AdamW's states on disk.

usage: bench/offload.py SCRATCH [NAME] [--steps N] [--layers N] [--tokens N] [--also-in-memory]

SCRATCH is a directory on a local disk with 13 GB to spare; the run needs 15 GB of memory. --tokens tokens per step are sequences of 1024, one per microbatch.
With fewer --layers, --also-in-memory runs the same steps without offload and compares losses and times.

Prints reported and counted bytes, and seconds per step; writes bench/results/NAME.json (the default NAME is offload). Needs build/bin."""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parents[1]
SHAPE = dict(n_embd=1600, n_head=25)


def run(folder, options, name, *flags):
    """The figures of a program with these flags of pc-compile."""
    def call(*words):
        subprocess.run(list(map(str, words)), check=True, cwd=folder, stdout=subprocess.DEVNULL)
    offloads = "--offload=states" in flags
    call(ROOT / "build/bin/pc-compile", "model.mlir", f"--microbatches={options.tokens // 1024}", "--recompute=full", *flags, "-o", name, f"--report={name}.json")
    call(f"./{name}", "--data", "tokens.bin", "--steps", options.steps, "--metrics", f"{name}.jsonl", "--summary", f"{name}.summary",
         *(["--scratch", options.scratch] if offloads else []))
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines() if '"loss"' in line]
    report, summary = (json.loads((folder / file).read_text()) for file in (f"{name}.json", f"{name}.summary"))
    links = [{row["link"]: row["payload_bytes"] for row in figures["per_rank"][0]["traffic"] if "link" in row} for figures in (report, summary)]
    return {"name": name, "losses": [line["loss"] for line in lines], "seconds": [line["step_seconds"] for line in lines], "parameters": report["parameters"],
            "arena": [figures["per_rank"][0]["arena_bytes"] for figures in (report, summary)], "links": links, "resident": summary["peak_rss_bytes"][0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=lambda path: Path(path).resolve())
    parser.add_argument("name", nargs="?", default="offload")
    for name, default in (("steps", 3), ("layers", 48), ("tokens", 1024)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--also-in-memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "tokens.bin").write_bytes(bytes(i % 190 for i in range(1 << 17)))
        config = json.loads((ROOT / "examples/gpt2-124m/config.json").read_text()) | SHAPE | {"n_layer": options.layers}
        (folder / "config.json").write_text(json.dumps(config))
        subprocess.run([ROOT / "build/bin/pc-import", ".", f"--batch={options.tokens // 1024}", "--seq=1024", "-o", "model.mlir"], check=True, cwd=folder)
        runs = [run(folder, options, "disk", "--offload=states")]
        if options.also_in_memory:
            runs.append(run(folder, options, "memory"))
    print("| run | parameters | arena, reported | arena, counted | links per step, reported | links, counted | resident | seconds per step | losses |")
    print("|" + "---|" * 9)
    for figures in runs:
        print(f"| {figures['name']} | {figures['parameters']} | {figures['arena'][0]} | {figures['arena'][1]} | {figures['links'][0]} | {figures['links'][1]} | "
              f"{figures['resident']} | {statistics.median(figures['seconds'][1:] or figures['seconds']):.2f} | {figures['losses']} |")
    del options.scratch
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({"options": vars(options), "runs": runs}))


if __name__ == "__main__":
    main()
