"""usage: simulate.py WORK SCHEDULE...

Compiles WORK/m.mlir for four stages of 8 microbatches under each schedule, checks the simulated tasks of every stage,
and prints the simulated bubbles with the theoretical ones."""
import json
import subprocess
import sys

work = sys.argv[1]
for schedule in sys.argv[2:]:
    flags = ["--mesh", "pp=4", "--pipeline=" + schedule, "--microbatches=8", "--to=planned", "-o", work + "/planned.mlir"]
    subprocess.run(["pc-compile", work + "/m.mlir", *flags, "--report=" + work + "/r.json"], check=True)
    report = json.load(open(work + "/r.json"))["pipeline"]
    stages, events = report["per_stage"], [event for event in report["traceEvents"] if event["ph"] == "X"]
    end = 1e6 * report["step_seconds"]
    assert report["schedule"] == schedule and len(stages) == report["stages"] == 4 and report["microbatches"] == 8
    for stage in stages:
        assert abs(sum(stage["seconds"].values()) - report["step_seconds"]) < 1e-9 * report["step_seconds"], stage
        own = [event for event in events if event["pid"] == stage["stage"]]
        for a, b in zip(own, own[1:]):
            assert a["ts"] + a["dur"] <= b["ts"] + 1e-9 * end, (a, b)  # one after another, and not beyond the step
        assert own[-1]["ts"] + own[-1]["dur"] <= end * (1 + 1e-9)
        for kind in ["forward", "recompute", "backward", "weight"]:
            tasks = [event for event in own if event["cat"] == kind]
            assert abs(sum(task["dur"] for task in tasks) - 1e6 * stage["seconds"][kind]) < 1e-6 * end, (stage, kind)
            assert len(tasks) in (0, 8 * len(stage["chunks"])) and (tasks or kind != "forward")
            assert all(task["name"].startswith(f"{kind} {task['args']['microbatch']}") for task in tasks)
    text = f"simulated {report['idle_over_ideal']:.3f}"
    if theory := report["theory"]:
        text += f", {theory['formula']} = {theory['idle_over_ideal']:.3f}"
        assert "where" in theory["formula"] or abs(report["idle_over_ideal"] - theory["idle_over_ideal"]) < 2e-4, text
    print(f"{schedule}: {text}, peaks", *[f"{stage['peak_microbatches']:g}" for stage in stages])
