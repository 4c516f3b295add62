"""usage: restarts.py PC_RUN PROGRAMS: pc-run --restarts goes on with the state in the memory of ranks that were killed; the end is that of a run without a
break. PC_LONG=1: a hundred runs."""
import json
import re

from harness import *

work_in("restarts.work")
STEPS = 20000
draw = random.Random(int(os.environ.get("PC_SEED", "5")))


def ranks_of(process):
    return [int(pid) for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split()] if process.poll() is None else []


def killed_now_and_then(name, mesh, flags, seconds, kills, signals=(signal.SIGKILL,), **environment):
    """A run with kills at random times; what it printed."""
    process = subprocess.Popen(command(mesh, *flags, launcher=["--restarts", "100"]), stdout=open(f"{name}.out", "w"), stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **environment})
    for _ in range(kills):
        wait_for(lambda: process.poll() is not None, draw.uniform(0, seconds))
        if ranks := ranks_of(process):
            try:
                os.kill(draw.choice(ranks), draw.choice(signals))
            except ProcessLookupError:
                pass
    code, said = finish(process, 120)
    good(f"{name}: ends well", code == 0, f"exit {code}: {said}")
    return read(f"{name}.out").decode() + said


in_memory = again = 0
for number in range(100 if LONG else 5):  # 30 kills
    mesh = ["2-1-1", "2-2-2", "1-2-1", "2-1-1"][number % 4]
    flags = ["--steps", STEPS, "--skip-spikes", 3, "--skip-most", STEPS, "--lr", "0.05", "--save", "end", "--metrics", "end.jsonl"]
    if number < 4:
        succeeds(f"{mesh} without a break", mesh, *flags, "--save", f"whole-{mesh}")
    # Every other one with checkpoints for where the memory is of no use.
    series = ["--checkpoint", "DIR", "--every", 500] if number % 2 else []
    subprocess.run(["rm", "-rf", "DIR", "end"])
    said = killed_now_and_then(f"run {number}", mesh, flags + series, 0.6, 6)
    in_memory += len(re.findall("going on from step [0-9]+, which is still in memory", said))
    again += said.count("starting again")
    good(f"run {number}: the same bits", tensors("end") == tensors(f"whole-{mesh}"))
    steps = [json.loads(line)["step"] for line in open("end.jsonl")]
    good(f"run {number}: one line a step", steps == list(range(STEPS)), steps[:3])
good("some went on in memory", in_memory > 0, f"{in_memory} of {again}")
print(f"{in_memory} of {again} restarts went on in memory")

# A rank that crashed by itself may have written anywhere.
said = killed_now_and_then("a crash", "2-1-1", ["--steps", STEPS, "--save", "end"], 0.6, 3, [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
good("a crash: not in memory", "starting again" in said and "still in memory" not in said, said)
said = killed_now_and_then("tcp", "2-1-1", ["--steps", STEPS, "--save", "end"], 0.6, 2, PCRT_TRANSPORT="tcp")
good("tcp has no memory of its own", "still in memory" not in said, said)
end()
