"""usage: series.py PC_RUN PROGRAMS

Tests --checkpoint with the hand-written program: one command line starts a run and restarts it, until its end is that
of an uninterrupted run. PC_LONG=1: more rounds."""
import glob
import json
import shutil

from harness import *

work_in("series.work")
STEPS = 6000 if LONG else 3000
SERIES = ["--steps", STEPS, "--checkpoint", "DIR", "--every", 200, "--keep", 3]


def steps(directory="DIR"):
    return sorted(int(path[-8:]) for path in glob.glob(f"{directory}/step-????????"))


def path(step, directory="DIR"):
    return f"{directory}/step-{step:08d}"


def flip(file):
    """One bit of the last value."""
    content = bytearray(read(file))
    content[-1] ^= 1
    write(file, bytes(content))


succeeds("without a break", "1-1-1", "--steps", STEPS, "--save", "whole")
whole = tensors("whole")
succeeds("with checkpoints", "1-1-1", *SERIES)
good("the newest three", steps() == [STEPS - 400, STEPS - 200, STEPS], steps())
good("latest", read("DIR/latest") == b"step-%08d\n" % STEPS)
good("the same bits", tensors(path(STEPS)) == whole)
before = os.stat(path(STEPS)).st_ino
succeeds("once more", "1-1-1", *SERIES)
good("changes nothing", os.stat(path(STEPS)).st_ino == before)
good("nothing is left", sorted(glob.glob("DIR*") + glob.glob("DIR/*")) == ["DIR", "DIR/latest", *map(path, steps())], glob.glob("DIR/*"))

# A run may be killed before its lock has a name, or while it removes a checkpoint. The next run removes what it left;
# other files stay.
shutil.copytree(path(STEPS), path(200) + ".removed-0123456789abcdef")
os.remove(path(200) + ".removed-0123456789abcdef/trajectory.json")
for left, text in (("DIR.lock-00000000000000aa", b""), (path(STEPS) + ".lock-00000000000000bb", b""), (path(STEPS) + ".lock-00000000000000cc", b"mine"), (path(STEPS) + ".lock-notes", b"")):
    write(left, text)
succeeds("after such runs", "1-1-1", *SERIES)
good("files of others stay", sorted(glob.glob("DIR*") + glob.glob("DIR/*")) == sorted(["DIR", "DIR/latest", *map(path, steps()), path(STEPS) + ".lock-00000000000000cc", path(STEPS) + ".lock-notes"]),
     glob.glob("DIR*") + glob.glob("DIR/*"))
write(path(STEPS - 400) + "/notes", b"mine")
shutil.rmtree(path(STEPS))
succeeds("the last steps again", "1-1-1", "--steps", STEPS + 200, *SERIES[2:])
good("a note in a checkpoint that goes stays", os.listdir(path(STEPS - 400)) == ["notes"], os.listdir(path(STEPS - 400)))

# Runs on two ranks are killed at random times, and started again with the same command line.
draw = random.Random(int(os.environ.get("PC_SEED", "7")))
succeeds("two ranks without a break", "2-1-1", "--steps", STEPS, "--save", "whole2")
for number in range(20 if LONG else 2):
    shutil.rmtree("DIR")
    kills, code = 0, -1
    while code != 0 and kills < 200:
        process = start(command("2-1-1", *SERIES, "--metrics", "all.jsonl"), PCRT_TRANSPORT=["shm", "tcp"][number % 2])
        time.sleep(draw.uniform(0, 0.5 + kills * 0.1))
        ranks = [int(pid) for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split()] if process.poll() is None else []
        hit = draw.choice([*ranks, process.pid])
        if process.poll() is None and kills < (8 if LONG else 4):
            try:
                os.kill(hit, signal.SIGKILL)
            except ProcessLookupError:
                pass
            kills += 1
        code, said = finish(process)
        for rank in ranks:  # of a launcher that was killed
            wait_for(lambda: not os.path.exists(f"/proc/{rank}") or b"Z" in read(f"/proc/{rank}/stat").split(b")")[-1][:3])
    good(f"round {number}: the same bits", code == 0 and tensors(path(STEPS)) == tensors("whole2"), said)
    good(f"round {number}: one line a step", [json.loads(line)["step"] for line in open("all.jsonl")] == list(range(STEPS)))
    good(f"round {number}: nothing is left", sorted(glob.glob("DIR*") + glob.glob("DIR/*")) == ["DIR", "DIR/latest", *map(path, steps())],
         glob.glob("DIR*") + glob.glob("DIR/*"))

# The launcher starts it again.
shutil.rmtree("DIR")
for transport in ["shm", "tcp"]:
    process = start(command("2-1-1", *SERIES, "--metrics", f"{transport}.jsonl", launcher=["--restarts", "3"]), PCRT_TRANSPORT=transport)
    for size in [15 * STEPS, 50 * STEPS, 85 * STEPS]:
        wait_for(lambda: os.path.exists(f"{transport}.jsonl") and len(read(f"{transport}.jsonl")) > size or process.poll() is not None)
        if process.poll() is None:
            os.kill(int(read(f"/proc/{process.pid}/task/{process.pid}/children").split()[draw.randrange(2)]), signal.SIGKILL)
    code, said = finish(process)
    good(f"{transport}: started again", code == 0 and "restarting the run (1 of 3)" in said and tensors(path(STEPS)) == tensors("whole2"), f"exit {code}: {said}")
    shutil.rmtree("DIR")
