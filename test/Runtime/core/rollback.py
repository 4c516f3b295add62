"""usage: rollback.py PC_RUN PROGRAMS

Tests --rollback M with the hand-written program: after numbers that are not finite a run continues from a checkpoint at
least M steps back, without the samples between, wherever it is killed; no saved checkpoint is lost."""
import glob
import json
import shutil

from harness import *

work_in("rollback.work")
# The learning rate rises until steps are not finite.
FATAL = ["--lr", "1e7", "--lr-warmup", 10**6, "--steps", 400, "--checkpoint", "DIR", "--every", 2, "--keep", 3]


def steps():
    return sorted(int(path[-8:]) for path in glob.glob("DIR/step-????????"))


def trajectory(path):
    return json.load(open(f"{path}/trajectory.json"))


def at(step):
    return f"DIR/step-{step:08d}"


code, said = run("2-1-1", *FATAL, "--rollback", 6)
ended = max(steps())
end_of = trajectory(at(ended))
good("it ends", code == 10 and "is not finite" in said, f"exit {code}: {said}")
good("marked", "not finite" in end_of["ended"]["why"] and end_of["ended"]["samples"] in (8 * ended, 8 * (ended + 1)), end_of.get("ended"))
back = max(step for step in steps() if step <= ended - 6)
good("one far enough back stays beside the newest three", len(steps()) == 4 and back == min(steps()), steps())
good("others are not marked", not any("ended" in trajectory(at(step)) for step in steps()[:-1]))
shutil.copytree("DIR", "before")
newer = {step: tensors(at(step)) for step in steps() if step > back}

# The run continues with a harmless learning rate. The samples in between are left out.
CALM = ["--lr", "0.01", "--change", "lr,lr-warmup", "--steps", back + 9, "--checkpoint", "DIR", "--every", 2, "--keep", 3, "--rollback", 6,
        "--metrics", "calm.jsonl"]
write("calm.jsonl", "".join(json.dumps({"step": step}).replace("}", ", }") + "\n" for step in range(ended)))
code, said = run("2-1-1", *CALM)
good("goes back", code == 0, f"exit {code}: {said}")
last = trajectory(at(back + 9))
good("the samples between are left out", last["skipped"] == [[8 * back, end_of["ended"]["samples"]]], last["skipped"])
good("and no others", last["samples"] == end_of["ended"]["samples"] + 9 * 8, last["samples"])
aside = sorted(glob.glob("DIR/step-*.rolled-back-*"))
good("what is newer is set aside", {int(path[9:17]): tensors(path) for path in aside} == newer, aside)
good("the curve", [json.loads(line)["step"] for line in read("calm.jsonl").decode().splitlines()[back:]] == list(range(back, back + 9)))
whole = tensors(at(back + 9))

# A start that is killed does a part of the rollback, and the next start does the rest.
def from_before(changed, renamed):
    """Restores DIR as it was before. Replaces the older checkpoint's trajectory by `changed`, if given, and sets
    `renamed` of the newer checkpoints aside."""
    shutil.rmtree("DIR")
    shutil.copytree("before", "DIR")
    if changed:
        write(f"{at(back)}/trajectory.json", changed)
    for step in sorted(newer)[:renamed]:
        os.rename(at(step), at(step) + ".rolled-back-x")


def calm(steps):
    return [steps if flag == back + 9 else flag for flag in CALM[:-2]]


from_before(None, 0)
succeeds("goes back, and makes no step", "2-1-1", *calm(back))
changed = read(f"{at(back)}/trajectory.json")
good("where it goes on from", json.loads(changed)["skipped"] == [[8 * back, end_of["ended"]["samples"]]] and steps() == [back], steps())
for renamed in range(len(newer)):
    from_before(changed, renamed)
    succeeds(f"killed after {renamed} of its renames", "2-1-1", *calm(back + 9))
    good(f"killed after {renamed} of its renames: the same bits", tensors(at(back + 9)) == whole)

# There is no rollback without the flag, or if no checkpoint is old enough.
from_before(None, 0)
refused("nothing is far enough back", 2, ["no checkpoint in DIR is 100 steps before it", "--rollback"], "2-1-1", *calm(back + 9), "--rollback", 100)
shutil.rmtree("DIR")
shutil.copytree("before", "DIR")
refused("without the flag it ends there again", 10, [f"step {ended}: ", "not finite"], "2-1-1", *calm(ended + 1)[:-2], "--rollback", 0)
refused("without --checkpoint", 2, ["--rollback needs --checkpoint DIR"], "2-1-1", "--rollback", 3)

# The launcher restarts the run, which rolls back. The same learning rate ends it again, with other samples.
shutil.rmtree("DIR")
code, said = run("2-1-1", *FATAL, "--rollback", 6, launcher=["--restarts", "2"])
good("started again twice", code == 10 and said.count("restarting the run") == 2, f"exit {code}: {said}")
good("other samples each time", len(glob.glob("DIR/step-*.rolled-back-*")) >= 2 and trajectory(at(max(steps())))["skipped"], glob.glob("DIR/*"))
end()
