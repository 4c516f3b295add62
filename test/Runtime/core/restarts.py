"""usage: restarts.py PC_RUN PROGRAMS: pc-run --restarts goes on with the state in the memory of ranks that were killed; the end is that of a run without a
break. PC_LONG=1: a hundred runs."""
import json
import re

from harness import *

work_in("restarts.work")
STEPS = {"2-1-1": 7000, "1-2-1": 7000, "2-2-2": 3000}  # about a second
draw = random.Random(int(os.environ.get("PC_SEED", "5")))


def ranks_of(process):
    return [int(pid) for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split()] if process.poll() is None else []


def killed_now_and_then(name, mesh, flags, seconds, kills, signals=(signal.SIGKILL,), **environment):
    """A run with kills at random times, of ranks that have begun; what it printed."""
    process = subprocess.Popen(command(mesh, *flags, launcher=["--restarts", "100"]), stdout=open(f"{name}.out", "w"),
                               stderr=open(f"{name}.err", "w"), env={**os.environ, **environment})
    for _ in range(kills):
        wait_for(lambda: process.poll() is not None, draw.uniform(0, seconds))
        wait_for(lambda: ranks_of(process) or process.poll() is not None)
        if ranks := ranks_of(process):
            try:
                os.kill(draw.choice(ranks), draw.choice(signals))
            except ProcessLookupError:
                pass
    code, _ = finish(process, 120)
    said = "".join(line + "\n" for line in read(f"{name}.err").decode().splitlines() if "the step is skipped" not in line)
    good(f"{name}: ends well", code == 0, f"exit {code}: {said}")
    return read(f"{name}.out").decode() + said


in_memory = again = 0
for number in range(100 if LONG else 5):  # 30 kills
    mesh = ["2-1-1", "1-2-1", "2-2-2" if LONG else "2-1-1"][number % 3]
    steps = STEPS[mesh]
    flags = ["--steps", steps, "--skip-spikes", 3, "--skip-most", steps, "--lr", "0.05", "--save", "end", "--metrics", "end.jsonl"]
    if number < 3:
        succeeds(f"{mesh} without a break", mesh, *flags, "--save", f"whole-{mesh}")
    # Every other one with checkpoints for where the memory is of no use.
    series = ["--checkpoint", "DIR", "--every", 500] if number % 2 else []
    subprocess.run(["rm", "-rf", "DIR", "end"])
    said = killed_now_and_then(f"run {number}", mesh, flags + series, 0.3, 6)
    in_memory += len(re.findall("going on from step [0-9]+, which is still in memory", said))
    again += said.count("starting again")
    good(f"run {number}: the same bits", tensors("end") == tensors(f"whole-{mesh}"))
    lines = [json.loads(line)["step"] for line in open("end.jsonl")]
    good(f"run {number}: one line a step", lines == list(range(steps)), [len(lines)] + [pair for pair in zip(lines, lines[1:]) if pair[1] != pair[0] + 1])
good("some went on in memory", in_memory > 0, f"{in_memory} of {again}")
print(f"{in_memory} of {again} restarts went on in memory")

# A rank that crashed by itself may have written anywhere.
said = killed_now_and_then("a crash", "2-1-1", ["--steps", STEPS["2-1-1"], "--save", "end"], 0.3, 3, [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
good("a crash: not in memory", "starting again" in said and "still in memory" not in said, said)
said = killed_now_and_then("tcp", "2-1-1", ["--steps", STEPS["2-1-1"], "--save", "end"], 0.3, 2, PCRT_TRANSPORT="tcp")
good("tcp has no memory of its own", "still in memory" not in said, said)
end()
