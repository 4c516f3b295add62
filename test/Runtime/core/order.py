"""usage: order.py PC_RUN PROGRAMS

Tests --shuffle, --validation and --data of several files. The order of samples must be that of a sequential loader,
which this file implements anew; a run that resumes on another mesh must read on at the sample where the first one
ended. PC_LONG=1: more cases."""
import itertools
import json

from harness import *

work_in("order.work")
MASK = 2**64 - 1
draw = random.Random(int(os.environ.get("PC_SEED", "11")))


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def permuted(n, key):
    """The numbers below n in their new order: all of the power of two are mapped, those beyond n again until they fit."""
    half = ((n - 1).bit_length() + 1) // 2
    def once(i):
        left, right = i >> half, i & (1 << half) - 1
        for number in range(4):
            left, right = right, left ^ mix(mix(key + number & MASK) ^ right) & (1 << half) - 1
        return left << half | right
    def walk(i):
        i = once(i)
        while i >= n:
            i = once(i)
        return i
    return [walk(i) for i in range(n)] if n > 1 else [0]


def windows(sizes, every, held):
    """(file, window) of a source, in order: of every whole group of `every` one is held out."""
    for file, size in enumerate(sizes):
        groups = size // every if every else 0
        for window in range(size):
            group = window // every if every else 0
            is_held = group < groups and window == group * every + mix(group) % every
            if is_held == held:
                yield file, window


def epochs(source, sizes, shuffle, seed, every, held):
    """All samples of a source, epoch by epoch, by a loader that walks."""
    own = list(windows(sizes, every, held))
    for epoch in itertools.count():
        order = permuted(len(own), (mix((mix(seed) + source) & MASK) + 4 * epoch) & MASK) if shuffle and not held else range(len(own))
        yield from (own[i] for i in order)


def turns(weights):
    given = [0] * len(weights)
    for turn in range(1000):
        behind = [weight / sum(weights) * (turn + 1) - count for weight, count in zip(weights, given)]
        source = behind.index(max(behind))
        given[source] += 1
        yield source


def order(weights, sizes, shuffle, seed, every, held, begin, end):
    arguments = [os.path.join(PROGRAMS, "core-order"), *(["heldout"] if held else []), int(shuffle), seed, every, begin, end]
    arguments += [f"{weight}:{','.join(map(str, files))}" for weight, files in zip(weights, sizes)]
    said = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, check=True).stdout
    return [tuple(map(int, line.split())) for line in said.splitlines()]


for number in range(300 if LONG else 40):
    count = draw.randint(1, 3)
    every = draw.choice([0, 0, 2, 3, 10])
    held = every > 0 and draw.random() < 0.3
    sizes = [[draw.choice([1, 2, 5, 30, draw.randint(1, 700)]) for _ in range(draw.randint(1, 3))] for _ in range(count)]
    for files in sizes:
        files[0] = max(files[0], 2 * every)
    weights = [round(draw.uniform(0.05, 1), 3) for _ in range(count)]
    shuffle, seed = draw.random() < 0.7, draw.choice([0, 1, 7, 2**63])
    total = 3000
    got = order(weights, sizes, shuffle, seed, every, held, 0, total)
    walkers = [epochs(source, files, shuffle, seed, every, held) for source, files in enumerate(sizes)]
    want = [(source, *next(walkers[source])) for source in itertools.islice(itertools.cycle(turns(weights)), total)]
    case = f"weights {weights}, windows {sizes}, shuffle {shuffle}, seed {seed}, 1/{every} held out {held}"
    good(f"as a walking loader: {case}", got == want)
    middle = draw.randrange(total)
    good(f"from the middle: {case}", order(weights, sizes, shuffle, seed, every, held, middle, total) == want[middle:])
    for source, files in enumerate(sizes):
        own, mine = list(windows(files, every, held)), [place[1:] for place in got if place[0] == source]
        for epoch in range(len(mine) // len(own)):
            good(f"every window once: {case}", sorted(mine[epoch * len(own):(epoch + 1) * len(own)]) == own)
    shares = [sum(place[0] == source for place in got[1000:2000]) for source in range(count)]
    good(f"shares: {case}", all(abs(share - 1000 * weight / sum(weights)) <= 1 for share, weight in zip(shares, weights)), shares)

# Whole runs read the same samples if they are interrupted, if the mesh changes, and if a pattern names the files.
for name, tokens in [("a", 4001), ("b1", 900), ("b2", 1200)]:
    write(f"{name}.bin", b"".join(struct.pack("<H", draw.randrange(32)) for _ in range(tokens)))
SHUFFLED = ["--shuffle", "--validation", "1/10", "--data", "a.bin*0.7,b?.bin*0.3"]
succeeds("in one go", "1-1-1", "--steps", 30, *SHUFFLED, "--save", "whole", "--metrics", "whole.jsonl")
succeeds("a half", "1-1-1", "--steps", 13, "--lr-steps", 30, *SHUFFLED, "--save", "half")
succeeds("the rest", "1-1-1", "--steps", 30, *SHUFFLED, "--load", "half", "--save", "rest")
good("the same bits", tensors("rest") == tensors("whole"))
for mesh in ["2-1-1", "1-2-1", "1-1-2", "2-2-2"]:
    succeeds(f"on {mesh}", mesh, "--steps", 30, *SHUFFLED, "--metrics", "other.jsonl")
    both = [[json.loads(line)["loss"] for line in open(file)] for file in ("whole.jsonl", "other.jsonl")]
    good(f"{mesh} reads the same", all(abs(a - b) < 1e-4 for a, b in zip(*both)), both)
succeeds("files as one", "1-1-1", "--steps", 3, "--data", "b1.bin,b2.bin", "--save", "one")
refused("other weights", 2, ["weight 0.7", "weight 0.6"], "1-1-1", "--steps", 30, *SHUFFLED, "--data", "a.bin*0.6,b?.bin*0.4", "--load", "half")
refused("another order", 2, ["shuffle: on there, off here"], "1-1-1", "--steps", 30, *SHUFFLED[1:], "--load", "half")
refused("no such file", 9, ["no file matches"], "1-1-1", "--data", "c*.bin,a.bin")
refused("one weight of two", 2, ["either all files or none must have a weight"], "1-1-1", "--data", "a.bin*2,b1.bin")
refused("no weight at all", 2, ["above 0"], "1-1-1", "--data", "a.bin*0,b1.bin*1")
refused("next to nothing", 2, ["thousandth"], "1-1-1", "--data", "a.bin*1e9,b1.bin*1")
refused("too small", 9, ["fewer than"], "1-1-1", "--data", "a.bin,tiny.bin") if not write("tiny.bin", b"\1\0\2\0") else None
for wrong in ["1000", "1/1", "1/x", "2/3"]:
    refused(f"--validation {wrong}", 2, ["--validation"], "1-1-1", "--validation", wrong)
succeeds("only what is held out", "1-1-1EVAL", "--steps", 3, *SHUFFLED[1:])
end()
