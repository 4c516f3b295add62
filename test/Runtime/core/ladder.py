"""usage: ladder.py PC_RUN PROGRAMS

Tests pc-run --or, which continues with programs for fewer ranks if ranks are lost again and again. Each program must
make the steps that it makes from the checkpoint that it found. PC_LONG=1: twenty runs."""
import json
import re

from harness import *

work_in("ladder.work")
MESHES = ["2-2-2", "1-2-1", "1-1-1"]
STEPS = 3000
FLAGS = ["--steps", STEPS, "--save", "end", "--metrics", "end.jsonl"]
draw = random.Random(int(os.environ.get("PC_SEED", "7")))


def ladder(meshes, ranks, *more):
    """Returns the command of the first program on `ranks` ranks, followed by the other programs."""
    launcher = list(more) + [word for mesh in meshes[1:] for word in ("--or", program(mesh))]
    line = command(meshes[0], *FLAGS, "--checkpoint", "DIR", "--every", 100, "--keep", 100, launcher=launcher)
    line[line.index("-n") + 1] = str(ranks)
    return line


def newest():
    steps = [int(name[5:]) for name in os.listdir("DIR") if re.fullmatch(r"step-\d{8}", name)] if os.path.isdir("DIR") else []
    return max(steps, default=0)


def losses(path):
    return {line["step"]: line["loss"] for line in map(json.loads, open(path))}


def taken(name, restarts, transport):
    """Kills ranks, each time after another checkpoint, until the last program runs."""
    subprocess.run(["rm", "-rf", "DIR", "end", "end.jsonl"])
    process = subprocess.Popen(ladder(MESHES, 4, "--restarts", str(restarts)), stdout=open("ladder.out", "w"), stderr=open("ladder.err", "w"),
                               env={**os.environ, "PCRT_TRANSPORT": transport})
    for _ in range((restarts + 1) * (len(MESHES) - 1)):
        seen = newest()
        wait_for(lambda: newest() > seen or process.poll() is not None)
        time.sleep(draw.uniform(0, 0.02))
        ranks = read(f"/proc/{process.pid}/task/{process.pid}/children").split() if process.poll() is None else []
        if ranks:
            os.kill(int(draw.choice(ranks)), signal.SIGKILL)
            wait_for(lambda: not os.path.exists(f"/proc/{int(ranks[-1])}"))
    code, _ = finish(process, 120)
    said = read("ladder.err").decode()
    rungs = re.findall(r"continuing with '.*core-program-(\S+)' on \d ranks?", said)
    good(f"{name}: ends on the last program", code == 0 and rungs == MESHES[1:], f"exit {code}, {rungs}: {said}")
    good(f"{name}: restarts of each", said.count("restarting the run") == restarts * (len(MESHES) - 1), said)
    good(f"{name}: no other program's memory", len(re.findall("continuing from step [0-9]+, which is still in memory", read("ladder.out").decode())) <= 2 * restarts)
    came = losses("end.jsonl")
    good(f"{name}: every step, once", list(came) == list(range(STEPS)))
    good(f"{name}: the trajectory of one program", max(abs(came[step] - whole[step]) / whole[step] for step in came) < 1e-3)
    begun = re.findall(r"continuing from DIR/(step-\d+)", read("ladder.out").decode())[-1]
    succeeds(f"{name}: the last program from {begun}", MESHES[-1], "--load", f"DIR/{begun}", "--steps", STEPS, "--save", "alone")
    good(f"{name}: the same bits", tensors("alone") == tensors("end"))


succeeds("without a break", MESHES[0], "--steps", STEPS, "--metrics", "whole.jsonl", "--save", "whole")
whole = losses("whole.jsonl")
for number in range(20 if LONG else 2):
    taken(f"run {number}", (0, 1)[number % 2] if number < 2 else draw.randrange(3), ("shm", "tcp")[number % 2])

# This run has fewer ranks from the start.
subprocess.run(["rm", "-rf", "DIR"])
code, said = finish(start(ladder(MESHES, 3)))
good("on three ranks", code == 0, said)
succeeds("on two ranks", MESHES[1], "--steps", STEPS, "--save", "two")
good("three ranks are enough for the program of two", tensors("two") == tensors("end"))


def refuses(name, meshes, ranks, *words):
    code, said = finish(start(ladder(meshes, ranks)))
    errors = [line for line in said.splitlines() if "error: " in line]
    good(name, code == 2 and len(errors) == 1 and all(word in errors[0] for word in words), f"exit {code}: {said}")


refuses("another kind of program", ["2-1-1", "1-1-1EVAL"], 2, "does not train the same as", 'its mode is "eval", not "train"')
refuses("another model", ["2-1-1", "1-1-1OTHER"], 2, "does not train the same as", "config.json")
refuses("as many ranks", ["2-1-1", "1-2-1"], 2, "needs 2 ranks, but it must need fewer")
refuses("too few ranks for all", ["2-2-2", "2-1-1"], 1, "every program needs more than 1 ranks")
code, said = finish(start([PC_RUN, "-n", "2", "--or", "/bin/true", program("2-1-1"), "--", "--data", "tokens.bin"]))
good("no program", code == 2 and "'/bin/true' does not answer --info=json" in said, said)
end()
