#!/usr/bin/env python3
"""usage: test/EndToEnd/members.py quick|all

Tests open local SGD: members (runs of one replica) that come and go, and meet at pc-meet. The members that stay have
the same parameters bit by bit, whichever member dies in whichever phase of a round. With rounds of one step two members
train as a mesh of two replicas does. The log of a meeting, replayed, makes the same bits."""
import errno
import hashlib
import hmac
import json
import os
import random
import signal
import socket
import struct
import sys
import time

from cases import BUILD, STAND_IN, Case, ranks_of

EVERY, SEQUENCE, BATCH = 4, 16, 2
LONG = sys.argv[1] == "all"
FAULTS = BUILD / "test/Runtime/core/libcore-failing-writes.so"
FLAGS = ["--data", "tokens.bin", "--seed", 7, "--lr", 0.01]
HELLO, BEGIN, CLOSE, ARRIVE, MEAN, ASK, STATE, LEAVE, REFUSE = range(1, 10)
HEAD, FIELDS = struct.Struct("<IIQ"), struct.Struct("<Q64s64siiqqqqqQ")
SECRET = "known to members alone"


class Fake:
    """A member of one rank that speaks the protocol, trains nothing, and dies in a phase."""

    def __init__(self, port, name, program, elements, every, before):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.elements, self.before = elements, before
        self.greet(name)
        self.hello = HEAD.pack(HELLO, 0, FIELDS.size) + FIELDS.pack(0x3154454d4350, name.encode(), program.encode(), 0, 1, 0, every, BATCH, 0, elements, 0)

    def greet(self, name):
        """Both ends prove that they know the secret (comm/Handshake.h)."""
        mine = struct.pack("<QQiiii32s64s", 0x706372746d656502, 0, 0, 1, 0, 0, os.urandom(32), name.encode())
        self.socket.sendall(mine)
        greetings = mine + self.take(len(mine))
        self.socket.sendall(hmac.digest(SECRET.encode(), b"\0\0" + greetings, hashlib.sha256))
        answer = self.take(33)
        assert answer == b"\0" + hmac.digest(SECRET.encode(), b"\1\0" + greetings, hashlib.sha256)
        self.socket.sendall(b"\1")

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def message(self):
        kind, _, count = HEAD.unpack(self.take(HEAD.size))
        return kind, self.take(count)

    def until(self, wanted):
        while True:
            kind, body = self.message()
            if kind == wanted:
                return body

    def live(self, phase):
        """Until its death: phases in the order of a member's life."""
        if phase == "in hello":
            return self.socket.sendall(self.hello[:50])
        self.socket.sendall(self.hello)
        if phase == "after hello":
            return None
        if phase == "in state":
            while HEAD.unpack(self.take(HEAD.size))[0] != STATE:
                pass
            return self.take(100)
        state = self.until(STATE)
        self.begin = struct.unpack("<qqq", self.until(BEGIN))
        if phase == "in the steps":
            return time.sleep(0.05)
        if phase == "as donor": # there is a member that asks for it
            self.before()
            time.sleep(1)
        arrive = HEAD.pack(ARRIVE, 0, 24 + 4 * self.elements) + struct.pack("<qqQ", self.begin[0], self.begin[1], struct.unpack("<qQ", state[:16])[1]) + state[16:16 + 4 * self.elements]
        if phase == "with another sum":
            self.socket.sendall(arrive[:32] + bytes([arrive[32] ^ 1]) + arrive[33:])
            return self.until(REFUSE)
        if phase == "in arrival":
            return self.socket.sendall(arrive[:len(arrive) // 2])
        self.socket.sendall(arrive)
        if phase == "after arrival":
            return None
        if phase == "in the mean":
            while HEAD.unpack(self.take(HEAD.size))[0] != MEAN:
                pass
            return self.take(100)
        self.until(MEAN)
        if phase == "after the mean":
            return None
        self.until(ASK)
        self.socket.sendall(HEAD.pack(STATE, 0, 16 + 8 * self.elements) + state[:100])
        return None

    PHASES = ["in hello", "after hello", "in state", "in the steps", "in arrival", "after arrival", "in the mean", "after the mean", "as donor", "with another sum"]

    def die(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Members(Case):
    def meet(self, *flags, **environment):
        """A meeting; its port."""
        self.meeting = self.start("pc-meet", *([] if "--patience" in flags else ["--patience", 30]), *flags, **environment)
        return int(self.meeting.stdout.readline().split()[-1])

    def member(self, name, steps, *flags, program="open", mesh="1"):
        return self.start("pc-run", "--no-pin", "-n", ranks_of(mesh), f"./{program}", "--", *FLAGS, "--steps", steps, "--meet", f"127.0.0.1:{self.port}", "--name", name,
                          "--save", f"{name}.end", "--metrics", f"{name}.jsonl", *flags)

    def ends(self, name, process, code=0):
        out, err = process.communicate(timeout=120)
        return self.check(f"{name}: exit {code}", process.returncode == code, f"{process.returncode}\n{out[-1000:]}{err[-2000:]}")

    def model_of(self, name):
        path = self.work / f"{name}.end/model.safetensors"
        return path.read_bytes() if path.exists() else None

    def outer_momentum(self, name):
        data = (self.work / f"{name}.end/training_state.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        return {tensor: data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
                for tensor, entry in header.items() if tensor.startswith("outer_momentum.")}

    def same(self, what, *names):
        models = [self.model_of(name) for name in names]
        self.check(f"{what}: the same parameters", all(model and model == models[0] for model in models))
        self.check(f"{what}: the same momentum", all(self.outer_momentum(name) == self.outer_momentum(names[0]) for name in names))
        return models[0]

    def rounds(self, name):
        return [json.loads(line) for line in open(self.work / name)]

    def compiled(self, program, mesh, every, *flags):
        self.needs("pc-compile", "model.mlir", "--mesh", mesh, f"--local-sgd=outer:{every}", *flags, "-o", program)

    def run_all(self, steps, names, *meeting, **program):
        self.port = self.meet(*meeting)
        processes = {name: self.member(name, steps, **program) for name in names}
        for name, process in processes.items():
            self.ends(name, process)
        self.ends("meeting", self.meeting)

    def stay(self, program="open", mesh="1"):
        """Nobody comes or goes."""
        log = f"{program}.log"
        self.run_all(4 * EVERY, "ab", "--min-members", 2, "--log", log, program=program, mesh=mesh)
        first = self.same(program, "a", "b")
        told = self.rounds(log)
        self.check(f"{program}: the log", [(line["round"], line["members"]) for line in told] ==
                   [(i, {name: {"steps": EVERY, "first": (2 * i + number) * EVERY * BATCH} for number, name in enumerate("ab")}) for i in range(4)], told)
        self.run_all(4 * EVERY, "ba", "--replay", log, program=program, mesh=mesh)
        self.check(f"{program}: replayed, the same bits", self.same(f"{program}, replayed", "a", "b") == first)

    def broken_log(self):
        """The disk of the log is full from its second line on: the members go on, and a log that lacks a round is not replayed."""
        self.port = self.meet("--min-members", 2, "--log", "full.log", LD_PRELOAD=str(FAULTS), FAIL_FILE="full.log", FAIL_FROM="2", FAIL_ERROR=str(errno.ENOSPC))
        for name, process in [(name, self.member(name, 4 * EVERY)) for name in "ab"]:
            self.ends(f"a full log, {name}", process)
        err = self.meeting.communicate(timeout=60)[1]
        self.check("a full log: a warning", self.meeting.returncode == 0 and err.count("warning: cannot write full.log") == 1 and len(self.rounds("full.log")) == 1, err)
        lines = (self.work / "open.log").read_text().splitlines(True)
        (self.work / "gap.log").write_text("".join(lines[:1] + lines[2:]))
        self.holds("a log that lacks a round", "pc-meet", "--replay", "gap.log", code=9, words="gap.log: round 1 is missing")

    def among_strangers(self):
        """Somebody calls the meeting all the time, and knows everything but the secret: the same bits, and the same log."""
        log = "strangers.log"
        self.port = self.meet("--min-members", 2, "--log", log)
        stranger = self.start(BUILD / "test/Runtime/comm/comm-strangers", self.port, "a")
        steps = 400 * EVERY if LONG else 100 * EVERY
        processes = {"a": self.member("a", steps)}
        self.check("strangers: 1000 calls before the first round", stranger.stdout.readline() == "1000 calls\n")
        processes["b"] = self.member("b", steps)
        for name, process in processes.items():
            self.ends(f"among strangers, {name}", process)
        self.ends("among strangers, meeting", self.meeting)
        self.ends("strangers", stranger)
        told, bits = (self.work / log).read_bytes(), self.same("among strangers", "a", "b")
        self.run_all(steps, "ab", "--min-members", 2, "--log", "alone.log")
        self.check("among strangers: the log of a meeting without them", told == (self.work / "alone.log").read_bytes())
        self.check("among strangers: the same bits", self.same("alone", "a", "b") == bits)
        self.holds("another secret", "pc-run", "./open", "--", *FLAGS, "--meet", f"127.0.0.1:{self.meet()}", "--name", "a", "--steps", EVERY, code=8,
                   words="it closed the connection; is PCRT_SECRET the same on both sides", PCRT_SECRET="other", PCRT_TIMEOUT_SECONDS="3")
        self.meeting.kill()
        self.holds("no secret, a member", "./open", *FLAGS, "--meet", "192.0.2.1:1", "--name", "a", "--steps", EVERY, code=2, words="give all of them the same PCRT_SECRET", PCRT_SECRET="")
        self.holds("no secret, a meeting", "pc-meet", "--listen", "0.0.0.0", code=2, words="give all of them the same PCRT_SECRET", PCRT_SECRET="")
        self.holds("nobody's address", "pc-meet", "--listen", "192.0.2.1", code=6, words="cannot listen on 192.0.2.1")

    def as_a_mesh(self):
        self.compiled("each", "outer=open", 1)
        self.compiled("mesh", "outer=2", 1)
        self.run_all(8, "ab", "--min-members", 2, program="each")
        self.needs("pc-run", "-n", 2, "./mesh", "--", *FLAGS, "--steps", 8, "--metrics", "mesh.jsonl")
        losses = [[json.loads(line)["loss"] for line in open(self.work / f"{name}.jsonl")] for name in ("a", "b", "mesh")]
        worst = max(abs((a + b) / 2 - both) / both for a, b, both in zip(*losses, strict=True))
        self.check("rounds of a step: the losses of a mesh of two", worst < 1e-5, losses, f"{worst:.1e}")

    def dies(self, phase, name):
        """A joining member dies; `name` decides whether it precedes or follows the others in order."""
        log = f"{phase}, {name}.log"
        for replay in ([], ["--replay", log]) if LONG or phase == "after arrival" else ([],):
            self.port = self.meet("--min-members", 2, *(replay or ["--log", log]))
            for stays in "mn":
                (self.work / f"{stays}.jsonl").unlink(missing_ok=True)
            processes = [self.member(stays, 30 * EVERY) for stays in ("m", "n")]
            while not replay and not ((self.work / "m.jsonl").exists() and (self.work / "m.jsonl").stat().st_size):
                time.sleep(0.002)
            self.trajectory = self.trajectory or json.loads((self.work / "a.end/trajectory.json").read_text())
            fake = Fake(self.port, name, self.trajectory["program"], self.elements, EVERY, lambda: processes.append(self.member("q", 30 * EVERY)))
            try:
                wasIn = replay and any(name in line["members"] for line in self.rounds(log))
                fake.live("after the mean" if wasIn and phase == "after arrival" else phase) # it may die before anybody has seen it arrive
            except ConnectionError:
                pass
            fake.die()
            for process in processes:
                self.ends(f"{phase}, {name}", process)
            self.ends("meeting", self.meeting)
            bits = self.same(f"{phase}, {name}", "m", "n", *["q"][:len(processes) - 2])
            if replay:
                self.check(f"{phase}, {name}: replayed, the same bits", bits == first)
            first = bits

    def body(self):
        self.trajectory = None
        self.environment = {"PCRT_THREADS": "1", "PCRT_SECRET": SECRET}
        self.model("gpt2", BATCH, SEQUENCE)
        (self.work / "tokens.bin").write_bytes(b"".join(struct.pack("<H", draw.randrange(64)) for _ in range(8000)))
        self.compiled("open", "outer=open", EVERY)
        self.stay()
        self.broken_log()
        self.among_strangers()
        header = self.model_of("a")
        shapes = json.loads(header[8:8 + struct.unpack("<Q", header[:8])[0]])
        self.elements = sum((entry["data_offsets"][1] - entry["data_offsets"][0]) // 4 for name, entry in shapes.items() if name != "__metadata__")
        for phase in Fake.PHASES if LONG else ["in state", "after arrival", "as donor", "with another sum"]:
            for name in ("z", "c") if LONG and phase != "as donor" else ("c",): # the first one is asked
                self.dies(phase, name)
        if LONG:
            self.as_a_mesh()
            self.compiled("open2", "outer=open,dp=2", EVERY, "--zero=3")
            self.stay("open2", "dp=2")
            self.compiled("device", "outer=open", EVERY, "--target=cuda", "--arch=sm_90a", "--stand-in")
            self.environment |= STAND_IN
            self.stay("device")
            for name in STAND_IN:
                del self.environment[name]
            for number in range(10):
                self.come_and_go(number)
            self.slow()
        self.holds("an open axis without rounds", "pc-compile", "model.mlir", "--mesh", "outer=open", "-o", "bad", code=2, words="needs replicas that train separately")
        self.holds("codes", "pc-compile", "model.mlir", "--mesh", "outer=open", "--local-sgd=outer:4", "--outer-deltas=int8", "-o", "bad", code=2, words="whose members exchange f32")
        self.holds("no name", "./open", *FLAGS, "--meet", "127.0.0.1:1", "--steps", 4, code=2, words="needs --name")
        self.holds("part of a round", "./open", *FLAGS, "--meet", "127.0.0.1:1", "--name", "a", "--steps", 5, code=2, words="a multiple of the 4 steps")

    def slow(self):
        """A member that stands still now and then counts for less, or is given up and joins again; replayed, the same bits."""
        self.port = self.meet("--min-members", 2, "--patience", 0.2, "--log", "slow.log")
        (self.work / "b.jsonl").unlink(missing_ok=True)
        processes = {name: self.member(name, 300 * EVERY) for name in "abc"}
        ranks = []
        while not ranks or not (self.work / "b.jsonl").exists() or not (self.work / "b.jsonl").stat().st_size:
            ranks = open(f"/proc/{processes['b'].pid}/task/{processes['b'].pid}/children").read().split()
        for _ in range(6):
            time.sleep(draw.uniform(0.05, 0.15))
            if processes["b"].poll() is None:
                os.kill(int(ranks[0]), signal.SIGSTOP)
                time.sleep(0.8)
                os.kill(int(ranks[0]), signal.SIGCONT)
        for name, process in processes.items():
            self.ends(f"slow, {name}", process)
        self.ends("slow, meeting", self.meeting)
        bits = self.same("slow", *processes)
        fewer = [line["members"]["b"]["steps"] for line in self.rounds("slow.log") if line["members"].get("b", {}).get("steps", EVERY) < EVERY]
        self.check("slow: it counts for less", fewer, found=fewer)
        self.run_all(300 * EVERY, "abc", "--replay", "slow.log")
        self.check("slow: replayed, the same bits", self.same("slow, replayed", *processes) == bits)

    def too_late(self, what, process):
        """It came when the others had left: the meeting has refused it, or was gone before it came; then it waits for one, in which it makes its steps."""
        while process.poll() is None:
            if self.meeting.poll() is not None:
                self.meet("--port", self.port, "--min-members", 1)
            time.sleep(0.05)
        out, err = process.communicate()
        self.check(f"{what}: refused, or alone in a meeting", process.returncode in (7, 0), f"{process.returncode}\n{out[-1000:]}{err[-2000:]}")
        self.meeting.kill()
        self.meeting.wait()

    def come_and_go(self, number):
        """Members are killed and others join at random times; replayed, whoever was there makes the same bits."""
        log, steps = f"random{number}.log", 60 * EVERY
        self.port = self.meet("--min-members", 1, "--log", log)
        alive = {name: self.member(name, steps) for name in "abc"}
        for new in "defgh"[:draw.randrange(1, 5)]:
            time.sleep(draw.uniform(0.05, 0.4))
            if draw.random() < 0.6 and len(alive) > 1:
                victim = alive.pop(draw.choice(sorted(alive)))
                os.killpg(victim.pid, signal.SIGKILL)
                victim.communicate()
            alive[new] = self.member(new, steps)
        self.ends(f"random {number}, meeting", self.meeting)
        told = self.rounds(log)
        for name, process in list(alive.items()):
            if any(name in line["members"] for line in told):
                self.ends(f"random {number}, {name}", process)
            else:
                self.too_late(f"random {number}, {name}, too late", alive.pop(name))
        bits = self.same(f"random {number}", *alive)
        everybody = sorted({name for line in told for name in line["members"]})
        self.check(f"random {number}: every round once", [line["round"] for line in told] == list(range(60)), told,
                   f"{len(everybody)} members, {sum(len(line['joined']) for line in told)} joined, {sum(len(line['lost']) for line in told)} lost")
        self.port = self.meet("--replay", log)
        again = {name: self.member(name, steps) for name in everybody}
        for name, process in again.items():
            process.communicate(timeout=120)
        self.meeting.communicate(timeout=60)
        self.check(f"random {number}: replayed, the same bits", all(self.model_of(name) == bits for name in alive))


draw = random.Random(int(os.environ.get("PC_SEED", "6")))
case = Members("members " + " ".join(sys.argv[1:]))
case.run(case.body)
