"""usage: validation.py PC_RUN PROGRAMS

Tests --eval-every and --rollback with the hand-written program. Losses of held-out samples must be those that a program
of --mode=eval finds in the checkpoints. Runs with and without evaluations, interrupted anywhere, must make the same
steps."""
import glob
import json
import shutil

from harness import *

work_in("validation.work")
draw = random.Random(2)
write("tokens.bin", b"".join(struct.pack("<H", draw.randrange(32)) for _ in range(4000)))  # 499 windows, 99 of them held out: 12 batches, and 3 windows


def validations(path):
    return [line for line in map(json.loads, open(path)) if "validation_loss" in line]


def losses(path):
    return [line["validation_loss"] for line in validations(path)]


def steps_of(path):
    return [[line["step"], line["loss"]] for line in map(json.loads, open(path)) if "loss" in line]


SPLIT = ["--shuffle", "--validation", "1/5"]
EVERY = [*SPLIT, "--eval-every", 4]
succeeds("without", "1-1-1", *SPLIT, "--steps", 10, "--save", "without", "--metrics", "without.jsonl")
succeeds("with", "1-1-1", *EVERY, "--steps", 10, "--save", "with", "--metrics", "with.jsonl", "--checkpoint", "all", "--every", 1, "--keep", 100,
         "--tensorboard", "events")
good("the same bits", tensors("with") == tensors("without") and steps_of("with.jsonl") == steps_of("without.jsonl"))
good("when", [line["step"] for line in validations("with.jsonl")] == [0, 4, 8, 10], validations("with.jsonl"))
good("all that is held out", {line["validation_samples"] for line in validations("with.jsonl")} == {99})
good("a curve", b"validation/loss" in read(glob.glob("events/*")[0]))


def evaluation(*flags):
    """Returns the output of a program of --mode=eval: the mean, and the number of samples."""
    done = subprocess.run([program("1-1-1EVAL"), *map(str, flags)], capture_output=True, text=True)
    words = done.stdout.split()
    return (float(words[-1]), int(words[-3])) if done.returncode == 0 else (0, done.stderr)


for step, loss in zip([4, 8, 10], losses("with.jsonl")[1:]):
    mean, samples = evaluation("--data", "tokens.bin", *SPLIT, "--init", f"all/step-{step:08d}")
    good(f"step {step}: what a program of --mode=eval says", samples == 99 and abs(mean - loss) < 2e-6, f"{mean} {loss} {samples}")
# Each sample is read once. 13 samples are one batch of eight and five others. The mean over the others comes from a
# file that repeats them eight times, so that all batches are whole.
first, rest = (read("tokens.bin")[at:to] for at, to in ((0, 128), (128, 208)))
write("whole.bin", first + rest + b"\0\0")
write("first.bin", first + rest[:2])
write("rest.bin", rest * 8 + rest[:2])
write("one.bin", rest[64:] + b"\0\0")
write("one-wraps.bin", rest[64:] + rest[:2])
means = {name: evaluation("--data", f"{name}.bin") for name in ("whole", "first", "rest", "one", "one-wraps")}
good("how many", [samples for _, samples in means.values()] == [13, 8, 40, 1, 1], means)
ofRest = means["rest"][0] * 5 + means["one"][0] - means["one-wraps"][0]  # whose last target is another one
good("each once", abs(means["whole"][0] - (means["first"][0] * 8 + ofRest) / 13) < 2e-6, means)
good("no more than there are", evaluation("--data", "whole.bin", "--steps", 50) == means["whole"])
good("the first batches", evaluation("--data", "whole.bin", "--steps", 1)[1] == 8)
write("short.bin", rest[:10])
good("less than a sample", "there is nothing to evaluate" in str(evaluation("--data", "short.bin")[1]))
for at in (3, 4, 5, 8):
    subprocess.run(["rm", "-rf", "part", "part.jsonl"])
    succeeds(f"until {at}", "1-1-1", *EVERY, "--steps", at, "--save", "part", "--metrics", "part.jsonl")
    succeeds(f"from {at} on", "1-1-1", *EVERY, "--load", "part", "--steps", 10, "--save", "part", "--metrics", "part.jsonl")
    good(f"broken off at {at}: the same bits", tensors("part") == tensors("with"))
    good(f"broken off at {at}: the same curves", losses("part.jsonl") == losses("with.jsonl") and steps_of("part.jsonl") == steps_of("with.jsonl"))
for mesh in ("2-1-1", "1-2-1", "1-1-2", "2-2-2"):
    succeeds(f"{mesh} without", mesh, *SPLIT, "--steps", 10, "--save", f"w{mesh}", "--summary", "without.json")
    succeeds(f"{mesh} with", mesh, *EVERY, "--steps", 10, "--save", mesh, "--metrics", "mesh.jsonl", "--summary", "with.json",
             "--trace", "trace.json")
    good(f"{mesh}: the same bits", tensors(mesh) == tensors(f"w{mesh}"))
    good(f"{mesh}: the same losses", all(abs(a - b) < 1e-5 * a for a, b in zip(losses("mesh.jsonl"), losses("with.jsonl"), strict=True)))
    traffic = [[rank["traffic"] for rank in json.load(open(file))["per_rank"]] for file in ("with.json", "without.json")]
    good(f"{mesh}: its traffic does not count as a step's", traffic[0] == traffic[1], traffic)
succeeds("a few batches", "1-1-1", *EVERY, "--eval-batches", 3, "--steps", 4, "--metrics", "few.jsonl")
good("so many", {line["validation_samples"] for line in validations("few.jsonl")} == {24})
refused("without a split", 2, ["--eval-every needs --validation 1/N"], "1-1-1", "--eval-every", 4)
refused("without --eval-every", 2, ["--eval-batches needs --eval-every N"], "1-1-1", *SPLIT, "--eval-batches", 4)
refused("a program that only evaluates", 2, ["--eval-every needs a program compiled with --mode=train"], "1-1-1EVAL", *EVERY)

# A signal ends a run after a step, or in the middle of an evaluation. A run that is killed and started again writes the
# same curves.
LONG_RUN = [*SPLIT, "--eval-every", 40, "--steps", 800, "--metrics", "kill.jsonl"]
succeeds("a long one", "2-1-1", *LONG_RUN, "--save", "long")
curves = losses("kill.jsonl"), steps_of("kill.jsonl")
for number, (kind, launcher, more) in enumerate([(signal.SIGKILL, ["--restarts", "100"], []), (signal.SIGKILL, ["--restarts", "100"], ["--checkpoint", "DIR", "--every", 100]),
                                                 (signal.SIGTERM, [], ["--checkpoint", "DIR", "--every", 300])]):
    subprocess.run(["rm", "-rf", "DIR", "end", "kill.jsonl"])
    for attempt in range(6):
        process = start(command("2-1-1", *LONG_RUN, "--save", "end", *more, launcher=launcher), PCRT_TRANSPORT=["shm", "tcp"][number % 2])
        for _ in range(3):
            time.sleep(draw.uniform(0, 0.3))
            ranks = read(f"/proc/{process.pid}/task/{process.pid}/children").split() if process.poll() is None else []
            if attempt < 3 and len(ranks) == 2:
                os.kill(int(draw.choice(ranks)), kind)
        code, said = finish(process)
        if code == 0:
            break
    good(f"{kind.name}, {number}: the same bits", code == 0 and tensors("end") == tensors("long"), said)
    good(f"{kind.name}, {number}: the same curves", (losses("kill.jsonl"), steps_of("kill.jsonl")) == curves)
end()
