#!/usr/bin/env python3
"""Trains the shape of GPT-2 1.5B in f32 on one CPU rank, with AdamW's states on disk.

usage: bench/offload.py SCRATCH [NAME] [--steps N] [--layers N] [--width N] [--heads N] [--tokens N] [--half N] [--in-memory L,M]

SCRATCH is a directory on a local disk with 13 GB to spare; the run needs 15 GB of memory. A step has --tokens tokens in sequences of 1024, one per microbatch.
--half trains N steps again, with half of the layers' states in memory, which must not change a bit of the losses; it needs 20 GB.
--in-memory trains with L and with M layers, 4 steps with states on disk and 4 in memory, and estimates how long a step of all layers would take without
carries, on the line through both times.

Prints reported and counted bytes, and seconds per step; writes bench/results/NAME.json (the default NAME is offload). Needs build/bin."""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parents[1]


def model(folder, options, layers):
    """Writes the model with this number of layers into the folder."""
    config = json.loads((ROOT / "examples/gpt2-124m/config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | dict(n_embd=options.width, n_head=options.heads, n_layer=layers)))
    call(folder, ROOT / "build/bin/pc-import", ".", f"--batch={options.tokens // 1024}", "--seq=1024", "-o", "model.mlir")


def call(folder, *words):
    subprocess.run(list(map(str, words)), check=True, cwd=folder, stdout=subprocess.DEVNULL)


def run(folder, options, name, steps, *flags):
    """The figures of a program with these flags of pc-compile. Prints them at once, since a run takes minutes."""
    call(folder, ROOT / "build/bin/pc-compile", "model.mlir", *flags, "-o", name, f"--report={name}.json")
    report = json.loads((folder / f"{name}.json").read_text())
    scratch = ["--scratch", options.scratch] if report["per_rank"][0]["arena_bytes"].get("disk") else []
    call(folder, f"./{name}", "--data", "tokens.bin", "--steps", steps, "--metrics", f"{name}.jsonl", "--summary", f"{name}.summary", *scratch)
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines() if '"loss"' in line]
    summary = json.loads((folder / f"{name}.summary").read_text())
    links = [{row["link"]: row["payload_bytes"] for row in figures["per_rank"][0]["traffic"] if "link" in row} for figures in (report, summary)]
    figures = {"name": name, "losses": [line["loss"] for line in lines], "seconds": [line["step_seconds"] for line in lines], "parameters": report["parameters"],
            "arena": [figures["per_rank"][0]["arena_bytes"] for figures in (report, summary)], "links": links, "resident": summary["peak_rss_bytes"][0]}
    print(f"| {name} | {figures['parameters']} | {figures['arena'][0]} | {figures['arena'][1]} | {links[0]} | {links[1]} | {figures['resident']} | "
          f"{seconds(figures):.2f} | {figures['losses']} |", flush=True)
    return figures


def seconds(figures):
    return statistics.median(figures["seconds"][1:])


def half(folder, layers):
    """The plan of the last program, with the states of every second layer in memory."""
    plan = (folder / "disk.plan").read_text()
    match = "|".join(f"h.{layer}.*" for layer in range(0, layers, 2))
    assert plan.count("pc-offload{what=states to=disk}") == 1, plan
    (folder / "half.plan").write_text(plan.replace("pc-offload{", f"pc-offload{{match={match} "))
    return "--plan=half.plan"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=lambda path: Path(path).resolve())
    parser.add_argument("name", nargs="?", default="offload")
    for name, default in (("steps", 10), ("layers", 48), ("width", 1600), ("heads", 25), ("tokens", 1024), ("half", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--in-memory", type=lambda text: [int(word) for word in text.split(",")])
    options = parser.parse_args()
    estimate, plain = None, [f"--microbatches={options.tokens // 1024}", "--recompute=full"]
    print("| run | parameters | arena, reported | arena, counted | links per step, reported | links, counted | resident | seconds per step | losses |")
    print("|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "tokens.bin").write_bytes(bytes(i % 190 for i in range(1 << 17)))
        model(folder, options, options.layers)
        runs = [run(folder, options, "disk", options.steps, *plain, "--offload=states", "--emit-plan=disk.plan")]
        if options.half:
            runs.append(run(folder, options, "half", options.half, half(folder, options.layers)))
            assert runs[0]["losses"][:options.half] == runs[1]["losses"], "states in memory changed the losses"
        for layers in options.in_memory or []:
            model(folder, options, layers)
            runs += [run(folder, options, f"{space}-{layers}", 4, *plain, *flags) for space, flags in (("disk", ["--offload=states"]), ("memory", []))]
            assert runs[-1]["losses"] == runs[-2]["losses"], "states on disk changed the losses"
    if options.in_memory:
        (few, less), (many, more) = zip(options.in_memory, (seconds(figures) for figures in runs if figures["name"].startswith("memory")))
        estimate = less + (more - less) / (many - few) * (options.layers - few)
        print(f"\n{seconds(runs[0]):.2f} s per step; without carries {estimate:.2f} s, estimated; ratio {seconds(runs[0]) / estimate:.3f}")
    del options.scratch
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({"options": vars(options), "runs": runs, "seconds_without_carries": estimate}))


if __name__ == "__main__":
    main()
