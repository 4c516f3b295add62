#!/usr/bin/env python3
"""usage: test/EndToEnd/validation.py quick|all|PLAN [cuda]

Tests evaluations during training (--eval-every) of programs with dropout. On every plan the loss of held-out samples is
the one that a program of --mode=eval on one rank finds in the checkpoint of that step. Parameters, states and losses of
steps are those of a run without evaluations, also if it is interrupted. "cuda": the same on the stand-in."""
import json
import random
import re
import sys

from cases import STAND_IN, Case, mesh_flags, ranks_of

PLANS = ["1", "1 --microbatches=2", "dp=2 --microbatches=2", "dp=2,tp=2 --bucket-bytes=1K", "dp=2 --zero=1 --precision=bf16", "dp=2 --zero=3 --microbatches=2", "dp=2 --data-parallel=naive",
         "tp=2 --sequence-parallel", "row=2,col=2 --tensor-parallel=2d", "cp=2 --context-parallel=ring", "tp=2 --recompute=full", "pp=2 --microbatches=4", "pp=2 --microbatches=4 --pipeline=interleaved:2",
         "pp=2,dp=2 --microbatches=4 --pipeline=zb-h1 --precision=bf16", "pp=2 --microbatches=4 --pipeline=zb-v", "pp=2 --microbatches=4 --inline-tasks=0"]
QUICK = ["dp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=interleaved:2 --inline-tasks=0"]
CUDA_QUICK = ["pp=2,dp=2 --microbatches=4 --pipeline=zb-h1 --precision=bf16"]
SPLIT = ["--data", "tokens.bin", "--shuffle", "--validation", "1/4", "--seed", 7]


class Validation(Case):
    def lines(self, name, key):
        return [[line["step"], line[key]] for line in map(json.loads, open(self.work / name)) if key in line]

    def state(self, name):
        return [(self.work / name / file).read_bytes() for file in ("model.safetensors", "training_state.safetensors")]

    def evaluated(self, program, checkpoint):
        self.needs(f"./{program}", *SPLIT, "--init", checkpoint, "--steps", 2)
        return float(re.search(r"mean loss of \d+ targets of 16 samples: (\S+)", self.last.out)[1])

    def needs(self, *command, **more):
        self.last = super().needs(*command, **more)
        return self.last

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        self.model("gpt2", 8, 16, "--dropout=0.2")
        draw = random.Random(4)
        (self.work / "tokens.bin").write_bytes(bytes(b for _ in range(3000) for b in (draw.randrange(64), 0)))
        for precision in ("f32", "bf16"):
            self.needs("pc-compile", "model.mlir", "--mode=eval", "--precision", precision, "-o", f"eval-{precision}")
        names, target = sys.argv[1:], []
        if names[-1] == "cuda":
            names, target = names[:-1], ["--target=cuda", "--arch=sm_90a", "--stand-in"]
            self.environment.update(STAND_IN)
        wanted = {"quick": CUDA_QUICK if target else QUICK, "all": PLANS}.get(names[0], names)
        for plan in wanted:
            mesh, *flags = plan.split()
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, *target, "-o", "train")
            steps = ["--lr", 0.01, "--clip", 0.5]
            run = ["pc-run", "-n", ranks_of(mesh), "./train", "--", *SPLIT, *steps]
            every = ["--eval-every", 3, "--eval-batches", 2]
            self.needs("rm", "-rf", "DIR", "part", "part.jsonl")
            self.needs(*run, "--steps", 8, "--save", "without", "--metrics", "without.jsonl")
            self.needs(*run, *every, "--steps", 8, "--save", "with", "--metrics", "with.jsonl", "--checkpoint", "DIR", "--every", 1, "--keep", 100)
            self.check(f"{plan}: the same bits", self.state("with") == self.state("without"))
            self.check(f"{plan}: the same losses", self.lines("with.jsonl", "loss") == self.lines("without.jsonl", "loss"))
            found = self.lines("with.jsonl", "validation_loss")
            self.check(f"{plan}: when", [step for step, _ in found] == [0, 3, 6, 8], found)
            bound = 5e-3 if "bf16" in plan else 2e-5
            for step, loss in found[1:]:
                other = self.evaluated("eval-bf16" if "bf16" in plan else "eval-f32", f"DIR/step-{step:08d}")
                self.check(f"{plan}: loss after step {step}", abs(loss - other) < bound * other, f"{loss}, but {other} by --mode=eval", f"{loss:.6f}, {other:.6f}")
            if plan == wanted[0] or wanted is PLANS:
                for first, last in ((0, 5), (5, 8)):
                    self.needs(*run, *every, "--steps", last, *(["--load", "part"] if first else []), "--save", "part", "--metrics", "part.jsonl")
                self.check(f"{plan}: broken off, the same bits", self.state("part") == self.state("with"))
                self.check(f"{plan}: broken off, the same curves", self.lines("part.jsonl", "validation_loss") == found)


case = Validation("validation " + " ".join(sys.argv[1:]))
case.run(case.body)