process = start(command("2-1-1", "--steps", 10**9, "--metrics", "never.jsonl", launcher=["--restarts", "0"]))
wait_for(lambda: os.path.exists("never.jsonl") and read("never.jsonl"))
os.kill(int(read(f"/proc/{process.pid}/task/{process.pid}/children").split()[1]), signal.SIGKILL)
code, said = finish(process)
good("without --restarts it ends", code == 7 and "restarting the run" not in said, f"exit {code}: {said}")
refused("a failure that would come again", 9, ["cannot read"], "2-1-1", "--data", "nowhere.bin", launcher=["--restarts", "3"])

# A signal makes the run save; the next start continues.
os.mkdir("DIR")
shutil.rmtree("DIR")
for name, number in [("SIGTERM", 15), ("SIGUSR1", 10), ("SIGINT", 2)]:
    process = start(command("1-1-1", "--steps", 10**9, "--lr-steps", STEPS, "--checkpoint", "DIR", "--metrics", f"{name}.jsonl"))
    wait_for(lambda: os.path.exists(f"{name}.jsonl") and len(read(f"{name}.jsonl")) > 1000)
    process.send_signal(number)
    code, said = finish(process)
    good(f"{name} saves", code == 128 + number and steps(), f"exit {code}: {said}")
good("each goes on", len(steps()) == 2, steps())

# A damaged checkpoint is set aside, and the run continues from the one before. A user's files stay.
shutil.rmtree("DIR")
for file in ["model.safetensors", "training_state.safetensors", "trajectory.json"]:
    succeeds("checkpoints", "1-1-1", *SERIES)
    write(f"{path(STEPS - 400)}/notes.txt", "mine")
    flip(f"{path(STEPS)}/{file}")
    code, said = run("1-1-1", *SERIES)
    good(f"{file} is damaged", code == 0 and "warning: " in said and "trying an older checkpoint" in said, said)
    good("it is kept", len(glob.glob(f"{path(STEPS)}.damaged-*")) == 1)
    good("the same bits again", tensors(path(STEPS)) == whole)
    succeeds("a longer run", "1-1-1", *SERIES, "--steps", STEPS + 400, "--lr-steps", STEPS)
    good("a user's file outlives its checkpoint", os.listdir(path(STEPS - 400)) == ["notes.txt"], os.listdir(path(STEPS - 400)))
    shutil.rmtree("DIR")
succeeds("checkpoints", "1-1-1", *SERIES)
for step in steps():
    flip(f"{path(step)}/model.safetensors")
refused("all are damaged", 9, ["tensor"], "1-1-1", *SERIES)
shutil.rmtree("DIR")

# --load reads the newest checkpoint. Another trajectory is refused, and so is a second run at the same time.
succeeds("checkpoints", "1-1-1", *SERIES)
succeeds("--load of the directory", "2-1-1", "--steps", STEPS + 1, "--load", "DIR", "--save", "one")
good("the newest", json.loads(read("one/trajectory.json"))["step"] == STEPS + 1)
refused("another rate", 2, ["lr"], "1-1-1", *SERIES, "--lr", "0.5")
holder = start(command("1-1-1", "--steps", 10**9, "--checkpoint", "busy", "--metrics", "holder.jsonl"))
wait_for(lambda: os.path.exists("holder.jsonl") and read("holder.jsonl"))
refused("a second run", 6, ["cannot save to busy", "is saving there"], "1-1-1", "--steps", 5, "--checkpoint", "busy")
holder.send_signal(signal.SIGTERM)
finish(holder)

# If the disk is full, older checkpoints stay. The run ends when it could not save twice.
shutil.rmtree("DIR")
succeeds("checkpoints", "1-1-1", "--steps", 400, "--lr-steps", STEPS, "--checkpoint", "DIR", "--every", 200, "--keep", 2)
limited = ["bash", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$@"', "limited"]
code, said = finish(start(limited + [program("1-1-1"), *command("1-1-1", *SERIES)[5:]]))
good("no room", code == 6 and "the run continues" in said and "too large" in said, f"exit {code}: {said}")
good("the newest one is as it was", steps() == [400], steps())
for flags, words in [(["--clip", "0"], "leave out the flag to turn clipping off"), (["--every", "5"], "--every needs --checkpoint"), (["--checkpoint", "DIR", "--every", "5x"], "minutes"),
                     (["--checkpoint", "DIR", "--every", "0"], "at least 1"), (["--checkpoint", "DIR", "--keep", "0"], "at least 1")]:
    refused(" ".join(flags), 2, [words], "1-1-1", *flags)
end()
