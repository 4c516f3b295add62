#!/usr/bin/env python3
"""usage: test/EndToEnd/checkpoints.py plans|breaks quick|all

plans: a checkpoint that one plan saves, and another plan loads and saves again, holds the same state bit for bit. all:
every ordered pair of twelve plans. quick: five of them in a row; each continues from the checkpoint of the previous
one, and the first one from that of the last. breaks: on each of these plans a run that is interrupted ends like an
uninterrupted one: the same parameters, states, losses, rates, skipped steps and validation losses, bit by bit. The run
uses everything that depends on the step: warm-up, decay, a drawn order of samples through several epochs of two files
with shares, samples held out for validation, skipped spikes, clipping and dropout. quick: on one plan."""
import json
import random
import sys

from cases import Case, mesh_flags, ranks_of

PLANS = ["1", "dp=2 --data-parallel=naive", "dp=2 --zero=1 --microbatches=2", "dp=4 --zero=2 --precision=bf16", "dp=2,tp=2 --zero=3 --sequence-parallel --window=tp,dp",
         "tp=4 --sequence-parallel --pack-products", "row=2,col=2 --tensor-parallel=2d --window=row,col", "depth=2,row=2,col=2 --tensor-parallel=2.5d",
         "i=2,j=2,l=2 --tensor-parallel=3d", "dp=2,cp=2 --context-parallel=ring --zero=3", "pp=2 --microbatches=4 --pipeline=zb-v --precision=bf16",
         "pp=2,dp=2,tp=2 --microbatches=4 --pipeline=1f1b --zero=1"]
QUICK = [PLANS[number] for number in (11, 1, 3, 8, 10)]
FILES = ("model.safetensors", "training_state.safetensors")
STEPS, BREAKS = 48, (5, 18, 31)
CURVES = ["--data", "a.bin*0.96,b.bin*0.04", "--shuffle", "--validation", "1/4", "--seed", 7, "--lr", 0.3, "--lr-warmup", 8, "--lr-decay", "cosine", "--lr-steps", STEPS,
          "--min-lr", 0.001, "--clip", 0.5, "--skip-spikes", 0.5, "--skip-most", STEPS, "--eval-every", 7, "--eval-batches", 2]


class Checkpoints(Case):
    def train(self, plan, *flags):
        mesh, *options = plan.split()
        program = f"train-{self.wanted.index(plan)}"
        if not (self.work / program).exists():
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *options, "-o", program)
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{program}", "--", *flags)

    def same_state(self, name, one, other):
        """Checks that two checkpoints have the same bits in both files, and the same sums of all tensors."""
        for file in FILES:
            self.same(f"{name}: {file}", f"{one}/{file}", f"{other}/{file}")
        sums = [json.loads((self.work / folder / "trajectory.json").read_text())["files"] for folder in (one, other)]
        self.check(f"{name}: sums", all(sums[0][file] == sums[1][file] for file in FILES))

    def plans(self, quick):
        self.model("gpt2", 8, 16)
        flags = ["--data", "a.bin", "--seed", 7, "--lr", 0.01]
        if quick:
            self.train(self.wanted[0], *flags, "--steps", 3, "--save", "at-0")
            for number, plan in enumerate([*self.wanted[1:], self.wanted[0]], 1):
                self.train(plan, *flags, "--steps", 3, "--load", f"at-{number - 1}", "--save", f"at-{number}")
                self.same_state(f"{plan} after {self.wanted[number - 1]}", "at-0", f"at-{number}")
            return
        for number, one in enumerate(self.wanted):
            steps = ["--steps", 2 + number]
            self.train(one, *flags, *steps, "--save", "first")
            for other in self.wanted:
                self.needs("rm", "-rf", "second")
                self.train(other, *flags, *steps, "--lr-steps", 100, "--change", "lr-steps", "--load", "first", "--save", "second")
                self.same_state(f"{one}, then {other}", "first", "second")

    def lines(self, name):
        """Returns all that a run records about its steps, except the times."""
        timed = ("seconds", "tokens_per_second", "mfu", "slowest", "waited")
        return [{key: value for key, value in json.loads(line).items() if not any(word in key for word in timed)} for line in open(self.work / name)]

    def breaks(self, quick):
        self.model("gpt2", 8, 16, "--dropout=0.2")
        for plan in self.wanted:
            self.needs("rm", "-rf", "whole", "part", "whole.jsonl", "part.jsonl")
            self.train(plan, *CURVES, "--steps", STEPS, "--save", "whole", "--metrics", "whole.jsonl")
            for first, last in zip((0, *BREAKS), (*BREAKS, STEPS)):
                self.train(plan, *CURVES, "--steps", last, *(["--load", "part"] if first else []), "--save", "part", "--metrics", "part.jsonl")
            self.same_state(f"{plan}, broken off", "whole", "part")
            whole = self.lines("whole.jsonl")
            self.check(f"{plan}, broken off: the same curves", self.curves(whole) == self.curves(self.lines("part.jsonl")))
            skipped = [line["step"] for line in whole if line.get("skipped")]
            self.check(f"{plan}: steps are skipped by norms of before a break", skipped and BREAKS[1] <= skipped[-1] and len(skipped) < STEPS // 2, skipped, f"{len(skipped)} of {STEPS}")

    def curves(self, lines):
        """Removes evaluations after the last step of a run, since other runs end at other steps."""
        return [line for line in lines if "validation_loss" not in line or line["step"] % 7 == 0]

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}  # of which bits may depend
        draw = random.Random(4)
        # A run reads each file more than twice. Batches with a sample of the second file have larger norms.
        for name, count, tokens in (("a.bin", 2600, range(8)), ("b.bin", 100, range(64, 96))):
            (self.work / name).write_bytes(bytes(b for _ in range(count) for b in (draw.choice(tokens), 0)))
        what, how = sys.argv[1:]
        self.wanted = PLANS if how == "all" else QUICK if what == "plans" else QUICK[:1]
        getattr(self, what)(how == "quick")


case = Checkpoints("checkpoints " + " ".join(sys.argv[1:]))
case.run(case.body)
