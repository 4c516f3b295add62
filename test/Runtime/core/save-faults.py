"""usage: save-faults.py PC_RUN PROGRAMS

Lets each system call of a run that saves, from the lock on, fail with EIO, EMFILE or ENOSPC, or kills the process there
(with strace; PC_LONG=1: every call, else some). The directory must hold the old checkpoint or the new one, a user's
files must be unchanged, and the next run must save and leave no temporary files."""
import collections
import glob
import re
import shutil

from harness import *

work_in("save-faults.work")
CALLS = ("openat,write,pwrite64,pread64,fsync,rename,renameat2,link,mkdir,unlink,rmdir,fallocate,flock,close,getdents64,newfstatat,"
         "chmod,lchown,readlink")
FILES = ["config.json", "model.safetensors", "training_state.safetensors", "trajectory.json"]
OWN = ["DIR/tokenizer.json", "DIR/notes/deep/er.txt", "DIR.tmp/config.json"]


def contents(directory):
    return {name: read(f"{directory}/{name}") for name in FILES if os.path.exists(f"{directory}/{name}")}


def nothing_there():
    for path in glob.glob("DIR*"):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def prepare():
    nothing_there()
    shutil.copytree("old", "DIR")
    for path in OWN:
        write(path, "a user's own")


def save(*strace):
    arguments = [program("1-1-1"), "--data", "tokens.bin", "--steps", "4", "--save", "DIR"]
    return finish(start((["strace", "-f", "-o", "trace", "-e", f"trace={CALLS}", *strace] if strace else []) + arguments, PCRT_THREADS="1"))


def loads():
    """Whether --load finds a checkpoint, wherever it is."""
    return finish(start([program("1-1-1"), "--data", "tokens.bin", "--steps", "4", "--load", "DIR", "--lr-steps", "4", "--change", "lr-steps"]))


succeeds("the old one", "1-1-1", "--steps", 2, "--save", "old", "--seed", "0", "--lr", "0.001", "--clip", "inf")
OLD = contents("old")
prepare()
code, said = save("-q")
good("without a fault", code == 0, said)
NEW = contents("DIR")
good("they differ", all(NEW[name] != OLD[name] for name in FILES[1:]))


def calls_since(mark):
    """The calls of the traced run from the one on that has this in its line: their names, and the how-manieth of its kind each one is."""
    calls, seen, begun = [], collections.Counter(), False
    for line in open("trace"):
        found = re.match(r"\d+ +(\w+)\(", line)
        if not found:
            continue
        seen[found[1]] += 1
        begun = begun or mark in line
        if begun:
            calls.append((found[1], seen[found[1]]))
    return calls


calls = calls_since(".lock-")
good("calls of a save", len(calls) > 80, len(calls))

FAULTS = ["error=EIO", "error=EMFILE", "error=ENOSPC", "signal=KILL"]
cases = [(call, number, fault, exchange) for call, number in calls for fault in FAULTS for exchange in (True, False)
         if exchange or (call != "renameat2" and fault in ("error=EIO", "signal=KILL"))]
if not LONG:
    # Cases around the exchange are always tested.
    cases = [case for i, case in enumerate(cases) if i % 53 == 0 or (case[0] in ("renameat2", "rename") and case[2] == "signal=KILL")]
for call, number, fault, exchange in cases:
    name = f"{call} {number} with {fault}" + ("" if exchange else ", no exchange")
    prepare()
    numbers = [os.lstat(path).st_ino for path in OWN]
    plain = [] if exchange else ["-e", "inject=renameat2:error=EINVAL"]
    code, said = save(*plain, "-e", f"inject={call}:{fault}:when={number}")
    killed = fault == "signal=KILL"
    unread = code == 9 and "cannot read tokens.bin" in said # a call of a step
    good(f"{name}: exit code", code == 0 or unread or code in ((-9, 137) if killed else (6,)), f"{code}: {said}")
    left = contents("DIR")
    if exchange or os.path.exists("DIR"):
        good(f"{name}: old or new", left in (OLD, NEW), {file: len(text) for file, text in left.items()})
        good(f"{name}: as said", (code != 0 or left == NEW) and ("the older checkpoint is unchanged" not in said or left == OLD), said)
        good(f"{name}: a user's files", [os.path.exists(path) and os.lstat(path).st_ino for path in OWN] == numbers, glob.glob("DIR*/**", recursive=True))
    else:
        good(f"{name}: is found", loads()[0] == 0, loads())
    # A run takes over the lock of a process that is gone. A killed run may also leave directories, which the next run
    # removes.
    left = set(glob.glob("DIR*")) - {"DIR", "DIR.tmp", "DIR.lock", *glob.glob("DIR.lock-*")}
    told = "could not be removed" in said or "the older checkpoint is now" in said
    good(f"{name}: what is left is told", killed or told or not left, f"{left} {said}")
    if killed or os.path.exists("DIR.lock"):
        code, said = save()
        good(f"{name}: the next run", code == 0 and contents("DIR") == NEW, f"{code}: {said}")
        good(f"{name}: leaves nothing", set(glob.glob("DIR*")) == {"DIR", "DIR.tmp"} or told, glob.glob("DIR*"))
        good(f"{name}: a user's files again", all(read(path) == b"a user's own" for path in OWN))

# Before the first save there is no old checkpoint. The files of a killed run must not be taken for one.
nothing_there()
save("-q")
for call, number in calls_since('trajectory.json", O_WRONLY')[:None if LONG else 12]:
    name = f"the first one, killed in {call} {number}"
    nothing_there()
    save("-e", f"inject={call}:signal=KILL:when={number}")
    good(f"{name}: none or the new one", contents("DIR") in ({}, NEW), glob.glob("DIR*/**", recursive=True))
    code, said = save()
    good(f"{name}: the next run", code == 0 and contents("DIR") == NEW, f"{code}: {said}")

# A run is killed while it cleans up after a killed one: the next one cleans up after both.
def interrupted():
    prepare()
    save("-e", "inject=renameat2:signal=KILL:when=1")
    good("a run was killed", len(glob.glob("DIR.tmp-*")) == 1 and os.path.exists("DIR.lock"), glob.glob("DIR*"))


interrupted()
save("-q")
cleaning = calls_since(".lock-")
cleaning = cleaning[:[call for call, _ in cleaning].index("mkdir")]
good("it cleans up", {"unlink", "rmdir", "rename"} <= {call for call, _ in cleaning}, cleaning)
for call, number in cleaning if LONG else [cleaning[-1]] + cleaning[::9]:
    interrupted()
    code, said = save("-e", f"inject={call}:signal=KILL:when={number}")
    good(f"killed again in {call} {number}", code in (-9, 137), f"{code}: {said}")
    code, said = save()
    good(f"killed again in {call} {number}: the next run", code == 0 and contents("DIR") == NEW, f"{code}: {said}")
    good(f"killed again in {call} {number}: leaves nothing", set(glob.glob("DIR*")) - set(glob.glob("DIR.lock-*")) == {"DIR", "DIR.tmp"}, glob.glob("DIR*"))

end()
