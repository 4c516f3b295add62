"""usage: otherwise.py MODEL DIR

A search states which changes of the machine's figures would change its choice. This test compares these statements with
searches on such machines."""
import json
import os
import subprocess
import sys

model, work = sys.argv[1:]
FIGURES = {"products": ["f32_flops", "bf16_flops"], "links within a node": ["node_bandwidth"], "network between nodes": ["network_bandwidth"],
           "memory": ["memory_bandwidth"]}
# Nodes have two ranks and slow links between them, so traffic decides which plan is best.
MACHINE = {"like": "cpu", "node_ranks": 2, "f32_flops": 1e10, "bf16_flops": 1.8e10, "node_bandwidth": 1e9, "network_bandwidth": 3e8,
           "memory_bandwidth": 5e10, "move_seconds": 1e-6, "collective_seconds": 1e-6}


def search(machine):
    """The `search` of a report, and the plan's file."""
    files = [os.path.join(work, name) for name in ("machine.json", "report.json", "plan.mlir")]
    with open(files[0], "w") as file:
        json.dump(machine, file)
    subprocess.run(["pc-compile", model, "--auto=dp,tp,zero,sequence-parallel", "--ranks=4", "--machine=" + files[0], "--to=planned", "--verify=none",
                    "-o", "/dev/null", "--report=" + files[1], "--emit-plan=" + files[2]], check=True, capture_output=True)
    with open(files[1]) as report, open(files[2]) as plan:
        return json.load(report)["search"], plan.read()


def on_machine(plan, machine):
    """Seconds of a step by a plan's file."""
    for name, text in (("machine.json", json.dumps(machine)), ("plan.mlir", plan)):
        with open(os.path.join(work, name), "w") as file:
            file.write(text)
    subprocess.run(["pc-compile", model, "--plan=" + os.path.join(work, "plan.mlir"), "--machine=" + os.path.join(work, "machine.json"), "--to=planned",
                    "--verify=none", "-o", "/dev/null", "--report=" + os.path.join(work, "report.json")], check=True, capture_output=True)
    with open(os.path.join(work, "report.json")) as report:
        return json.load(report)["predicted"]["step_seconds"]


found, plan = search(MACHINE)
assert found["figures_tried"] == list(FIGURES), found["figures_tried"]
changes = {(change["figure"], change["times"]): change for change in found["on_other_machines"]}
# The comment names the machine's file.
comment = json.loads(plan.splitlines()[-1].removeprefix("// "))
assert comment == MACHINE and "--ranks=4" in plan, plan
for figure, members in FIGURES.items():
    for times in (0.5, 2):
        there = MACHINE | {member: MACHINE[member] * times for member in members}
        real, ours = search(there)[0]["candidates"][0], on_machine(plan, there)
        said = changes.get((figure, times))
        least = said["step_seconds"] if said else ours
        assert abs((said["chosen_step_seconds"] if said else ours) / ours - 1) < 1e-6, (figure, times, said, ours)
        assert least < 1.0101 * real["step_seconds"], (figure, times, said, real, ours)
        assert not said or said["plan"] == real["plan"], (figure, times, said, real)
below = [entry["below_bytes"] for entry in found["with_less_memory"]]
assert below and below == sorted(below, reverse=True) and all(entry["arena_bytes"] < entry["below_bytes"] for entry in found["with_less_memory"])
print(f"{len(changes)} of 8 change the choice")
