"""usage: checkpoints.py PC_RUN PROGRAMS

Tests the promises of a checkpoint with the hand-written program: all its files are of one run, it records how it was
made, and saving touches nothing else in its directory. PC_LONG=1: more rounds."""
import glob
import json
import shutil

from harness import *

work_in("checkpoints.work")


def copy(directory, to):
    shutil.copytree(directory, to, symlinks=True)


def lines(path):
    return [json.loads(line) for line in open(path)]


def losses(path):
    return [(line["step"], line["loss"]) for line in lines(path)]


def step_of(directory):
    return json.loads(read(f"{directory}/trajectory.json"))["step"]


# A user's own files, in the directory and next to it, remain unchanged.
succeeds("first save", "1-1-1", "--steps", 5, "--save", "five")
copy("five", "home")
write("home/tokenizer.json", "{}")
write("home/notes/deep/er.txt", "mine")
os.symlink("/nowhere", "home/link")
write("home.tmp/config.json", "a user's own")
write("home.old/config.json", "a user's own, too")
numbers = {path: os.lstat(path).st_ino for path in ["home/tokenizer.json", "home/notes/deep/er.txt", "home/link"]}
succeeds("save among other files", "1-1-1", "--steps", 10, "--save", "home", "--metrics", "ten.jsonl")
good("they are the same files", all(os.lstat(path).st_ino == number for path, number in numbers.items()))
good("their neighbours, too", read("home.tmp/config.json") == b"a user's own" and os.path.exists("home.old/config.json"))
good("nothing is left", sorted(glob.glob("home*")) == ["home", "home.old", "home.tmp"], glob.glob("home*"))
good("it is a new checkpoint", step_of("home") == 10)
ten = tensors("home")

# A model that this program did not write is not replaced.
for name in ["config.json", "model.safetensors"]:
    write(f"published/{name}", read(f"home/{name}"))
    refused(f"a published {name} is in the way", 6, ["published", name, "is not part of a checkpoint"], "1-1-1", "--save", "published")
    good(f"the published {name} is there", read(f"published/{name}") == read(f"home/{name}"))
    shutil.rmtree("published")

# Only one run at a time may save to a directory.
holder = start(command("1-1-1", "--steps", 10**9, "--save", "locked", "--metrics", "holder.jsonl"))
wait_for(lambda: os.path.exists("holder.jsonl") and read("holder.jsonl"))
for transport in ["shm", "tcp"]:
    refused(f"a second run, {transport}", 6, ["cannot save to locked", "process ", "is saving there"], "2-1-1", "--save", "locked",
            "--metrics", "second.jsonl", PCRT_TRANSPORT=transport)
good("it is refused before it trains", not os.path.exists("second.jsonl"))
holder.send_signal(signal.SIGKILL)
finish(holder)
succeeds("the lock of a run that was killed", "1-1-1", "--steps", 2, "--save", "locked")
good("is gone", glob.glob("locked*") == ["locked"], glob.glob("locked*"))
host = {"host": "elsewhere", "pid": 1, "boot": "", "tag": "0123456789abcdef"}
write("locked.lock", json.dumps(host))
refused("the lock of another machine", 6, ["elsewhere", "locked.lock", "remove"], "1-1-1", "--save", "locked")
for text in ["", "mine", "{}", "[1]", "\0" * 5000]:
    write("locked.lock", text)
    refused("a file that is no lock", 6, ["locked.lock is not a lock file of this program"], "1-1-1", "--save", "locked")
    good("it is as it was", read("locked.lock").decode() == text)
os.remove("locked.lock")

