"""usage: timeline.py REPORT.json TRACE.json

Compares a pipeline's step as the report predicts it with the step that pc-run --trace measured: seconds per stage
(measured: the mean of its ranks) and the bubble of both. Waiting is all time in which a stage does not compute: for
other stages, for messages, or for its own collectives. A trace cannot tell these apart.
"""
import json
import sys
from collections import defaultdict

report, trace = (json.load(open(path)) for path in sys.argv[1:])
pipeline = report["pipeline"]
KINDS = ["forward", "recompute", "backward", "weight", "optimizer"]


def timeline(events, stage_of):
    """Returns, for each stage, the seconds of every kind of work and of the step. Also returns the longest time from
    the first task to the end of the last, and the most work."""
    rows = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"]]["wait" if event["cat"] in ("move", "message") else
                               "task" if event["tid"] == 0 else "call"].append(event)
    step = (max(e["ts"] + e["dur"] for r in rows.values() for l in r.values() for e in l) -
            min(e["ts"] for r in rows.values() for l in r.values() for e in l)) / 1e6
    stages, cost, ideal = defaultdict(lambda: defaultdict(float)), 0, 0
    count = defaultdict(int)
    for process, lists in rows.items():
        waits, work = sorted((e["ts"], e["ts"] + e["dur"]) for e in lists["wait"]), 0
        stage, at = stages[stage_of(process)], 0
        count[stage_of(process)] += 1
        for task in sorted(lists["task"], key=lambda e: e["ts"]):
            end, seconds = task["ts"] + task["dur"], task["dur"] - task.get("args", {}).get("moves", 0)
            while at < len(waits) and waits[at][0] < end:
                seconds -= max(0, min(waits[at][1], end) - waits[at][0]) if waits[at][0] >= task["ts"] else 0
                at += 1
            stage[task["cat"]] += seconds / 1e6
            work += seconds if task["cat"] != "optimizer" else 0
        tasks = [task for task in lists["task"] if task["cat"] != "optimizer"]
        cost = max(cost, max(e["ts"] + e["dur"] for e in tasks) - min(e["ts"] for e in tasks))
        ideal = max(ideal, work)
    for number, stage in stages.items():
        for kind in stage:
            stage[kind] /= count[number]
        stage["waiting"] = step - sum(stage.values())
    return stages, step, (cost - ideal) / cost


stage_names = {event["pid"]: int(event["args"]["name"].split("stage ")[1].rstrip(")"))
               for event in trace["traceEvents"] if event["ph"] == "M"}
predicted, step, bubble = timeline(pipeline["traceEvents"], lambda process: process)
measured, measured_step, measured_bubble = timeline(trace["traceEvents"], stage_names.get)
print(f"schedule {pipeline['schedule']}, {pipeline['stages']} stages, {pipeline['microbatches']} microbatches\n")
print("| stage | | predicted s | share | measured s | share |\n|---|---|---|---|---|---|")
for stage in sorted(predicted):
    for kind in KINDS + ["waiting"]:
        a, b = predicted[stage].get(kind, 0), measured[stage].get(kind, 0)
        if a or b:
            print(f"| {stage} | {kind} | {a:.4f} | {a / step:.1%} | {b:.4f} | {b / measured_step:.1%} |")
print(f"| all | step | {step:.4f} | | {measured_step:.4f} | |\n| all | bubble | | {bubble:.1%} | | {measured_bubble:.1%} |")
