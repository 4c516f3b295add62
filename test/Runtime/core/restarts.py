"""usage: restarts.py PC_RUN PROGRAMS

Tests that pc-run --restarts continues with the state in the memory of killed ranks. The end must be that of an
uninterrupted run. PC_LONG=1: a hundred runs."""
import json
import re
import select

from harness import *

work_in("restarts.work")
STEPS = {"2-1-1": 7000, "1-2-1": 7000, "2-2-2": 3000}  # about a second
seconds = {}  # that they take without a break
draw = random.Random(int(os.environ.get("PC_SEED", "5")))


def ranks_of(process):
    return [int(pid) for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split()] if process.poll() is None else []


def killed_now_and_then(name, mesh, flags, kills, **environment):
    """Runs with kills at random times, of ranks that have begun. Returns the output."""
    process = subprocess.Popen(command(mesh, *flags, launcher=["--restarts", "100"]), stdout=open(f"{name}.out", "w"),
                               stderr=open(f"{name}.err", "w"), env={**os.environ, **environment})
    for _ in range(kills):
        wait_for(lambda: process.poll() is not None, draw.uniform(0, 0.3 * seconds[mesh]))
        wait_for(lambda: ranks_of(process) or process.poll() is not None)
        if ranks := ranks_of(process):
            try:
                os.kill(draw.choice(ranks), signal.SIGKILL)
            except ProcessLookupError:
                pass
    code, _ = finish(process, 120)
    said = "".join(line + "\n" for line in read(f"{name}.err").decode().splitlines() if "the step is skipped" not in line)
    good(f"{name}: ends well", code == 0, f"exit {code}: {said}")
    return read(f"{name}.out").decode() + said


def crashes(signals):
    """Runs while ranks get the signals one after the other. Returns the output. Each signal comes when the run has
    printed a step and is in another one: the lines go to a pipe that holds fewer lines than the run has steps, and
    that is emptied when the run has started again."""
    os.mkfifo("lines")
    lines = os.open("lines", os.O_RDWR | os.O_NONBLOCK)
    process = subprocess.Popen(command("2-1-1", "--steps", STEPS["2-1-1"], "--metrics", "lines", launcher=["--restarts", "100"]), stdout=subprocess.DEVNULL,
                               stderr=open("crash.err", "w"))
    for count, number in enumerate(signals, 1):
        good(f"{number.name}: a step is told", wait_for(lambda: select.select([lines], [], [], 0)[0]))
        os.kill(draw.choice(ranks_of(process)), number)
        good(f"{number.name}: starting again", wait_for(lambda: read("crash.err").count(b"restarting the run") == count), read("crash.err"))
        os.read(lines, 1 << 16)
    while process.poll() is None:
        if select.select([lines], [], [], 0.1)[0]:
            os.read(lines, 1 << 16)
    code, _ = finish(process)
    good("crashes: ends well", code == 0, f"exit {code}: {read('crash.err')}")
    return read("crash.err").decode()


in_memory = again = 0
for number in range(100 if LONG else 5):  # 30 kills
    mesh = ["2-1-1", "1-2-1", "2-2-2" if LONG else "2-1-1"][number % 3]
    steps = STEPS[mesh]
    flags = ["--steps", steps, "--skip-spikes", 3, "--skip-most", steps, "--lr", "0.05", "--save", "end", "--metrics", "end.jsonl"]
    if number < 3:
        begin = time.monotonic()
        succeeds(f"{mesh} without a break", mesh, *flags, "--save", f"whole-{mesh}")
        seconds[mesh] = time.monotonic() - begin
    # Every other run has checkpoints, for kills after which the memory cannot be used.
    series = ["--checkpoint", "DIR", "--every", 500] if number % 2 else []
    subprocess.run(["rm", "-rf", "DIR", "end"])
    said = killed_now_and_then(f"run {number}", mesh, flags + series, 6)
    in_memory += len(re.findall("continuing from step [0-9]+, which is still in memory", said))
    again += said.count("restarting the run")
    good(f"run {number}: the same bits", tensors("end") == tensors(f"whole-{mesh}"))
    lines = [json.loads(line)["step"] for line in open("end.jsonl")]
    good(f"run {number}: one line a step", lines == list(range(steps)), [len(lines)] + [pair for pair in zip(lines, lines[1:]) if pair[1] != pair[0] + 1])
good("some went on in memory", in_memory > 0, f"{in_memory} of {again}")
print(f"{in_memory} of {again} restarts went on in memory")

# A rank that crashed may have written anywhere.
said = crashes([signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
good("a crash: not in memory", "still in memory" not in said, said)
said = killed_now_and_then("tcp", "2-1-1", ["--steps", STEPS["2-1-1"], "--save", "of-tcp"], 2, PCRT_TRANSPORT="tcp")
good("tcp has no memory of its own", "still in memory" not in said, said)
end()
