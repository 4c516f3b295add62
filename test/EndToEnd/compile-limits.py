#!/usr/bin/env python3
"""usage: compile-limits.py within SECONDS COMMAND...      in at most 2 GiB; SECONDS count with PC_TIME set
       compile-limits.py figures REPLICAS BATCH         of report.json, of MT-NLG 530B

Helps Inputs/compile-limits.txt to check the time and memory of compiling models of published sizes."""
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 2 << 30


def within(seconds, *command):
    start = time.monotonic()
    code = subprocess.run(command).returncode
    took, peak = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{took * 1000:.0f} ms, {peak >> 20} MiB (limits {seconds} s, 2048 MiB)")
    return code or peak > LIMIT or ("PC_TIME" in os.environ and took > float(seconds))


def figures(replicas, batch):
    """The pipeline of 280 GPUs a replica: what a rank holds and sends, how long the stages wait, and the predicted step, which stands in
    the table of docs/rationale/machines.md beside the paper's."""
    replicas, batch, report = int(replicas), int(batch), json.loads(Path("report.json").read_text())
    ranks, pipeline, seconds = report["per_rank"], report["pipeline"], report["predicted"]["step_seconds"]
    ideal, waits = 34 / pipeline["microbatches"], pipeline["idle_over_ideal"]
    holds = {"the arena is the sum of its contents": all(sum(rank["memory"].values()) == rank["arena_bytes"]["device"] > 0 for rank in ranks),
             "no kind has more than its maximum": all(rank["memory_at_most"][kind] >= n for rank in ranks
                                                      for kind, n in rank["memory"].items() if kind != "workspace"),
             "every axis has traffic": {row["axis"] for rank in ranks for row in rank["traffic"]} >= {"dp", "pp", "tp"},
             "stages and microbatches": (pipeline["stages"], pipeline["microbatches"]) == (35, batch // replicas),
             f"the stages wait as long as they must: {waits}, {ideal}": 0.75 * ideal < waits < 1.25 * ideal}
    s, layers, h, words = 2048, 105, 20480, 51200
    rate = 96 * batch * s * layers * h * h * (1 + s / (6 * h) + words / (16 * layers * h)) / seconds / (280 * replicas) / 1e12
    if batch == 1920:
        paper = {8: (60.1, 126), 10: (50.2, 121), 12: (44.4, 113)}[replicas]
        row = f"| {replicas} | {280 * replicas} | {paper[0]} | {paper[1]} | {seconds:.1f} | {rate:.0f} | {seconds / paper[0]:.2f} |"
        page = Path(__file__).resolve().parents[2] / "docs/rationale/machines.md"
        holds[f"the table of machines.md has: {row}"] = row in page.read_text()
    for name, good in holds.items():
        print("ok" if good else "FAIL", name)
    return not all(holds.values())


sys.exit({"within": within, "figures": figures}[sys.argv[1]](*sys.argv[2:]))
