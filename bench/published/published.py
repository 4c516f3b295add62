#!/usr/bin/env python3
"""usage: bench/published/published.py > bench/results/published.md     build/bin in PATH

Compares every row of cost_runs.csv with the compiler's prediction for its own program under the row's plan, and with
the prediction for the software of the published run (software.py). Also prints the order of schedules in
zero_bubble.csv, and 175B on 1536 A100 by 3D parallelism and by ZeRO-3. build/published keeps the reports."""
import collections
import itertools
import sys
import textwrap

import compiled
import software

SCHEDULES = {"bubble_1f1b": ("1f1b", 1), "bubble_1f1b_interleaved": ("interleaved", 3), "bubble_zb_h1": ("zb-h1", 1), "bubble_zb_h2": ("zb-h2", 1)}
SAME_FAMILY = "megatron_sc21", "megatron_tp_weak_2020", "zero_bubble_stage"  # Megatron's own runs
TASKS = {"F": "forward", "B": "backward", "W": "weight"}


def both(row, known):
    """Seconds of the row by the compiler: its own program's, and those with the row's software."""
    own = compiled.predict(row, more=software.flags(row))
    sizes = software.wanted(row, own["machine"], known)
    report = compiled.predict(row, software.changes(row, own["machine"], sizes), software.flags(row))
    own_seconds = own["step"] if row["part"] == "step" else own["tasks"][TASKS[row["part"]]]
    return own_seconds, software.seconds(row, report, own["machine"], known)


def say(text):
    print(textwrap.fill(text, 118, break_on_hyphens=False) + "\n")


def mean(values):
    return sum(values) / len(values)


def steps(known):
    lines, without, errors = [], collections.defaultdict(list), collections.defaultdict(list)
    ratios = collections.defaultdict(list)
    for row in compiled.rows(compiled.HERE / "cost_runs.csv"):
        try:
            own, theirs = both(row, known)
        except compiled.Inexpressible as reason:
            without[str(reason)].append(row["id"])
            continue
        error = theirs / row["seconds"] - 1
        errors[row["source"]].append(100 * abs(error))
        ratios[row["source"]].append(own / row["seconds"])
        lines.append(f"| {row['id']} | {row['seconds']:.4g} | {own:.4g} | {own / row['seconds']:.2f} | {theirs:.4g} | {100 * error:+.1f} |")
    groups = [(source, values, ratios[source]) for source, values in errors.items()]
    for name, members in (("all but mtnlg", set(errors) - {"mtnlg"}), ("Megatron's", set(SAME_FAMILY))):
        groups.append((name, *(sum((table[source] for source in errors if source in members), []) for table in (errors, ratios))))
    groups.append(("all", sum(errors.values(), []), sum(ratios.values(), [])))
    print("| source | rows | own program / published, median | mean error with the software, % | largest, % |\n|---|---|---|---|---|")
    for name, values, own in groups:
        print(f"| {name} | {len(values)} | {sorted(own)[len(own) // 2]:.2f} | {mean(values):.1f} | {max(values):.1f} |")
    print()
    for reason, ids in without.items():
        say(f"Not expressed, {len(ids)} rows ({reason}): {', '.join(ids)}.")
    return lines


