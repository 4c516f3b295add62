#!/usr/bin/env python3
"""usage: test/EndToEnd/targets.py quick|all|PLAN

Tests uneven numbers of targets that do not count. On every plan a step without any target updates nothing, is counted
and named by file and positions, and the run continues. The loss of an evaluation is the sum over targets divided by
their number, each sample once, whatever the batch and the plan: this file computes it anew from logits."""
import json
import math
import random
import re
import struct
import sys

from cases import GOLDEN, Case, mesh_flags, ranks_of

PLANS = ["1", "1 --microbatches=2", "dp=2", "dp=2 --data-parallel=naive", "dp=2 --zero=1", "dp=2 --zero=3 --microbatches=2", "tp=2", "tp=2 --sequence-parallel",
         "cp=2 --context-parallel=ring", "dp=2,tp=2 --microbatches=2", "pp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=interleaved:2", "pp=2,dp=2 --microbatches=2", "dp=2 --optimizer=sgd"]
QUICK = ["1", "dp=2 --zero=3 --microbatches=2", "tp=2", "pp=2 --microbatches=2"]
B, T, V, N = 4, 16, 96, 50  # N samples: no multiple of any batch
NONE, EVERY = -100, 4
EMPTY = range(2 * B, 3 * B)  # the samples of step 2
DATA = ["--data", "tokens.npy", "--targets", "targets.npy"]


def npy(numbers):
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(numbers)},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + struct.pack(f"<{len(numbers)}i", *numbers)


def held_out(group):
    """Returns which sample of a group is not trained on (splitmix64)."""
    x = group + 0x9E3779B97F4A7C15
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * factor % 2**64
    return group * EVERY + (x ^ x >> 31) % EVERY


