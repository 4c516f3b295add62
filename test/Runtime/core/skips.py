"""usage: skips.py PC_RUN PROGRAMS

Tests --skip-spikes and --skip-most. This file computes anew from the norms which steps must be skipped. Skipped steps
must change nothing, and runs that are interrupted and continued must skip the same steps."""
import json
import math
import struct

from harness import *

work_in("skips.work")
STEPS, Z = 60, 1.0


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def next_f32(x):
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", x))[0] + 1))[0]


def lines(path):
    return [json.loads(line) for line in open(path)]


def expected(norms, z):
    """Which steps are skipped."""
    kept, result = [], []
    for norm in norms:
        last, limit = kept[-128:], math.inf
        if len(last) >= 16:
            mean = sum(last) / len(last)
            limit = next_f32(f32(mean + z * math.sqrt(sum((x - mean) ** 2 for x in last) / len(last))))
        result.append(norm is None or not norm < limit)
        if not result[-1]:
            kept.append(norm)
    return result


def skipped(path):
    return [line.get("skipped", False) for line in lines(path)]


rate = ["--lr", 0.2]  # norms go up and down
flags = [*rate, "--skip-spikes", Z, "--skip-most", 30]
succeeds("a run with skips", "1-1-1", "--steps", STEPS, *flags, "--metrics", "whole.jsonl", "--save", "whole", "--summary", "whole.json",
         "--checkpoint", "all", "--every", 1, "--keep", 1000)
norms = [f32(line["grad_norm"]) for line in lines("whole.jsonl")]
good("the steps that ought to be", skipped("whole.jsonl") == expected(norms, Z), skipped("whole.jsonl"))
good("some are skipped", 2 <= sum(skipped("whole.jsonl")) < 30, sum(skipped("whole.jsonl")))
good("and counted", json.load(open("whole.json"))["steps_skipped"] == sum(skipped("whole.jsonl")))
trajectories = [json.load(open(f"all/step-{step:08d}/trajectory.json")) for step in range(1, STEPS + 1)]
state = [{name: file.get("tensors") for name, file in trajectory["files"].items()} for trajectory in trajectories]
good("a skipped step changes nothing, the others do", all((before == after) == was for before, after, was in
                                                           zip(state, state[1:], skipped("whole.jsonl")[1:])))

# A run that is interrupted anywhere, and continues on any mesh, skips the same steps. If the mesh is the same, the bits
# are equal.
first = skipped("whole.jsonl").index(True)
for at in [first, first + 1, 45]:
    succeeds(f"until {at}", "1-1-1", "--steps", at, *flags, "--save", "part", "--metrics", "part.jsonl")
    succeeds(f"from {at} on", "1-1-1", "--load", "part", "--steps", STEPS, *flags, "--save", "part", "--metrics", "part.jsonl")
    good(f"broken off at {at}: the same bits", tensors("part") == tensors("whole"))
    good(f"broken off at {at}: the same steps", skipped("part.jsonl") == skipped("whole.jsonl"))
succeeds("four ranks", "2-2-2", "--steps", STEPS, *flags, "--metrics", "four.jsonl")
good("four ranks: the steps that ought to be", skipped("four.jsonl") == expected([f32(line["grad_norm"]) for line in lines("four.jsonl")], Z))
refused("another Z", 2, ["skip-spikes: 1 there, 6 here", "--change skip-spikes"], "1-1-1", "--load", "part", "--steps", STEPS + 1, *rate, "--skip-spikes", 6)

# If too many steps in a row are skipped, the run saves the state before the last one, and can continue from it.
runs = "".join("s" if was else "." for was in skipped("whole.jsonl"))
longest = max(map(len, runs.split(".")))
most = longest - 1
end_at = runs.index("s" * longest) + most
code, said = run("1-1-1", "--steps", STEPS, *rate, "--skip-spikes", Z, "--skip-most", most, "--save", "ended")
good("too many in a row", code == 10 and f"step {end_at}: the gradient norm" in said and "is saved in ended" in said, f"exit {code}: {said}")
good("saved at", json.load(open("ended/trajectory.json"))["step"] == end_at)
succeeds("and goes on", "1-1-1", "--load", "ended", "--steps", STEPS, *flags, "--save", "ended")
good("to the same end", tensors("ended") == tensors("whole"))

# Steps whose norms are not finite are skipped.
huge = ["--lr", "1e38", "--change", "lr", "--load", "finite", "--metrics", "finite.jsonl"]
succeeds("a good state", "2-1-1", "--steps", 4, "--save", "finite", "--metrics", "finite.jsonl")
code, said = run("2-1-1", *huge, "--steps", 40, "--skip-most", 3, "--save", "bad")
good("four in a row", code == 10 and said.count("the step is skipped") == 3 and "and the 3 steps before were skipped" in said, f"exit {code}: {said}")
code, said = run("2-1-1", *huge, "--steps", 40, "--save", "bad")
good("none is skipped without the flag", code == 10 and "the step is skipped" not in said, f"exit {code}: {said}")
good("what is not finite is null", all(line["loss"] is not None or line.get("skipped") for line in lines("finite.jsonl")))
refused("no number", 2, ["--skip-spikes takes a number"], "1-1-1", "--skip-spikes", "often")
end()