def schedules(known):
    print("## Order of schedules\n")
    say("The published bubbles are computed from the measured seconds of tasks, for stages that are alike. The predicted bubbles are those of programs with as many layers "
        "on each stage and almost no vocabulary, with the software of the published run except for its messages: (step - shortest of the four) / step.")
    say("The published zb-h2 is drawn by hand for tasks of equal time, F = B = W. It waits (p - 1)(F + B - 2W), and for messages; this gives all six published figures "
        "to four digits. The compiler's zb-h2 uses the seconds that tasks take, and waits less. So the published order is predicted here: the step of 1f1b less 3 (p - 1) W.")
    print("| model, microbatches | " + " | ".join(f"{name} published | predicted" for name, _ in SCHEDULES.values()) + " | pairs in order |")
    print("|---|" + "---|---|" * len(SCHEDULES) + "---|")
    right = total = 0
    wrong = []
    for line in compiled.rows(compiled.HERE / "zero_bubble.csv"):
        row = {"software": "megatron23", "gpu": "a100", "arch": "gpt", "vocab": 256, "bits": 16, "tp": 1, "cp": 1, "dp": 1, "zero": 0, "part": "step",
               "recompute": "none", "microbatches": int(line["num_micro"]), "micro": int(line["micro_batch"]), "seq": int(line["seq_len"]),
               **{key: int(line[key]) for key in ("layers", "hidden", "heads", "pp")}}
        row["layers"] += 2  # the first and the last stage have one less, and the embedding and the head
        row |= {"kv": row["heads"], "ffn": 4 * row["hidden"], "batch": row["micro"] * row["microbatches"], "gpus": row["pp"]}
        step, published = {}, {key: float(line[key]) for key in SCHEDULES}
        for key, (schedule, chunks) in SCHEDULES.items():
            one = row | {"schedule": schedule, "chunks": chunks}
            machine = compiled.predict(one, more=software.flags(one))["machine"]
            report = compiled.predict(one, software.changes(one, machine, software.wanted(one, machine, known)), software.flags(one))
            step[key] = report["step"]
            if schedule == "zb-h2":  # as it was drawn
                weight = software.seconds(row | {"part": "W", "layers": row["layers"] - 2}, report, machine, known)
                step[key] = step["bubble_1f1b"] - 3 * (row["pp"] - 1) * weight
        pairs = list(itertools.combinations(SCHEDULES, 2))
        bad = [(a, b) for a, b in pairs if (published[a] < published[b]) != (step[a] < step[b]) or step[a] == step[b]]
        right, total = right + len(pairs) - len(bad), total + len(pairs)
        where = f"{line['model']}, {line['num_micro']}"
        wrong += [f"{where}: {SCHEDULES[a][0]} and {SCHEDULES[b][0]} (published {published[a]:.4f}, {published[b]:.4f}; predicted steps {step[a]:.4f}, {step[b]:.4f} s)"
                  for a, b in bad]
        least = min(step.values())
        print(f"| {where} | " + " | ".join(f"{published[key]:.4f} | {1 - least / step[key]:.4f}" for key in SCHEDULES) + f" | {len(pairs) - len(bad)} of {len(pairs)} |")
    print(f"\n{right} of {total} pairs in the published order ({100 * right / total:.0f} %)." + (" Not: " + "; ".join(wrong) + "." if wrong else "") + "\n")


def three_dimensions(known):
    row = {"part": "step", "gpu": "a100", "gpus": 1536, "arch": "gpt", "layers": 96, "hidden": 12288, "heads": 96, "kv": 96, "ffn": 49152, "vocab": 51200,
           "seq": 2048, "bits": 16, "cp": 1, "micro": 1, "batch": 1536, "recompute": "full", "schedule": "1f1b", "chunks": 1}
    plans = {"TP 8, PP 12, DP 16": {"tp": 8, "pp": 12, "dp": 16, "zero": 0, "software": "megatron21"}, "ZeRO-3, DP 1536": {"tp": 1, "pp": 1, "dp": 1536, "zero": 3, "software": "deepspeed"}}
    seconds = {}
    for name, plan in plans.items():
        one = row | plan
        one["microbatches"] = row["batch"] // one["dp"]
        seconds[name] = both(one, known)
    three, zero = seconds.values()
    print("## 175B on 1536 A100, batch 1536\n\n| plan | own program, s | with the software, s |\n|---|---|---|")
    for name, (own, theirs) in seconds.items():
        print(f"| {name} | {own:.2f} | {theirs:.2f} |")
    print(f"\n3D is {zero[0] / three[0]:.2f} times as fast in the compiler's own programs,\n"
          f"and {zero[1] / three[1]:.2f} times with the software of Megatron-LM and of DeepSpeed's ZeRO-3\n"
          "(published, arXiv 2104.04473, table 2: 141 against 44 Tflop/s a GPU, 3.2 times).\n")


def main():
    known = software.constants()
    print("# Published steps beside predicted ones\n")
    say("`bench/published/published.py`. *Own program*: what the compiler predicts for its program of the row's plan on the row's machine, as in any report. *With the "
        "software*: the same compile with what the published run did otherwise (`bench/published/software.json`, and the figures of `constants.json`, which `fit.py` "
        "has fitted to the rows of set `fit`). No row has figures of its own, and the three rows of mtnlg are in no fit.")
    lines = steps(known)
    schedules(known)
    three_dimensions(known)
    print("## Fitted figures\n\n" + "\n".join(f"* {name}: {value:g}" for name, value in known.items()) + "\n")
    print("## Rows\n\n| row | published, s | own program, s | own / published | with the software, s | error, % |\n|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