class Targets(Case):
    def lines(self, name):
        return [json.loads(line) for line in open(self.work / name)]

    def tensors(self, step):
        """The sums of all tensors of a checkpoint, by file."""
        files = json.load(open(self.work / f"DIR/step-{step:08d}/trajectory.json"))["files"]
        return [files[file].get("tensors") for file in ("model.safetensors", "training_state.safetensors")]

    def losses(self):
        """Returns, for each sample, the sum of the losses of its targets, and their number."""
        self.model("gpt2", N, T)
        self.needs("pc-compile", "model.mlir", "--mode=eval", "-o", "eval")
        self.needs("./eval", *DATA, "--init", GOLDEN / "gpt2", "--dump-logits", "logits")
        data = (self.work / "logits").read_bytes()
        logits = memoryview(data)[-4 * N * T * V:].cast("f")
        result = []
        for sample in range(N):
            total = count = 0
            for at in range(sample * T, (sample + 1) * T):
                row = logits[at * V:(at + 1) * V]
                if self.targets[at] != NONE:
                    total += math.log(sum(map(math.exp, row))) - row[self.targets[at]]
                    count += 1
            result.append((total, count))
        return result

    def mean(self, samples):
        samples = list(samples)
        return sum(self.by_sample[i][0] for i in samples) / sum(self.by_sample[i][1] for i in samples)

    def equal(self, name, found, wanted):
        self.check(name, abs(found - wanted) < 3e-6 * wanted, f"{found}, not {wanted}", f"{found:.6f}")

    def evaluates(self, plan):
        mesh, *flags = plan.split()
        flags = [flag for flag in flags if "zero" not in flag and "optimizer" not in flag]
        everything, apart = self.mean(range(N)), self.mean(map(held_out, range(N // EVERY)))
        for batch in (1, 4, 16):
            if batch % (2 if "dp=2" in mesh else 1) or (batch == 1 and "microbatches" in plan) or (batch == 4 and "pp=2,dp=2" in mesh):
                continue
            self.model("gpt2", batch, T)
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "--mode=eval", "-o", "eval")
            run = ["pc-run", "-n", ranks_of(mesh), "./eval", "--", *DATA, "--init", GOLDEN / "gpt2"]
            for more, wanted in ([], everything), (["--validation", f"1/{EVERY}"], apart), (["--steps", 2], self.mean(range(min(2 * batch, N)))):
                said = self.needs(*run, *more).out
                self.equal(f"{plan}, batch {batch} {' '.join(map(str, more))}", float(re.search(r"mean loss of \d+ targets of \d+ samples: (\S+)", said)[1]), wanted)

    def trains(self, plan):
        mesh, *flags = plan.split()
        self.model("gpt2", B, T)
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "-o", "train")
        run = ["pc-run", "-n", ranks_of(mesh), "./train", "--", *DATA, "--init", GOLDEN / "gpt2"]
        self.needs("rm", "-rf", "DIR", "part")
        said = self.needs(*run, "--steps", 5, "--checkpoint", "DIR", "--every", 1, "--keep", 100, "--metrics", "metrics", "--summary", "summary").err
        first = EMPTY.start * T
        self.check(f"{plan}: named", f"step 2: there is no target to predict (all are -100) in targets.npy at positions {first} to {first + B * T - 1}; the step is skipped" in said, said)
        self.check(f"{plan}: once", said.count("skipped") == 1, said)
        self.check(f"{plan}: counted", json.load(open(self.work / "summary"))["steps_skipped"] == 1)
        found = self.lines("metrics")
        self.check(f"{plan}: in the metrics", [line.get("skipped") for line in found] == [None, None, True, None, None], found)
        self.check(f"{plan}: without a loss", found[2]["loss"] is None and found[2]["targets"] == 0, found[2])
        self.check(f"{plan}: nothing is updated", self.tensors(3) == self.tensors(2) and self.tensors(4)[0] != self.tensors(3)[0])
        self.check(f"{plan}: the norms do not know it", len(json.load(open(self.work / "DIR/step-00000004/trajectory.json"))["norms"]["last"]) == 3)
        self.equal(f"{plan}: the first loss", found[0]["loss"], self.mean(range(B)))
        apart = self.mean(map(held_out, range(N // EVERY)))
        self.needs(*run, "--steps", 1, "--validation", f"1/{EVERY}", "--eval-every", 9, "--metrics", "metrics", "--lr", 0, "--weight-decay", 0)
        for line in self.lines("metrics"):
            if "validation_loss" in line:
                self.equal(f"{plan}: what is held out, at step {line['step']}", line["validation_loss"], apart)
                self.check(f"{plan}: all of it", line["validation_samples"] == N // EVERY, line)

    def rounds(self):
        """In local SGD, a replica without targets skips the step alone, and does not count in the loss."""
        self.model("gpt2", B, T)
        self.needs("pc-compile", "model.mlir", "--mesh", "outer=2", "--local-sgd=outer:2", "-o", "train")
        run = ["pc-run", "-n", 2, "./train", "--", *DATA, "--init", GOLDEN / "gpt2", "--metrics", "metrics", "--summary", "summary"]
        said = self.needs(*run, "--steps", 4).err
        first = EMPTY.start * T  # of step 1, whose replicas have samples 8 to 11 and 12 to 15
        self.check("replicas: named", f"step 1: there is no target to predict (all are -100) in targets.npy at positions {first} to {first + B * T - 1}; on replica 0 the step is skipped" in said, said)
        self.check("replicas: the other one goes on", json.load(open(self.work / "summary"))["steps_skipped"] == 0)
        self.needs(*run, "--steps", 2, "--lr", 0, "--weight-decay", 0)
        self.equal("replicas: the loss is that of the other one", self.lines("metrics")[1]["loss"], self.mean(range(12, 16)))

    def messages(self):
        """What is said of samples: files and positions, in any order, and whether it is an evaluation."""
        self.model("gpt2", B, T)
        self.needs("pc-compile", "model.mlir", "-o", "train")
        nothing = npy([NONE] * (N * T))
        (self.work / "none.npy").write_bytes(nothing)
        run = ["./train", "--init", GOLDEN / "gpt2", "--steps", 2]
        one = ["--data", "tokens.npy", "--targets", "none.npy"]
        self.holds("shuffled", *run, *one, "--shuffle", words=r"step 0: there is no target to predict \(all are -100\) in none.npy at positions \d+ to \d+, \d+ to \d+")
        self.holds("weighted files", *run, "--data", "tokens.npy*0.5,tokens.npy*0.5", "--targets", "none.npy,targets.npy", "--shuffle")
        self.holds("several files", *run, "--data", "tokens.npy*0.5,tokens.npy*0.5", "--targets", "none.npy,none.npy",
                   words=r"step 0: there is no target to predict .* in none.npy at positions 0 to 15, none.npy at positions 0 to 15")
        self.holds("an evaluation", *run, *one, "--validation", "1/4", "--eval-every", 1, code=9,
                   words=r"evaluation after 0 steps: there is no target to predict \(all are -100\) in none.npy at positions \d+ to \d+, .* more samples, so these samples have no loss")
        self.holds("more skipped steps than --skip-most", *run, *one, "--steps", 5, "--skip-most", 0, words="step 4: there is no target to predict")
        self.holds("few samples", *run, "--data", "text:train.few", words=r"--data text:train.few has only 2 training samples of 16 tokens, but a batch needs 4; samples repeat")
        self.needs("pc-compile", "model.mlir", "--mode=eval", "-o", "eval")
        self.holds("nothing to evaluate", "./eval", *one, code=9, words="there is no target to predict .* in none.npy at positions 0 to 799")

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        draw = random.Random(5)
        tokens = [draw.randrange(V) for _ in range(N * T)]
        shares = [draw.random() for _ in range(N)]
        self.targets = [NONE if i // T in EMPTY or draw.random() < shares[i // T] else draw.randrange(V) for i in range(N * T)]
        for name, numbers in ("tokens", tokens), ("targets", self.targets):
            (self.work / f"{name}.npy").write_bytes(npy(numbers))
        (self.work / "train.few").write_bytes(bytes(draw.randrange(V) for _ in range(40)))
        self.by_sample = self.losses()
        for plan in {"quick": QUICK, "all": PLANS}.get(sys.argv[1], sys.argv[1:]):
            self.trains(plan)
            self.evaluates(plan)
        if sys.argv[1] in ("quick", "all"):
            self.rounds()
            self.messages()


case = Targets("targets " + " ".join(sys.argv[1:]))
case.run(case.body)
