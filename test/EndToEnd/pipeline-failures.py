#!/usr/bin/env python3
"""usage: test/EndToEnd/pipeline-failures.py TIMES [cuda]

Kills (SIGKILL), stops (SIGSTOP) or slows (stops and continues, again and again) a rank of a pipeline at a random moment
of a random schedule. Every time the run must end with 7 or 8 within the deadline, name a rank, its stage and its place
in the schedule, and leave no process or file. A rank that is slowed by less than the deadline is no error: its run
continues. cuda: on the stand-in, also with other plans, and a rank that fails by itself (its data end too early, exit
9) replaces slow ones. From 20 TIMES on, the test repeats until a rank was killed, and one stopped, in a task that
recomputes, and the run named that task.

The deadline is 3 s. If ranks without a fault miss it, because the machine is busy, it is doubled, up to 24 s."""
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from cases import GOLDEN, HERE, STAND_IN, Case, ranks_of

TIMES, CUDA = int(sys.argv[1]), "cuda" in sys.argv
EARLY = "ended before it was harmed: "
TASK = r"in [a-z]+ of microbatch [0-9]+, chunk [0-9]+ \(stage [0-9]+\)\)|in the optimizer \(stage [0-9]+\)\)|waiting for rank"
# On a device, messages say where a run was.
MESSAGE = (r"(sending|receiving) message [0-9]+ of '[a-z ]+ of chunk [0-9]+ from stage [0-9]+ to stage [0-9]+'|.* of group|before the first move of step [0-9]+"
           if CUDA else "$^")


def slow(pid, stopped, running, times):
    """Stops it and lets it go on, in seconds; until there is no such process."""
    try:
        for _ in range(times):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(stopped)
            os.kill(pid, signal.SIGCONT)
            time.sleep(running)
    except ProcessLookupError:
        pass


def read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


