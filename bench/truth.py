#!/usr/bin/env python3
"""Compares the measured steps of this machine with the steps that the compiler predicts for it: plans of two ranks of
GPT-2 124M and of a Llama shape, in f32 and bf16, in alternating rounds. A calibration precedes the plans of each model,
since other users of a shared machine come and go. bench/results/NAME.json keeps the measurements after every run, and a
later call continues from it. bench/results/NAME.md is written from all measurements, with the compiler's current
prediction for the machine whose figures are the medians.

usage: truth.py [NAME] [--rounds N] [--minutes M] [--only TEXT] [--noise SHARE] [--table]
(--help says more; scripts/build must run before)
"""
import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parent.parent
TOOLS, WORK = ROOT / "build" / "bin", ROOT / "build" / "bench" / "truth"
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 16384, "hidden_size": 1024, "intermediate_size": 2816,
         "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 2048}
PIPELINE = "--mesh pp=2 --microbatches=4 --pipeline="
# Config (a folder, or what is in it), batch, sequence, plans.
MODELS = {
    "GPT-2 124M, T 256": (ROOT / "examples" / "gpt2-124m", 4, 256, [
        "--mesh dp=2", "--mesh dp=2 --zero=1", "--mesh dp=2 --zero=2 --microbatches=2", "--mesh dp=2 --zero=3", "--mesh dp=2 --microbatches=2",
        "--mesh dp=2 --recompute=full", "--mesh tp=2", "--mesh tp=2 --sequence-parallel", "--mesh tp=2 --sequence-parallel --window=tp",
        "--mesh cp=2", "--mesh cp=2 --context-parallel=ring", PIPELINE + "1f1b", PIPELINE + "zb-h1", PIPELINE + "zb-v"]),
    "GPT-2 124M, T 1024": (ROOT / "examples" / "gpt2-124m", 2, 1024, [
        "--mesh dp=2", "--mesh dp=2 --zero=3", "--mesh dp=2 --recompute=selective", "--mesh tp=2 --sequence-parallel",
        "--mesh cp=2 --context-parallel=ring", "--mesh pp=2 --microbatches=2"]),
    "Llama shape, T 512": (LLAMA, 4, 512, [
        "--mesh dp=2 --zero=1", "--mesh dp=2 --zero=3", "--mesh tp=2", "--mesh tp=2 --sequence-parallel", "--mesh cp=2", PIPELINE + "1f1b"]),
}
CALIBRATION = "pc-calibrate"
CASES = [(model, precision, plan) for model in MODELS for precision in ("f32", "bf16") for plan in [CALIBRATION] + MODELS[model][3]]
STEPS = 4  # of a run; the first one is not counted


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stderr}")


def program_of(model):
    """The model program, made once."""
    config, batch, sequence, _ = MODELS[model]
    path = WORK / (re.sub(r"\W+", "-", model) + ".mlir")
    if not path.exists():
        folder = config
        if isinstance(config, dict):
            folder = path.with_suffix("")
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text(json.dumps(config))
        call(TOOLS / "pc-import", folder, "-o", path, f"--batch={batch}", f"--seq={sequence}")
    return path


def calibrate(case, noise):
    machine = WORK / "machine.json"
    call(TOOLS / "pc-calibrate", "-n", "2", "-o", machine, "--seconds", "5", "--noise", noise)
    return {"case": case, "at": int(time.time()), "machine": json.loads(machine.read_text())}


def middle(machines):
    """Returns the median of each figure."""
    return {name: statistics.median(machine[name] for machine in machines) if isinstance(value, (int, float)) else value
            for name, value in machines[0].items()}


def measure(case):
    """The seconds of the steps of one run, and where they went."""
    model, precision, plan = case
    program = WORK / re.sub(r"\W+", "-", " ".join(case))
    if not program.exists() or program.stat().st_mtime < (TOOLS / "pc-compile").stat().st_mtime:
        call(TOOLS / "pc-compile", program_of(model), "-o", program, "--precision=" + precision, *plan.split())
    load = os.getloadavg()[0]
    metrics, summary = WORK / "metrics.jsonl", WORK / "summary.json"
    call(TOOLS / "pc-run", "-n", "2", program, "--", "--data", f"text:{ROOT / 'README.md'}", "--steps", str(STEPS), "--lr", "3e-4",
         "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1", "--metrics", metrics, "--summary", summary)
    seconds = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]
    return {"case": case, "step_seconds": seconds[1:], "first_step_seconds": seconds[0], "load_before": load, "at": int(time.time()),
            "time_by_kind": json.loads(summary.read_text()).get("time_by_kind")}


def predict(case, machine):
    model, precision, plan = case
    on, report = WORK / "machine.json", WORK / "report.json"
    on.write_text(json.dumps(machine))
    call(TOOLS / "pc-compile", program_of(model), "-o", os.devnull, "--to=planned", "--precision=" + precision, f"--machine={on}",
         f"--report={report}", *plan.split())
    return json.loads(report.read_text())["predicted"]["step_seconds"]