# Two to four runs save to one directory at random times. It holds the checkpoint of one of them, or the previous one.
succeeds("what a run saves", "2-1-1", "--steps", 3, "--save", "three")
known = [tensors("three"), ten]
draw = random.Random(int(os.environ.get("PC_SEED", "5")))
for number in range(200 if LONG else 6):
    transport = ["shm", "tcp"][number % 2]
    target = f"together{number}"
    if number % 3:
        copy("home", target)
    runs = []
    for steps in (3, 10, 3, 10)[:2 + number % 3]:
        mesh = "2-1-1" if steps == 3 else "1-1-1"
        runs.append(start(command(mesh, "--steps", steps, "--save", target), PCRT_TRANSPORT=transport if steps == 3 else "self"))
        time.sleep(draw.random() * 0.06)
    if draw.random() < 0.3:
        draw.choice(runs).kill()
    ends = [finish(process) for process in runs]
    good(f"together {number}: end", all(code in (0, 6, -9) for code, _ in ends), ends)
    left = tensors(target)
    good(f"together {number}: one of them", left in known + [None] * any(code == -9 for code, _ in ends), ends)
    # A single run then removes all leftovers.
    succeeds(f"together {number}: goes on", "1-1-1", "--steps", 10, "--save", target)
    good(f"together {number}: nothing is left", glob.glob(target + "*") == [target], glob.glob(target + "*"))
    shutil.rmtree(target)

# Files of two checkpoints together are not a checkpoint.
for name in ["model.safetensors", "training_state.safetensors"]:
    copy("home", "mixed")
    shutil.copy(f"five/{name}", f"mixed/{name}")
    refused(f"{name} of step 5 in a checkpoint of step 10", 9, [f"mixed/{name}", "was changed after it was saved"], "1-1-1", "--load", "mixed")
    shutil.rmtree("mixed")
copy("home", "damaged")
data = bytearray(read("damaged/model.safetensors"))
data[-1] ^= 1
write("damaged/model.safetensors", bytes(data))
for mesh in ["1-1-1", "2-2-2"]:
    refused(f"a flipped bit, {mesh}", 9, ["model.safetensors", "transformer.emb.weight"], mesh, "--load", "damaged")
refused("a flipped bit in --init", 9, ["transformer.emb.weight"], "1-1-1", "--init", "damaged")
write("damaged/model.safetensors", bytes(data) + b"\0")
refused("a longer file", 9, ["model.safetensors"], "1-1-1", "--load", "damaged")

# Another model.
for edit, key in [(("1e-05", "1e-06"), "eps"), (('"eps": 1e-05', '"other": 1'), "norm.eps"), (("32", "31"), "vocab_size"),
                  (('"vocab_size": 32', '"norm": {"eps": 1e-4}, "vocab_size": 32'), "norm.eps")]:
    shutil.rmtree("other", ignore_errors=True)
    copy("home", "other")
    write("other/config.json", read("home/config.json").decode().replace(*edit))
    for flag in ["--load", "--init"]:
        refused(f"another {key}, {flag}", 9, ["other/config.json", f"'{key}'"], "1-1-1", flag, "other")

# The trajectory.
succeeds("without interruption", "1-1-1", "--steps", 20, "--save", "twenty", "--metrics", "twenty.jsonl", "--lr-decay", "cosine",
         "--lr-steps", 20, "--lr-warmup", 2)
curve = ["--lr-decay", "cosine", "--lr-warmup", 2]
succeeds("the first half", "1-1-1", "--steps", 9, "--save", "half", "--metrics", "parts.jsonl", "--lr-steps", 20, *curve)
succeeds("more steps than the checkpoint", "1-1-1", "--steps", 13, "--load", "half", "--metrics", "parts.jsonl", *curve)
succeeds("the rest, on another mesh", "2-2-2", "--steps", 20, "--load", "half", "--save", "rest", "--metrics", "parts.jsonl", *curve)
good("its rate has the first run's horizon", [line["lr"] for line in lines("parts.jsonl")] == [line["lr"] for line in lines("twenty.jsonl")])
good("metrics go on where the checkpoint is", [step for step, _ in losses("parts.jsonl")] == list(range(20)))
good("and the losses", all(abs(a[1] - b[1]) < 1e-5 for a, b in zip(losses("parts.jsonl"), losses("twenty.jsonl"))))
write("poem.txt", "roses are red\n")
refused("metrics that are none", 2, ["--metrics poem.txt"], "1-1-1", "--steps", 20, "--load", "half", *curve, "--metrics", "poem.txt")
good("the poem is there", read("poem.txt") == b"roses are red\n")
for flag, value, name in [("--lr", 0.02, "lr"), ("--seed", 4, "seed"), ("--clip", 1, "clip"), ("--beta1", 0.8, "beta1"), ("--eps", 1e-6, "eps"),
                          ("--weight-decay", 0, "weight-decay"), ("--lr-steps", 30, "lr-steps"), ("--lr-decay", "linear", "lr-decay")]:
    refused(f"another {flag}", 2, [f"{name}: ", f"--change {name}"], "1-1-1", "--steps", 20, "--load", "half", *curve, flag, value)
    succeeds(f"--change {name}", "1-1-1", "--steps", 10, "--load", "half", *curve, flag, value, "--change", name)
