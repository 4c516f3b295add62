#!/usr/bin/env python3
"""usage: test/EndToEnd/restarts.py KILLS [FIRST]

Kills ranks of runs of many plans (SIGKILL) at random times, KILLS in all. They are started again by pc-run --restarts,
over shared memory and TCP, and by another mpirun. A quarter of the runs have copies of the state in memory, the others
make checkpoints. Every run must end with the parameters, states and losses of an uninterrupted run. Each run has 5
kills and a random seed of its own number: FIRST is the number of the first run, so that 1000 kills can be made in parts
(250 0, 250 50, 250 100, 250 150)."""
import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from cases import MPI, ROOT, Case, mesh_flags, ranks_of

STEPS, KILLS_A_RUN = 400, 5
PLANS = ["dp=2", "dp=2 --zero=1 --precision=bf16", "dp=2 --zero=3", "tp=2 --sequence-parallel", "dp=2 --data-parallel=naive", "dp=2,tp=2 --zero=2 --precision=bf16",
         "pp=2 --microbatches=4", "pp=2,dp=2 --microbatches=4 --pipeline=zb-h1 --precision=bf16", "cp=2 --context-parallel=ring --optimizer=sgd"]
FLAGS = ["--data", "tokens.bin", "--seed", 7, "--lr", 0.01, "--lr-warmup", 50, "--lr-decay", "cosine", "--clip", 0.5, "--shuffle", "--skip-spikes", 4,
         "--skip-most", STEPS, "--steps", STEPS]


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Restarts(Case):
    def losses(self, name):
        return [[line["step"], line["loss"], line["grad_norm"], line.get("skipped")] for line in map(json.loads, open(self.work / name))]

    def state(self, name):
        return [(self.work / name / file).read_bytes() for file in ("model.safetensors", "training_state.safetensors")]

    def killed(self, command, kills, seconds, **environment):
        """Runs the command, again and again where it ends by a kill; kills its ranks at random times. How many kills, and all that was said."""
        said, done = "", 0
        for _ in range(kills + 50):
            process = self.start(*command, **environment)
            while done < kills:
                time.sleep(draw.uniform(0, seconds))
                if process.poll() is not None:
                    break
                if ranks := children(process.pid):
                    try:
                        os.kill(draw.choice(ranks), signal.SIGKILL)
                        done += 1
                    except ProcessLookupError:
                        pass
            out, err = process.communicate(timeout=300)
            said += out + err
            if process.returncode == 0:
                return done, said
        return done, said + "\nit never ended well"

    def one_run(self, number, kills):
        """A run of a plan with kills; how many of them, how often it started again, and how often with what was in memory."""
        mesh, *flags = PLANS[number % len(PLANS)].split()
        program, ranks = f"train{number % len(PLANS)}", ranks_of(mesh)
        draw.seed(f"{os.environ.get('PC_SEED', '3')} {number}")
        if program not in self.seconds:
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "-o", program)
            begin = time.monotonic()
            self.needs("pc-run", "-n", ranks, f"./{program}", "--", *FLAGS, "--save", f"whole-{program}", "--metrics", f"whole-{program}.jsonl")
            self.seconds[program] = time.monotonic() - begin
        way = ["shm", "shm", "tcp", "mpi"][number % 4]
        arguments = [f"./{program}"] + (["--"] if way != "mpi" else []) + [*FLAGS, "--save", "end", "--metrics", "end.jsonl"]
        if number % 4 == 0:
            arguments += ["--snapshot", 1]
        else:
            arguments += ["--checkpoint", "DIR", "--every", 50]
        self.needs("rm", "-rf", "DIR", "end", "end.jsonl")
        launcher = (["mpirun", "--oversubscribe", "-q", "-n", ranks] if way == "mpi" else ["pc-run", "--restarts", 1000, "-n", ranks])
        done, said = self.killed(launcher + arguments, kills, 0.8 * self.seconds[program], **(MPI if way == "mpi" else {"PCRT_TRANSPORT": way}))
        name = f"{PLANS[number % len(PLANS)]} over {way}, {done} kills"
        if not self.check(f"{name}: ends", (self.work / "end").exists(), said[-3000:]):
            return done, 0, 0
        self.check(f"{name}: the same state", self.state("end") == self.state(f"whole-{program}"))
        self.check(f"{name}: the same losses", self.losses("end.jsonl") == self.losses(f"whole-{program}.jsonl"))
        memory = len(re.findall(r"continuing from step \d+, which is still in memory", said))
        return done, said.count("restarting the run") if way == "shm" else 0, memory

    def demo(self):
        """Checks that the next step of the demo's model begins within 2 s after a kill, and that no finished step is
        repeated. Takes the shortest of three, because the machine also does other work."""
        self.needs("pc-import", ROOT / "examples/gpt2-14m", "-o", "demo.mlir", "--batch=8", "--seq=256")
        self.needs("pc-compile", "demo.mlir", "--mesh", "dp=2,tp=2", "-o", "demo")
        os.mkfifo(self.work / "lines")
        steps, kills = 20, {4: None, 8: None, 12: None}
        process = self.start("pc-run", "-n", 4, "--restarts", 3, "./demo", "--", "--data", "tokens.bin", "--steps", steps, "--metrics", "lines")
        lines = os.open(self.work / "lines", os.O_RDWR | os.O_NONBLOCK)
        seen, at, text = [], [], ""
        while process.poll() is None and len(at) < steps:
            try:
                text += os.read(lines, 65536).decode()
            except BlockingIOError:
                time.sleep(0.002)
            while "\n" in text:
                line, _, text = text.partition("\n")
                seen.append(json.loads(line))
                at.append(time.monotonic())
                if (step := len(seen)) in kills:
                    time.sleep(0.3 * seen[-1]["step_seconds"])
                    kills[step] = time.monotonic()
                    os.kill(draw.choice(children(process.pid)), signal.SIGKILL)
        said = process.communicate(timeout=300)
        os.close(lines)
        usual = sorted(line["step_seconds"] for line in seen)[len(seen) // 2] if seen else 0
        gaps = [at[step] - kill - usual for step, kill in kills.items() if kill and step < len(at)]
        self.check("demo: no step is made again that was told", process.returncode == 0 and [line["step"] for line in seen] == list(range(steps)), said[1][-2000:])
        self.check("demo: the next step begins within 2 s", len(gaps) == 3 and min(gaps) < 2, gaps, ", ".join(f"{gap:.2f}" for gap in gaps) + " s")
        for file in ("demo", "demo.mlir"):
            self.needs("rm", file)

    def body(self):
        self.seconds = {}
        self.environment = {"PCRT_THREADS": "1"}  # of which bits may depend
        self.model("gpt2", 8, 16)
        (self.work / "tokens.bin").write_bytes(bytes(b for _ in range(4000) for b in (draw.randrange(64), 0)))
        total = again = memory = 0
        number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        while total < int(sys.argv[1]):
            done, restarts, kept = self.one_run(number, min(KILLS_A_RUN, int(sys.argv[1]) - total))
            total, again, memory, number = total + done, again + restarts, memory + kept, number + 1
            if self.failed:
                break
        self.demo()
        self.check("some went on in memory", 2 * memory > again or again < 5, f"{memory} of {again}", f"{memory} of {again} over shared memory; {total} kills, up to run {number - 1}")
        left = [entry.name for entry in self.work.iterdir() if ".tmp" in entry.name or ".old" in entry.name]
        self.check("nothing is left", not left, left)


draw = random.Random(0)
case = Restarts("restarts " + " ".join(sys.argv[1:]))
case.run(case.body)
