"""usage: kills.py PC_RUN PROGRAMS

Kills a rank before a random call of a random step, and the run starts again (pc-run --restarts). Over shared memory it
restarts from the state in memory if no rank can have begun an update, and then repeats no step; or, with --snapshot,
from a copy. Otherwise, and over tcp, it restarts from the newest checkpoint. The end must be that of an uninterrupted
run. PC_LONG=1: before each call of a step, of each rank, over both."""
import json
import re

from harness import *

work_in("kills.work")
STEPS, EVERY = 8, 2
MESHES = {"2-1-1": (2, 1), "1-2-1": (2, 1), "2-2-2": (4, 2)}  # ranks, microbatches
draw = random.Random(int(os.environ.get("PC_SEED", "11")))


def calls_of(microbatches):
    return 10 + 12 * microbatches


def losses(path):
    return [[line["step"], line["loss"], line["grad_norm"]] for line in map(json.loads, open(path))]


def killed(mesh, step, call, rank, transport, snapshot=0):
    """The run with that rank killed in that step, from 0, before that call, from 1."""
    ranks, microbatches = MESHES[mesh]
    name = f"{mesh}: rank {rank} before call {call} of step {step} over {transport}" + (f", copies every {snapshot}" if snapshot else "")
    subprocess.run(["rm", "-rf", "DIR", "end", "end.jsonl"])
    write("KILL_ONCE", "")
    line = command(mesh, *flags, "--save", "end", "--metrics", "end.jsonl", "--checkpoint", "DIR", "--every", EVERY, *(["--snapshot", snapshot] if snapshot else []), launcher=["--restarts", "1"])
    line[line.index(program(mesh))] += "DIES"
    process = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PCRT_TRANSPORT": transport, "KILL_RANK": str(rank),
                                                                         "KILL_AT": str(step * calls_of(microbatches) + call)})
    good(f"{name}: ends well", process.returncode == 0 and "restarting the run (1 of 1)" in process.stderr, f"exit {process.returncode}: {process.stderr}")
    good(f"{name}: the same end", tensors("end") == tensors(f"whole-{mesh}") and losses("end.jsonl") == losses(f"whole-{mesh}.jsonl"))
    memory = re.findall(r"continuing from step (\d+), which is still in memory", process.stdout)
    # After a move of this step with the other ranks, no rank is still in the update of the step before. Before the
    # moves of gradients, none is in the update of this step.
    if transport == "shm" and 10 <= call <= 2 + 12 * microbatches:
        good(f"{name}: what was made is still there", memory == [str(step)], process.stdout)
    if snapshot == 1: # another rank may be in the update of the step before
        good(f"{name}: no more than a step is made again", len(memory) == 1 and step - 1 <= int(memory[0]) <= step, process.stdout)
    if snapshot and step % snapshot == 0 and call > 3:
        good(f"{name}: no step is made again", memory == [str(step)], process.stdout)
    if transport == "tcp":
        good(f"{name}: nothing is in memory", not memory, process.stdout)
    good(f"{name}: nothing is left", sorted(os.listdir()) == there and all(re.fullmatch(r"step-\d{8}|latest", path) for path in os.listdir("DIR")), os.listdir("DIR"))


flags = ["--steps", STEPS]
for mesh in MESHES:
    succeeds(f"{mesh} without a break", mesh, *flags, "--save", f"whole-{mesh}", "--metrics", f"whole-{mesh}.jsonl")
there = sorted(os.listdir() + ["DIR", "end", "end.jsonl"])
every = [(mesh, step, call, rank, transport) for mesh, (ranks, micro) in MESHES.items() for step in range(STEPS) for call in range(1, calls_of(micro) + 1)
         for rank in range(ranks) for transport in ("shm", "tcp")]
for one in [one for one in every if one[1] == 3] if LONG else draw.sample(every, 8):
    killed(*one)
# These runs have copies of the state in memory; kills come during updates and outside of them.
late = [(mesh, step, call, rank, "shm", snapshot) for mesh, step, call, rank, transport in every if transport == "shm" and step > 0 for snapshot in (1, 3)
        if call < 3 or call > 2 + 12 * MESHES[mesh][1]]
for one in [one for one in late if one[1] == 4] if LONG else draw.sample(late, 4):
    killed(*one)
refused("copies over tcp", 2, ["--snapshot", "the transport tcp"], "2-1-1", *flags, "--snapshot", 1, PCRT_TRANSPORT="tcp")
end()