class Failures(Case):
    def leftovers(self):
        """Returns processes of this test and files in /dev/shm. Sockets end with their processes, and so do shared files, which have
        no names there."""
        ours = [pid for pid in os.listdir("/proc") if pid.isdigit() and read(f"/proc/{pid}/cmdline").startswith(f"{self.work}/train")]
        return ours + [name for name in os.listdir("/dev/shm") if "pcrt" in name.lower()]

    def harm(self, *what):
        """One run with a rank harmed after a while; says what is wrong with it."""
        why = self.harm_once(*what)
        while why.startswith(EARLY) and "no answer within" in why and self.deadline < 24:
            self.deadline *= 2
            why = self.harm_once(*what)
        return why

    def harm_once(self, how, program, transport, ranks, victim, delay):
        out, err, metrics = self.work / "out", self.work / "err", self.work / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        self.data.write_bytes((GOLDEN / "gpt2/tokens.bin").read_bytes())
        with open(out, "w") as said, open(err, "w") as errors:
            launcher = self.start("pc-run", "-n", ranks, "--timeout", self.deadline, program, "--data", self.data, "--steps", 1000000,
                                  "--seed", 1, "--metrics", metrics, stdout=said, stderr=errors, PCRT_TRANSPORT=transport)
        watchdog = threading.Timer(60 + 10 * self.deadline, launcher.kill)
        watchdog.start()
        try:
            return self.harmed(how, launcher, victim, delay, transport, out, err, metrics)
        finally:
            watchdog.cancel()

    def harmed(self, how, launcher, victim, delay, transport, out, err, metrics):
        # When there is a progress line, the steps are running.
        while "step" not in read(out) and launcher.poll() is None:
            time.sleep(0.02)
        time.sleep(delay)
        if launcher.poll() is not None:
            return EARLY + read(err)
        ranks = read(f"/proc/{launcher.pid}/task/{launcher.pid}/children").split()
        pid = next(int(pid) for pid in ranks if f"PCRT_RANK={victim}" in read(f"/proc/{pid}/environ").split("\0"))
        before = read(metrics).count("\n")
        if how == "SLOW":
            slow(pid, 0.3, 0.05, 6)
            if launcher.poll() is not None or read(metrics).count("\n") <= before:
                launcher.kill()
                launcher.wait()
                return "slowed by less than the deadline, the run did not go on: " + read(err)
        start = time.monotonic()
        does = {"SLOW": (slow, pid, self.deadline + 2, 0.02, 10), "FAIL": (os.truncate, self.data, 0)}
        does = does.get(how) or (os.kill, pid, getattr(signal, f"SIG{how}"))
        harming = threading.Thread(target=does[0], args=does[1:])
        harming.start()
        code, took, said = launcher.wait(), time.monotonic() - start, read(err)
        harming.join()
        kind = re.search("(forward|recompute|backward|weight)(?= of microbatch)|the optimizer|between|before", said)
        self.seen[kind[0] if kind else "elsewhere"] += 1
        lost = rf"no answer within {self.deadline} s from rank "
        # The data of the current step and of the next one have been read.
        slowest = max(map(float, re.findall(r'"step_seconds": ([0-9.]+)', read(metrics))), default=0)
        if how == "KILL":
            wanted = [(code == 7, f"exit code {code}, not 7"), (took < 10, f"took {took:.1f} s"),
                      (re.search(rf"rank {victim} was killed by signal 9 \(Killed\)( in .*stage [0-9]+\)|.*({MESSAGE}))", said),
                       f"does not name rank {victim} and its task")]
        elif how == "FAIL":
            wanted = [(code == 9, f"exit code {code}, not 9"), (took < 10 + 3 * slowest, f"took {took:.1f} s, steps up to {slowest} s"),
                      ("was truncated while it was being read" in said, "does not say why")]
        else:
            wanted = [(code == 8, f"exit code {code}, not 8"), (took < self.deadline + 12, f"took {took:.1f} s"),
                      (re.search(lost + "[0-9]+ .* in (receive of|send of|'[a-z_]+ |the first move)", said), "does not name the op that waits"),
                      ((how, transport) != ("STOP", "tcp") or re.search(rf"{lost}{victim} \(it does not answer", said),
                       f"does not blame rank {victim}"), (re.search(f"{TASK}|{MESSAGE}", said), "does not name the task")]
        wrong = [why for good, why in wanted if not good]
        return f"{', '.join(wrong)}: {said[:2000]}" if wrong else ""

    def in_recompute(self, how, transport):
        """Harms rank 0 of a pipeline with recomputation until it is in one of those tasks."""
        for _ in range(60):
            why = self.harm(how, "./recomputes", transport, 2, 0, random.uniform(0.1, 0.4))
            found = re.search(r"rank 0.* in recompute of microbatch [0-9]+, chunk 0 \(stage 0\)", read(self.work / "err"))
            if why or found:
                break
        self.check(f"{how} in a task that recomputes: the run names it", found and not why, why or "in 60 runs rank 0 was in no such task")

    def body(self):
        self.environment = STAND_IN | {"PC_STANDIN_DEVICES": "4"} if CUDA else {}
        target = ["--target=cuda", "--arch=sm_90a", "--stand-in"] if CUDA else []
        self.seen, self.data, self.deadline, harmed = Counter(), self.work / "tokens.bin", 3, 0
        model = self.model("gpt2", 8)
        which = "cuda" if CUDA else "many" if TIMES >= 20 else "few"
        plans = re.findall(f"(?m)^{which} (.*)", read(HERE / "Inputs/pipelines.txt"))
        for i, plan in enumerate(plans):
            mesh, _, *flags = plan.split()
            self.needs("pc-compile", model, "-o", f"train{i}", "--mesh", mesh, "--microbatches=4", *flags, *target)
        # Steps on the stand-in can be slower than the deadline even if nothing is wrong.
        ways = ["KILL", "STOP", "FAIL" if CUDA else "SLOW"]
        for i in range(TIMES):
            which = i // 3 % len(plans)
            mesh, transport, *_ = plans[which].split()
            victim, delay = random.randrange(ranks_of(mesh)), random.uniform(0.1, 0.4)
            why = self.harm(ways[i % 3], self.work / f"train{which}", transport, ranks_of(mesh), victim, delay)
            if why:
                self.check(f"{plans[which]}: rank {victim}, {ways[i % 3]} after {delay:.3f} s", False, why)
            harmed += not why
            if self.leftovers():
                time.sleep(1)
                if left := self.leftovers():
                    self.check("nothing left behind", False, f"{left} after {plans[which]}")
        if TIMES >= 20:
            # The model is so large that ranks work longer than they wait. On the stand-in any model is large enough.
            model, transport = (model, "tcp") if CUDA else (self.model(HERE / "Inputs/large", 8, 256, to="large.mlir"), "shm")
            self.needs("pc-compile", model, "-o", "recomputes", *"--mesh pp=2 --microbatches=4 --pipeline=gpipe --recompute=full".split(), *target)
            self.in_recompute("KILL", transport)
            self.in_recompute("STOP", transport)
        self.check(f"{TIMES} random times: exit 7 or 8 (9 of a rank that fails), naming rank, stage and task", harmed == TIMES, f"{harmed} of them",
                   f"deadline {self.deadline} s, {dict(self.seen)}")
        self.check("nothing left behind", not self.leftovers(), self.leftovers())


failures = Failures("pipeline-failures" + "-cuda" * CUDA)
failures.run(failures.body)
