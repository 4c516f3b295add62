#!/usr/bin/env python3
"""usage: test/EndToEnd/beside.py quick|all

Tests what devices (the stand-in) copy to the host beside their steps: checkpoints during a run, and --snapshot. The
copies must be the state between two steps, in every order of streams, and must not change the run. A rank that is
killed must continue from memory, with the bits of an uninterrupted run."""
import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from cases import STAND_IN, Case, mesh_flags, ranks_of

LONG = sys.argv[1] == "all"
PLANS = ["dp=2 --zero=1", "1 --offload=states:host", "pp=2 --microbatches=2 --precision=bf16"][:3 if LONG else 1]
STEPS, EVERY = 9, 3
FLAGS = ["--data", "tokens.bin", "--seed", 7, "--lr", 0.01, "--clip", 0.5]


class Beside(Case):
    def state(self, name):
        return [(self.work / name / file).read_bytes() for file in ("model.safetensors", "training_state.safetensors")]

    def train(self, *flags):
        return ["pc-run", "-n", self.ranks, "./train", "--", *FLAGS, *flags]

    def losses(self, name):
        return [[line["step"], line["loss"]] for line in map(json.loads, open(self.work / name)) if "loss" in line]

    def checkpoints(self, plan):
        for steps in range(EVERY, STEPS + 1, EVERY):
            self.needs(*self.train("--steps", steps, "--lr-steps", STEPS, "--save", f"at-{steps}", "--metrics", "whole.jsonl"))
        for seed in range(4 if LONG else 2):
            self.needs("rm", "-rf", "DIR", "end")
            self.needs(*self.train("--steps", STEPS, "--checkpoint", "DIR", "--every", EVERY, "--keep", 9, "--save", "end"), PC_STANDIN_SEED=str(seed))
            wrong = [steps for steps in range(EVERY, STEPS + 1, EVERY) if self.state(f"DIR/step-{steps:08d}") != self.state(f"at-{steps}")]
            self.check(f"{plan}: checkpoints beside steps, order {seed}", not wrong and self.state("end") == self.state(f"at-{STEPS}"), f"steps {wrong} differ")
        text = self.needs(*self.train("--steps", STEPS, "--checkpoint", "DIR", "--every", 1, "--keep", 1, "--save", "end")).said
        self.check(f"{plan}: nothing left to train", "nothing left to train" in text, text)

    def snapshots(self, plan, **more):
        """Kills a rank at a random time, again and again, until a run ends."""
        steps, kills, said, environment = STEPS * 6, 0, "", {"PCRT_TRANSPORT": "shm"} | more
        self.needs(*self.train("--steps", steps, "--save", "long", "--metrics", "long.jsonl"), **environment)
        command = self.train("--steps", steps, "--save", "end", "--metrics", "end.jsonl", "--snapshot", 1)
        command[1:1] = ["--restarts", 100]
        self.needs("rm", "-rf", "end", "end.jsonl")
        process = self.start(*command, **environment)
        while process.poll() is None and kills < 3:
            time.sleep(draw.uniform(1, 4))
            if ranks := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() if process.poll() is None else []:
                os.kill(int(draw.choice(ranks)), signal.SIGKILL)
                kills += 1
        out, err = process.communicate(timeout=300)
        said += out + err
        if not self.check(f"{plan}: a run with snapshots ends", process.returncode == 0, said[-3000:]):
            return
        again = len(re.findall(r"continuing from step \d+, which is still in memory", said))
        self.check(f"{plan}: killed {kills} times, {again} times from memory", process.returncode == 0 and kills and again, said[-3000:])
        self.check(f"{plan}: the bits of an uninterrupted run", self.state("end") == self.state("long") and self.losses("end.jsonl") == self.losses("long.jsonl"), said[-2000:])

    def body(self):
        self.environment = {"PCRT_THREADS": "1"} | STAND_IN
        self.model("gpt2", 4, 16)
        (self.work / "tokens.bin").write_bytes(bytes(b for _ in range(4000) for b in (draw.randrange(64), 0)))
        for plan in PLANS:
            mesh, *flags = plan.split()
            self.ranks = ranks_of(mesh)
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "--target=cuda", "--arch=sm_90a", "--stand-in", "-o", "train")
            self.checkpoints(plan)
            self.snapshots(plan)
        if LONG:
            self.snapshots("through host memory", PCRT_CUDA_COMM="host")
        self.holds("snapshots over tcp", *self.train("--steps", 1, "--snapshot", 1), code=2, words="--snapshot needs ranks started by pc-run .* PCRT_TRANSPORT=shm", PCRT_TRANSPORT="tcp")


draw = random.Random(5)
case = Beside("beside " + " ".join(sys.argv[1:]))
case.run(case.body)