refused("a flag that is gone", 2, ["lr-decay: cosine there, none here", "lr-warmup: 2 there, 0 here", "--change lr-warmup,lr-decay"], "1-1-1",
        "--steps", 20, "--load", "half")
refused("--change of what cannot", 2, ["--change takes", "'mesh'"], "1-1-1", "--change", "lr,mesh")
write("more.bin", read("tokens.bin") + b"\1\0")
refused("another data file", 2, ["data: tokens.bin (500 tokens", "more.bin (501 tokens", "--change data"], "1-1-1", "--steps", 20, "--load", "half",
        *curve, "--data", "more.bin")
write("same.bin", read("tokens.bin"))
succeeds("the same data by another name", "1-1-1", "--steps", 20, "--load", "half", *curve, "--data", "same.bin")
succeeds("an evaluation has no trajectory", "1-1-1EVAL", "--load", "half", "--eval", "--steps", 1, "--data", "more.bin")

# Ranks that were started with different flags are refused.
unlike = ["bash", "-c", 'rank=$PCRT_RANK; mine=("$@"); [[ $rank = 1 ]] && mine+=($OTHER); exec "${mine[@]}"', "rank"]
for transport in ["shm", "tcp"]:
    for other, words in [("--lr 0.5", ["--lr: 0.01 on rank 0; 0.5 on rank 1"]), ("--init five", ["--init: not given on rank 0; given on rank 1"]),
                         ("--steps 7", ["--steps: 5 on rank 0; 7 on rank 1"]), ("--data more.bin", ["data: tokens.bin (1000 bytes", "more.bin (1002 bytes"]),
                         ("--load five", ["--load"]), ("--save elsewhere", ["--save"])]:
        arguments = [PC_RUN, "-n", "2", *unlike, program("2-1-1"), "--data", "tokens.bin", "--lr", "0.01", "--steps", "5"]
        code, said = finish(start(arguments, OTHER=other, PCRT_TRANSPORT=transport))
        good(f"rank 1 has {other}, {transport}", code == 2 and all(word in said for word in ["the ranks were started with different settings", *words]), f"{code}: {said}")
    for target in ("five", "home"):
        copy(target, f"init-{transport}-{target}")
    arguments = [PC_RUN, "-n", "2", "bash", "-c", 'set -- "$@" --init $([[ $PCRT_RANK = 0 ]] && echo five || echo home); exec "$@"', "rank",
                 program("2-1-1"), "--data", "tokens.bin", "--steps", "5"]
    code, said = finish(start(arguments, PCRT_TRANSPORT=transport))
    good(f"other weights, {transport}", code == 2 and "weights: five (" in said and "home (" in said, f"{code}: {said}")
    arguments = [PC_RUN, "-n", "2", "bash", "-c", 'exec "$0$([[ $PCRT_RANK = 0 ]] || echo LOOSE)" "$@"', program("2-1-1"), "--data", "tokens.bin"]
    code, said = finish(start(arguments, PCRT_TRANSPORT=transport))
    good(f"another program, {transport}", code == 2 and "program: " in said and "on rank 1" in said, f"{code}: {said}")


