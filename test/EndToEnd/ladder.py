#!/usr/bin/env python3
"""usage: test/EndToEnd/ladder.py

Tests pc-run --or: ranks of plans for four are killed until programs of other plans for two ranks, then for one, have
taken over, over shm, tcp and in bf16. Losses must be those of the first plan within the tolerance between plans; the
last program must make the same bits as from the checkpoint that it found; other models must be refused."""
import json
import os
import random
import re
import signal
import time
from pathlib import Path

from cases import Case, mesh_flags, ranks_of

STEPS = 300
LADDERS = [("shm", [], ["dp=2,tp=2 --zero=2", "pp=2 --microbatches=2", "1"]),
           ("tcp", [], ["dp=4 --zero=3", "tp=2 --sequence-parallel", "1"]),
           ("shm", ["--precision=bf16"], ["pp=2,dp=2 --microbatches=2 --pipeline=zb-h1", "cp=2 --context-parallel=ring", "1"]),
           ("tcp", ["--precision=bf16"], ["tp=4", "dp=3", "dp=2"])]
FLAGS = ["--data", "tokens.bin", "--seed", 7, "--lr", 0.002, "--clip", 0.5, "--shuffle", "--steps", STEPS]


class Ladders(Case):
    def losses(self, name):
        return [line["loss"] for line in map(json.loads, open(self.work / name))]

    def bits(self, name):
        return [(self.work / name / file).read_bytes() for file in ("model.safetensors", "training_state.safetensors")]

    def killed(self, command, kills, **environment):
        """Waits for a new checkpoint and then kills a rank of the command, `kills` times. Returns the exit code and the messages."""
        def newest():
            return max((path.name for path in (self.work / "DIR").glob("step-????????")), default="")
        process = self.start(*command, **environment)
        for _ in range(kills):
            seen = newest()
            while process.poll() is None and newest() == seen:
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.05))
            ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() if process.poll() is None else []
            if ranks:
                victim = draw.choice(ranks)
                os.kill(int(victim), signal.SIGKILL)
                while process.poll() is None and Path(f"/proc/{victim}").exists():
                    time.sleep(0.005)
        out, err = process.communicate(timeout=300)
        return process.returncode, out + err

    def taken(self, number, way, flags, plans):
        name = f"{' -> '.join(plans)} {' '.join(flags)} over {way}"
        programs = [f"./train{number}-{rung}" for rung in range(len(plans))]
        for plan, program in zip(plans, programs):
            mesh, *more = plan.split()
            self.needs("pc-compile", "model.mlir", *(mesh_flags(mesh) if mesh != "1" else []), *more, *flags, "-o", program)
        ranks = ranks_of(plans[0].split()[0])
        self.needs("pc-run", "-n", ranks, programs[0], "--", *FLAGS, "--save", "whole", "--metrics", "whole.jsonl")
        self.needs("rm", "-rf", "DIR", "end", "end.jsonl")
        ladder = ["pc-run", "-n", ranks, "--restarts", 1] + [word for program in programs[1:] for word in ("--or", program)]
        code, said = self.killed([*ladder, programs[0], "--", *FLAGS, "--save", "end", "--metrics", "end.jsonl", "--checkpoint", "DIR", "--every", 10, "--keep", 100],
                                 2 * (len(plans) - 1), PCRT_TRANSPORT=way)
        self.check(f"{name}: all of them", code == 0 and said.count("continuing with") == len(plans) - 1, said[-2000:])
        bound = 5e-2 if flags else 1e-3
        worst = max(abs(a - b) / b for a, b in zip(self.losses("end.jsonl"), self.losses("whole.jsonl"), strict=True))
        self.check(f"{name}: losses of the first plan", worst < bound, worst, f"{worst:.1e}")
        begun = re.findall(r"continuing from DIR/(step-\d+)", said)[-1]
        self.needs("pc-run", "-n", ranks_of(plans[-1].split()[0]), programs[-1], "--", *FLAGS, "--load", f"DIR/{begun}", "--save", "alone")
        self.check(f"{name}: the last plan's bits from {begun}", self.bits("alone") == self.bits("end"))

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        self.model("gpt2", 12, 16)
        (self.work / "tokens.bin").write_bytes(bytes(b for _ in range(4000) for b in (draw.randrange(64), 0)))
        for number, (way, flags, plans) in enumerate(LADDERS):
            self.taken(number, way, flags, plans)
        self.model("llama", 12, 16, to="other.mlir")
        self.needs("pc-compile", "other.mlir", "-o", "other")
        self.holds("another model", "pc-run", "-n", 4, "--or", "./other", "./train0-0", "--", *FLAGS, code=2, words="does not train the same as")


draw = random.Random(int(os.environ.get("PC_SEED", "6")))
case = Ladders("ladder")
case.run(case.body)
