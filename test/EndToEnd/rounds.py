#!/usr/bin/env python3
"""usage: test/EndToEnd/rounds.py quick|all

Tests local SGD (--local-sgd). Replicas make the steps that a program of one rank makes on their rows. The end of a
round is DiLoCo's outer step, which this file implements anew, bit by bit, in f32, also if replicas send each other
codes of 8 bits. Any plan of the replicas trains alike. Runs that are interrupted in and between rounds end with the
same bits. Traffic is that of the report, and crosses the axis of the replicas only at the end of rounds."""
import json
import os
import random
import signal
import struct
import sys
import time
from array import array
from pathlib import Path

from cases import MPI, STAND_IN, Case, mesh_flags, ranks_of

K, EVERY, RATE, MOMENTUM = 2, 4, 0.7, 0.9
QUICK = ["outer=2,dp=2 --zero=3", "outer=2,pp=2 --microbatches=2"]
ALL = QUICK + ["outer=2,dp=2", "outer=2,dp=2 --zero=1 --precision=bf16", "outer=2,tp=2", "dp=2,outer=2 --data-parallel=naive", "outer=2,cp=2 --context-parallel=ring",
               "outer=2,pp=2,dp=2 --microbatches=2 --pipeline=zb-h1"]
TARGET = ["--target=cuda", "--arch=sm_90a", "--stand-in"]
DEVICES = ["outer=2,dp=2 --zero=3", "outer=2", "outer=2,dp=2 --zero=1 --precision=bf16", "outer=2,tp=2 --sequence-parallel", "outer=2,pp=2 --microbatches=2"]
BATCH, SEQUENCE = 4, 16
LONG = sys.argv[1] == "all"
FLAGS = ["--data", "tokens.bin", "--seed", 7, "--lr", 0.01]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: array("f", data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def as_sent(delta):
    """What codes of 8 bits mean: of 256 elements a scale, and whole numbers up to 127."""
    result = array("f")
    for at in range(0, len(delta), 256):
        block = delta[at:at + 256]
        scale = f32(max(map(abs, block)) / 127)
        result.extend(f32(round(f32(x / scale)) * scale) if scale else 0 for x in block)
    return result


def outer_step(shared, momentum, replicas, sent=lambda delta: delta):
    """torch.optim.SGD(lr=RATE, momentum=MOMENTUM, nesterov=True) on the mean of the replicas' changes. Sums are in the
    order of replicas, and every operation rounds."""
    mu, rate, share = f32(MOMENTUM), f32(RATE), f32(1 / len(replicas))
    new_shared, new_momentum = array("f"), array("f")
    deltas = [sent(array("f", (f32(theta - own) for theta, own in zip(shared, replica)))) for replica in replicas]
    for i, (theta, u) in enumerate(zip(shared, momentum)):
        total = deltas[0][i]
        for other in deltas[1:]:
            total = f32(total + other[i])
        d = f32(total * share)
        u = f32(f32(u * mu) + d)
        new_momentum.append(u)
        new_shared.append(f32(theta - f32(rate * f32(d + f32(mu * u)))))
    return new_shared, new_momentum


class Rounds(Case):
    def program(self, name, mesh, *flags, every=EVERY):
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, *([f"--local-sgd=outer:{every}"] if "outer" in mesh else []), "-o", name,
                   "--report", f"{name}.json")

    def train(self, program, mesh, *flags):
        return ["pc-run", "-n", ranks_of(mesh), f"./{program}", "--", *FLAGS, *flags]

    def checkpoint(self, path):
        files = (self.work / path / "model.safetensors", self.work / path / "training_state.safetensors")
        return {**tensors(files[0]), **tensors(files[1])}, tensors(files[0])

    def bits(self, path):
        return [(self.work / path / name).read_bytes() for name in ("model.safetensors", "training_state.safetensors")]

    def losses(self, path):
        return [line["loss"] for line in map(json.loads, open(self.work / path)) if "loss" in line]

    def outer(self, *flags, sent=lambda delta: delta, ends=3 if LONG else 2):
        """Compares every end of a round with the step above. Its input comes from a program whose rounds never end, on
        the same replicas."""
        self.program("rounds", "outer=2", *flags)
        self.program("never", "outer=2", *flags, every=1000)
        self.needs("rm", "-rf", "DIR")
        self.needs(*self.train("rounds", "outer=2", "--steps", 3 * EVERY, "--checkpoint", "DIR", "--every", 1, "--keep", 100, "--metrics", "whole.jsonl", "--summary", "whole.json"))
        for end in (EVERY, 2 * EVERY, 3 * EVERY)[:ends]:
            self.needs(*self.train("never", "outer=2", "--load", f"DIR/step-{end - 1:08d}", "--change", "local-sgd", "--steps", end, "--save", "inner"))
            before, model = self.checkpoint("inner")
            after, _ = self.checkpoint(f"DIR/step-{end:08d}")
            wrong = []
            for name, shared in model.items():
                replicas = [before[f"parameter@{r}.{name}"] for r in range(K)]
                wanted = outer_step(shared, before[f"outer_momentum.{name}"], replicas, sent)
                if (after[name], after[f"outer_momentum.{name}"]) != wanted:
                    wrong.append(name)
            self.check(f"the end of the round after step {end}, bit by bit", not wrong, wrong, f"{len(model)} tensors")
            self.check(f"replicas differ before step {end}", before[f"parameter@0.{name}"] != before[f"parameter@1.{name}"])
            self.check(f"between rounds, after step {end}, all have what they share", not any(key.startswith("parameter@") for key in after))

    def inner(self):
        """A replica makes the steps of a program of one rank on its rows. Every sample begins with token 0, so that the last target of a row is no question."""
        self.program("one", "1")
        last = EVERY - 1
        state, _ = self.checkpoint(f"DIR/step-{last:08d}")
        for r in range(K):
            rows = [self.samples[step * K * BATCH + r * BATCH + row] for step in range(EVERY) for row in range(BATCH)]
            (self.work / "rows.bin").write_bytes(b"".join(rows) + self.samples[0])
            self.needs("./one", "--data", "rows.bin", *FLAGS[2:], "--steps", last, "--save", "alone")
            alone, model = self.checkpoint("alone")
            good = all(state[f"parameter@{r}.{name}"] == alone[name] and state[f"exp_avg_sq@{r}.{name}"] == alone[f"exp_avg_sq.{name}"] for name in model)
            self.check(f"replica {r} makes the steps of a program by itself", good)

    def counted(self):
        """A replica's targets weigh by how many of its own count."""
        targets = [b"".join(struct.pack("<h", -100 if draw.random() < share else draw.randrange(1, 64)) for _ in range(SEQUENCE))
                   for share in (draw.choice((0.1, 0.9)) for _ in self.samples)]
        (self.work / "targets.bin").write_bytes(b"".join(targets) + targets[0])
        self.needs(*self.train("never", "outer=2", "--targets", "targets.bin", "--steps", 2, "--save", "counted"))
        state, _ = self.checkpoint("counted")
        for r in range(K):
            rows = [step * K * BATCH + r * BATCH + row for step in range(2) for row in range(BATCH)] + [0]
            (self.work / "rows.bin").write_bytes(b"".join(self.samples[row] for row in rows))
            (self.work / "of-rows.bin").write_bytes(b"".join(targets[row] for row in rows))
            self.needs("./one", "--data", "rows.bin", *FLAGS[2:], "--targets", "of-rows.bin", "--steps", 2, "--save", "alone")
            alone, model = self.checkpoint("alone")
            self.check(f"replica {r} counts its own targets", all(state[f"parameter@{r}.{name}"] == alone[name] for name in model))

    def resumed(self):
        whole = self.bits(f"DIR/step-{3 * EVERY:08d}")
        for at in (EVERY + 1, EVERY, 2 * EVERY - 1)[:3 if LONG else 0]:
            self.needs(*self.train("rounds", "outer=2", "--steps", at, "--save", "part", "--metrics", "part.jsonl"))
            self.needs(*self.train("rounds", "outer=2", "--load", "part", "--steps", 3 * EVERY, "--save", "part", "--metrics", "part.jsonl"))
            self.check(f"broken off at {at}: the same bits", self.bits("part") == whole and self.losses("part.jsonl") == self.losses("whole.jsonl"))
        self.program("four", "outer=4")
        self.needs(*self.train("rounds", "outer=2", "--steps", EVERY, "--save", "between"))
        self.needs(*self.train("four", "outer=4", "--load", "between", "--steps", EVERY, "--save", "of-four"))
        two, model = self.checkpoint("between")
        four, _ = self.checkpoint("of-four")
        self.check("more replicas take what two have saved", all(four[name] == two[name] and four[f"exp_avg@3.{name}"] == two[f"exp_avg@1.{name}"] for name in model))
        self.holds("not in the middle of a round", *self.train("four", "outer=4", "--load", f"DIR/step-{EVERY + 1:08d}", "--steps", 9), code=2,
                   words="middle of a round of 2 replicas")
        self.holds("rounds of other lengths are another training", *self.train("never", "outer=2", "--load", "between", "--steps", 9), code=2, words="local-sgd: every 4 steps")

    def killed(self, runs):
        """Ranks that are killed at random times, in rounds and at their ends, and started again: with what is in memory, or from checkpoints."""
        steps = ["--steps", 60 * EVERY]
        self.needs(*self.train("rounds", "outer=2", *steps, "--save", "long", "--metrics", "long.jsonl"))
        for number in range(runs):
            self.needs("rm", "-rf", "end", "DIR")
            series = ["--checkpoint", "DIR", "--every", 10] if number % 2 else []
            process = self.start("pc-run", "--restarts", 100, *self.train("rounds", "outer=2", *steps, "--save", "end", "--metrics", "end.jsonl", *series)[1:])
            for _ in range(4):
                time.sleep(draw.uniform(0, 0.5))
                ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() if process.poll() is None else []
                if ranks:
                    os.kill(int(draw.choice(ranks)), signal.SIGKILL)
            said = process.communicate(timeout=300)[1]
            self.check(f"killed, {number}: the same bits", process.returncode == 0 and self.bits("end") == self.bits("long"), said[-2000:])
            self.check(f"killed, {number}: the same losses", self.losses("end.jsonl") == self.losses("long.jsonl"))

    def plans(self, plans):
        losses = self.losses("whole.jsonl")
        for number, plan in enumerate(plans):
            mesh, *flags = plan.split()
            self.program("plan", mesh, *flags)
            self.needs(*self.train("plan", mesh, "--steps", 3 * EVERY, "--metrics", "plan.jsonl", "--summary", "plan.summary", "--check-replicas", 1,
                                   "--checkpoint", "PLAN", "--every", 5, "--keep", 9))
            bound = 5e-3 if "bf16" in plan else 1e-4
            worst = max(abs(a - b) / b for a, b in zip(self.losses("plan.jsonl"), losses, strict=True))
            self.check(f"{plan}: losses of one rank a replica", worst < bound, worst, f"{worst:.1e}")
            self.compare(f"{plan}: report and summary", "reports", "plan.json", "plan.summary")
            if number == 0:
                self.needs(*self.train("plan", mesh, "--load", "PLAN/step-00000005", "--steps", 3 * EVERY, "--save", "again"))
                self.check(f"{plan}: broken off in a round, the same bits", self.bits("again") == self.bits(f"PLAN/step-{3 * EVERY:08d}"))
            self.needs("rm", "-rf", "PLAN")

    def evaluated(self):
        """The shared parameters must have the loss on held-out samples that a program of one rank computes from the
        checkpoint. A batch of it is one of all replicas."""
        split = ["--shuffle", "--validation", "1/8"]
        every = ["--eval-every", EVERY, "--eval-batches", 2]
        self.model("gpt2", K * BATCH, SEQUENCE, to="wide.mlir")
        self.needs("pc-compile", "wide.mlir", "--mode=eval", "-o", "eval")
        for flags, name in ((split, "without"), ([*split, *every], "with")):
            self.needs(*self.train("rounds", "outer=2", *flags, "--steps", 2 * EVERY + 1, "--save", name, "--metrics", f"{name}.jsonl", "--checkpoint", f"{name}.all",
                                   "--every", EVERY, "--keep", 9))
        self.check("evaluations change no step", self.bits("with") == self.bits("without"))
        lines = [json.loads(line) for line in open(self.work / "with.jsonl")]
        for line in lines:
            if line["step"] in (EVERY, 2 * EVERY) and "validation_loss" in line:
                said = self.needs("./eval", "--data", "tokens.bin", *FLAGS[2:4], *split, "--init", f"with.all/step-{line['step']:08d}", "--steps", 2).out
                other = float(said.split()[-1])
                self.check(f"evaluated after step {line['step']}", abs(line["validation_loss"] - other) < 2e-5 * other, f"{line}, but {other}", f"{other:.6f}")

    def dropped(self):
        """The elements that a replica drops depend on its rows and not on its plan."""
        self.model("gpt2", BATCH, SEQUENCE, "--dropout=0.2")
        losses = []
        for mesh, flags in (("outer=2", []), ("outer=2,dp=2", ["--microbatches=2"])):
            self.program("dropping", mesh, *flags)
            self.needs(*self.train("dropping", mesh, "--steps", EVERY + 2, "--metrics", "dropping.jsonl"))
            losses.append(self.losses("dropping.jsonl"))
        worst = max(abs(a - b) / b for a, b in zip(*losses, strict=True))
        self.check("with dropouts, on two plans", worst < 1e-4 and losses[0] != self.losses("whole.jsonl")[:EVERY + 2], losses, f"{worst:.1e}")

    def on_devices(self, plans):
        """On CUDA devices (the stand-in), losses must be those of CPU ranks, and traffic and memory those of the
        report. Runs that are interrupted, or have other orders of streams, must give the same bits. The outer step
        must be equal bit by bit."""
        losses, here = self.losses("whole.jsonl"), dict(self.environment)
        self.environment |= STAND_IN
        for number, plan in enumerate(plans):
            mesh, *flags = plan.split()
            self.program("device", mesh, *flags, *TARGET)
            steps = ["--steps", 2 * EVERY + 1, "--check-replicas", 1]
            self.needs(*self.train("device", mesh, *steps, "--save", "device.whole", "--metrics", "device.jsonl", "--summary", "device.summary"))
            bound = 5e-3 if "bf16" in plan else 1e-4
            worst = max(abs(a - b) / b for a, b in zip(self.losses("device.jsonl"), losses))
            self.check(f"devices, {plan}: losses of CPU ranks", worst < bound and len(self.losses("device.jsonl")) == 2 * EVERY + 1, worst, f"{worst:.1e}")
            self.compare(f"devices, {plan}: report and summary", "reports", "device.json", "device.summary")
            if number == 0:
                self.needs("rm", "-rf", "part")
                self.needs(*self.train("device", mesh, "--steps", EVERY + 2, "--save", "part"), PC_STANDIN_SEED="3")
                self.needs(*self.train("device", mesh, *steps, "--load", "part", "--save", "part"), PC_STANDIN_SEED="4")
                self.check(f"devices, {plan}: broken off, in other orders, the same bits", self.bits("part") == self.bits("device.whole"))
        if LONG:
            self.outer(*TARGET, ends=1)
        self.environment = here

    def traffic(self):
        rows = json.load(open(self.work / "whole.json"))["per_rank"][0]["traffic"]
        parameters = json.load(open(self.work / "rounds.json"))["parameters"]
        self.check("nothing goes between replicas but at the end of rounds", [row["phase"] for row in rows] == ["round"], rows)
        self.check("an all_reduce of every parameter then", rows[0]["payload_bytes"] == 4 * parameters and rows[0]["axis"] == "outer", rows)

    def coded(self):
        """Deltas of 8 bits: all replicas must get the same codes, over any transport, and send the bytes that codes
        need. The model's parameters are whole tensors, so blocks of codes are blocks of tensors."""
        self.model("llama", BATCH, SEQUENCE)
        self.outer("--outer-deltas=int8", sent=as_sent, ends=2 if LONG else 1)
        whole, model = self.bits(f"DIR/step-{3 * EVERY:08d}"), self.checkpoint(f"DIR/step-{3 * EVERY:08d}")[1]
        for way in ("tcp", "virtual", "mpi") if LONG else ("tcp",):
            launcher = ["mpirun", "--oversubscribe", "-q", "-n", 2, "./rounds", *FLAGS] if way == "mpi" else self.train("rounds", "outer=2")
            self.needs(*launcher, "--steps", 3 * EVERY, "--save", "sent", "--check-replicas", 1, PCRT_TRANSPORT=way, **(MPI if way == "mpi" else {}))
            self.check(f"codes over {way}: the same bits", self.bits("sent") == whole)
        self.compare("codes: report and summary", "reports", "rounds.json", "whole.json")
        rows = json.load(open(self.work / "whole.json"))["per_rank"][0]["traffic"]
        own = sum(4 * -(-len(tensor) // 4) + 4 * -(-len(tensor) // 256) for tensor in model.values())
        self.check("a byte for each element and a scale for 256", [(row["move"], row["wire_bytes"], row["payload_bytes"]) for row in rows] == [("all_gather", (K - 1) * own, K * own)], rows)
        for plan in ("outer=3,dp=2 --zero=3", "outer=2,tp=2 --sequence-parallel", "outer=2,pp=2 --microbatches=2")[:3 if LONG else 0]:
            mesh, *flags = plan.split()
            self.program("plan", mesh, *flags, "--outer-deltas=int8")
            self.needs(*self.train("plan", mesh, "--steps", 2 * EVERY + 1, "--save", "whole", "--check-replicas", 1, "--summary", "plan.summary"))
            self.compare(f"codes, {plan}: report and summary", "reports", "plan.json", "plan.summary")
            self.needs(*self.train("plan", mesh, "--steps", EVERY + 2, "--save", "part"))
            self.needs(*self.train("plan", mesh, "--load", "part", "--steps", 2 * EVERY + 1, "--save", "part"))
            self.check(f"codes, {plan}: broken off, the same bits", self.bits("part") == self.bits("whole"))
        self.coded_on_devices()
        self.program("whole-deltas", "outer=2")
        self.holds("other deltas are another training", *self.train("whole-deltas", "outer=2", "--load", f"DIR/step-{EVERY:08d}", "--steps", 9), code=2, words="deltas of 8 bits")

    def coded_on_devices(self):
        """Devices encode and decode by kernels: the same outer step, bit by bit. By NCCL, or through host memory."""
        here = dict(self.environment)
        self.environment |= STAND_IN
        for way in ("nccl", "host") if LONG else ("nccl",):
            self.environment["PCRT_CUDA_COMM"] = way
            self.outer("--outer-deltas=int8", *TARGET, sent=as_sent, ends=1)
            self.compare(f"codes on devices over {way}: report and summary", "reports", "rounds.json", "whole.json")
        self.environment = here
        self.program("rounds", "outer=2", "--outer-deltas=int8")

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        self.model("gpt2", BATCH, SEQUENCE)
        self.samples = [b"".join(struct.pack("<H", token) for token in [0] + [draw.randrange(1, 64) for _ in range(SEQUENCE - 1)]) for _ in range(400)]
        (self.work / "tokens.bin").write_bytes(b"".join(self.samples) + self.samples[0])
        self.outer()
        self.inner()
        self.counted()
        self.traffic()
        self.resumed()
        self.killed(10 if LONG else 1)
        if LONG:
            self.evaluated()
        self.plans(ALL if LONG else QUICK)
        self.holds("numbers that are not finite", *self.train("rounds", "outer=2", "--lr", 1e30, "--steps", 20, "--save", "bad"), code=10, words="the state is not saved")
        self.check("nothing is saved then", not (self.work / "bad").exists())
        self.on_devices(DEVICES if LONG else DEVICES[:1])
        self.coded()
        if LONG: # the last one: its model has dropouts
            self.dropped()
        for flags, words in (["--local-sgd=outer", "expected a mesh axis and the number of steps"], ["--local-sgd=outer:0", "expected a mesh axis"], ["--outer-rate=1", "needs --local-sgd"],
                             ["--outer-deltas=int8", "needs --local-sgd"]):
            self.holds(flags, "pc-compile", "model.mlir", "--mesh", "outer=2", flags, "-o", "bad", code=2, words=words)
        self.holds("deltas of other types", "pc-compile", "model.mlir", "--mesh", "outer=2", "--local-sgd=outer:4", "--outer-deltas=int4", "-o", "bad", code=2, words="f32 or int8")
        self.holds("deltas of many replicas", "pc-compile", "model.mlir", "--mesh", "outer=8", "--local-sgd=outer:4", "--outer-deltas=int8", "-o", "bad", code=4, words="at most 7")
        self.holds("an axis of data parallelism, too", "pc-compile", "model.mlir", "--mesh", "dp=2", "--local-sgd=dp:4", "-o", "bad", code=4, words="train separately")
        self.holds("spikes", *self.train("rounds", "outer=2", "--skip-spikes", 3), code=2, words="have different norms and gradients")


draw = random.Random(4)
case = Rounds("rounds " + " ".join(sys.argv[1:]))
case.run(case.body)