def by_itself(rank, port, *flags):
    """A rank as torchrun starts it."""
    return start([program("2-1-1"), "--data", "tokens.bin", "--steps", "5", *flags], RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
                 LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


ranks = [by_itself(0, 29411, "--lr", "0.1"), by_itself(1, 29411, "--lr", "0.2")]
ends = [finish(process) for process in ranks]
good("torchrun's ranks", [code for code, _ in ends] == [2, 2] and "--lr: 0.1 on rank 0; 0.2 on rank 1" in ends[0][1], ends)

# After a signal, all ranks save after the same step. When the run continues, it reaches the bits of an uninterrupted
# one.
cases = [(number, to, transport) for number in ("TERM", "INT", "USR1") for to in ("launcher", "rank") for transport in ("shm", "tcp", "virtual")]
for number, to, transport in cases if LONG else cases[::4]:
    name = f"{number} to {to}, {transport}"
    shutil.rmtree("stopped", ignore_errors=True)
    virtual = transport == "virtual"
    arguments = command("2-1-1", "--steps", 10**9, "--save", "stopped", "--metrics", "stopped.jsonl", launcher=["--virtual"] if virtual else [])
    write("stopped.jsonl", "")
    process = start(arguments, **({} if virtual else {"PCRT_TRANSPORT": transport}))
    wait_for(lambda: read("stopped.jsonl").count(b"\n") > 20)
    target = process.pid
    if to == "rank":
        target = int(read(f"/proc/{process.pid}/task/{process.pid}/children").split()[-1])
    value = getattr(signal, "SIG" + number)
    os.kill(target, value)
    code, said = finish(process)
    good(f"{name}: exit code", code == 128 + value, f"{code}: {said}")
    steps = step_of("stopped") if os.path.exists("stopped/trajectory.json") else 0
    good(f"{name}: saved", steps >= 20 and len(losses("stopped.jsonl")) == steps, steps)
    rest = ["--steps", steps + 50, "--lr-steps", 10**9]
    succeeds(f"{name}: goes on", "2-1-1", *rest, "--load", "stopped", "--save", "stopped", "--metrics", "stopped.jsonl")
    succeeds(f"{name}: without interruption", "2-1-1", *rest, "--save", "whole", "--metrics", "whole.jsonl")
    good(f"{name}: the same bits", tensors("stopped") == tensors("whole"))
    good(f"{name}: the same losses", losses("stopped.jsonl") == losses("whole.jsonl"))
# A stopped rank cannot save. --grace, or a second signal, ends the run nevertheless.
for name, flags, signals in [("--grace", ["--grace", "0.5"], 1), ("a second signal", [], 2)]:
    write("stuck.jsonl", "")
    process = start(command("2-1-1", "--steps", 10**9, "--save", "stuck", "--metrics", "stuck.jsonl", launcher=flags))
    wait_for(lambda: read("stuck.jsonl").count(b"\n") > 20)
    ranks = [int(pid) for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split()]
    os.kill(ranks[1], signal.SIGSTOP)
    begin = time.monotonic()
    for number in range(signals):
        process.terminate()
        time.sleep(1.2 * (signals - number - 1))
    code, said = finish(process)
    good(f"{name} ends a run that cannot save", code == 143 and time.monotonic() - begin < 10, f"{code}: {said}")
    good(f"{name} leaves no rank", not any(os.path.exists(f"/proc/{pid}") for pid in ranks))
process = start(command("2-1-1", "--steps", 10**9, "--metrics", "nothing.jsonl"))
wait_for(lambda: os.path.exists("nothing.jsonl") and read("nothing.jsonl"))
process.terminate()
good("without --save a signal ends it", finish(process)[0] == 143)

# After a step that is not finite, the state is that of the step before.
for mesh in ["1-1-1", "2-2-2"]:
    shutil.rmtree("blown", ignore_errors=True)
    refused(f"not finite, {mesh}", 10, ["is not finite", "the state before this step is saved in blown"], mesh, "--steps", 20, "--load", "five",
            "--lr", "1e38", "--change", "lr", "--save", "blown")
    steps = step_of("blown")
    good(f"its step, {mesh}", 5 < steps < 20, steps)
    succeeds(f"the steps before it, {mesh}", mesh, "--steps", steps, "--load", "five", "--lr", "1e38", "--change", "lr", "--save", "before")
    good(f"the state is intact, {mesh}", tensors("blown") == tensors("before"))

end()