def table(state):
    """The page, from all that was measured."""
    seconds, machines = {}, []
    for run in state["runs"]:
        if "machine" in run:
            machines.append(run["machine"])
        else:
            seconds.setdefault(tuple(run["case"]), []).extend(run["step_seconds"])
    measured = {case: statistics.median(seconds[case]) for case in CASES if case in seconds}
    machine = middle(machines)
    predicted = {case: predict(case, machine) for case in measured}
    errors = {case: predicted[case] / measured[case] - 1 for case in measured}
    lines = ["# Measured steps beside predicted ones", "",
             f"`bench/truth.py`, two ranks on {machines[0]['measured']['processor']}. Figures of the machine: medians of {len(machines)} runs of `pc-calibrate`,",
             f"between the measured runs. Steps: medians of {min(map(len, seconds.values()))} to {max(map(len, seconds.values()))} steps; ± is half the distance of the quartiles.", "",
             "| model, precision | plans | mean error, % | median | largest | regret of the predicted best, % | pairs in order |",
             "|---|---|---|---|---|---|---|"]
    groups = [(name, list(cases)) for name, cases in itertools.groupby(measured, key=lambda case: case[:2])]
    rights, pairs = 0, 0
    for name, cases in groups:
        right, told = order(cases, measured, predicted)
        rights, pairs = rights + right, pairs + told
        best = min(cases, key=predicted.get)
        regret = measured[best] / min(measured[case] for case in cases) - 1
        lines.append(f"| {', '.join(name)} | {len(cases)} | {shares(errors, cases)} | {100 * regret:.1f} | {right} of {told} |")
    lines += [f"| all | {len(measured)} | {shares(errors, measured)} | | {rights} of {pairs} ({100 * rights / max(pairs, 1):.0f} %) |", "",
              "Pairs are those of one model and precision whose medians differ by over 5 %.", "",
              "| model, precision | plan | measured, s | ± % | predicted, s | error, % |", "|---|---|---|---|---|---|"]
    for case in measured:
        quarters = statistics.quantiles(seconds[case], method="inclusive") if len(seconds[case]) > 1 else [0, 0, 0]
        lines.append(f"| {', '.join(case[:2])} | `{case[2]}` | {measured[case]:.3f} | {50 * (quarters[2] - quarters[0]) / measured[case]:.1f} | "
                     f"{predicted[case]:.3f} | {100 * errors[case]:+.1f} |")
    return "\n".join(lines) + "\n"


def shares(errors, cases):
    some = [100 * abs(errors[case]) for case in cases]
    return f"{statistics.mean(some):.1f} | {statistics.median(some):.1f} | {max(some):.1f}"


def order(cases, measured, predicted):
    """Of pairs whose measurements can be told apart, returns how many have the same order in the predictions, and how
    many pairs there are."""
    told = [(a, b) for a, b in itertools.combinations(cases, 2) if max(measured[a] / measured[b], measured[b] / measured[a]) > 1.05]
    return sum((measured[a] < measured[b]) == (predicted[a] < predicted[b]) for a, b in told), len(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="truth")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this many minutes; the next call continues")
    parser.add_argument("--only", default="", help="run only cases whose text contains this, as in 'T 256 bf16' or 'zero=3'")
    parser.add_argument("--noise", default="0.2", help="value of pc-calibrate --noise (default %(default)s)")
    parser.add_argument("--table", action="store_true", help="write the page again without measuring")
    options = parser.parse_args()
    begin = time.monotonic()
    WORK.mkdir(parents=True, exist_ok=True)
    path = ROOT / "bench" / "results" / f"{options.name}.json"
    state = json.loads(path.read_text()) if path.exists() else {"runs": []}
    named = [case for case in CASES if case[2] != CALIBRATION and all(part in " ".join(case) for part in options.only.split())]
    wanted = [case for case in CASES if case in named or case[2] == CALIBRATION and case[:2] in {other[:2] for other in named}]
    for round in range(0 if options.table else options.rounds):
        for case in wanted:
            done = sum(run["case"] == list(case) for run in state["runs"])
            if done > round or time.monotonic() - begin > 60 * options.minutes:
                continue
            run = calibrate(case, options.noise) if case[2] == CALIBRATION else measure(case)
            state["runs"].append(json.loads(json.dumps(run)))
            part = path.with_suffix(".part")
            part.write_text(json_runs.text(state))
            part.rename(path)
            told = f"{statistics.median(run['step_seconds']):.3f} s" if "step_seconds" in run else "calibrated"
            print(f"round {round + 1}: {', '.join(case)}: {told}", file=sys.stderr, flush=True)
    if not any("step_seconds" in run for run in state["runs"]):
        sys.exit("nothing was measured yet")
    page = table(state)
    path.with_suffix(".md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
