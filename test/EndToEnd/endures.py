#!/usr/bin/env python3
"""usage: test/EndToEnd/endures.py few|dp|pp|zero3

Tests that a run endures: signals, with and without nohup; full or broken disks under its outputs; checkpoints that take
three times the timeout; the suspension of all ranks for longer than the timeout; a terminal that is never read. Each is
tried on each transport, for data parallelism, a pipeline and ZeRO-3. The run must continue, or save and end with its
documented code. few, for the quick run: a few rows."""
import errno
import os
import shutil
import signal
import sys
import termios
import time
from pathlib import Path

from cases import BUILD, GOLDEN, MPI, Case, ranks_of

PLANS = {"dp": "dp=2", "pp": "pp=2 --microbatches=4", "zero3": "dp=2 --zero=3"}
ALL = sys.argv[1] in PLANS
TRANSPORTS = ["shm", "tcp", "virtual", "mpi"]
FAULTS = f"{BUILD}/test/Runtime/core/libcore-failing-writes.so"
TIMEOUT, ENDLESS = 2, 10**8
# For each kind of output: a part of its file's path, the number of the first write that fails, and flags.
OUTPUTS = {"metrics": ("metrics.jsonl", 4, "--metrics", "metrics.jsonl"), "tensorboard": ("tfevents", 4, "--tensorboard", "curves"), "trace": ("trace.json", 1, "--trace", "trace.json"),
           "stdout": ("stdout.txt", 1), "stderr": ("stderr.txt", 1), "summary": ("summary.json", 1, "--summary", "summary.json"),
           "dump-grads": ("grads.st", 2, "--dump-grads", "grads.st"), "dump-logits": ("logits.st", 2, "--dump-logits", "logits.st"),
           "dump-routing": ("routing.st", 8, "--dump-routing", "routing.st"),
           "checkpoint": ("/series/", 1, "--checkpoint", "series", "--every", 5), "save": ("/saved.tmp", 1, "--checkpoint", "series", "--every", 20)}


def descendants(pid):
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [one for child in children for one in descendants(child)]


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Endures(Case):
    def launch(self, plan, transport, *flags, ignored=None, faults=None, **more):
        """Starts a run; the number of an ignored signal, and what failing_writes.c reads."""
        environment = {"FAIL_ERROR": "0", **{name: str(value) for name, value in (faults or {}).items()}}
        # The process that runs the test may ignore signals, as nohup does.
        ignores = ["env", "--default-signal", *([f"--ignore-signal={ignored}"] if ignored else [])]
        preload = ["env", f"LD_PRELOAD={FAULTS}"] if faults else []
        ranks = ranks_of(PLANS[plan].split()[0])
        program, model = (f"{plan}-experts", "mixtral") if "--dump-routing" in flags else (plan, "gpt2")
        for directory in ("saved", "series"):
            shutil.rmtree(self.work / directory, ignore_errors=True)
        (self.work / "metrics.jsonl").unlink(missing_ok=True)
        if transport == "mpi":  # mpirun has its own ways with signals
            # Text that ranks print to their own files does not pass through mpirun.
            kept = "; ".join(f"exec {number}>>{name}.txt" for number, name in ((1, "stdout"), (2, "stderr")) if (faults or {}).get("FAIL_FILE") == f"{name}.txt")
            start = ["mpirun", "--oversubscribe", "-n", ranks, *(["sh", "-c", f'{kept}; exec "$@"', "sh"] if kept else []), *ignores, *preload]
            environment |= MPI | {"PCRT_TIMEOUT_SECONDS": str(TIMEOUT), "PCRT_TRANSPORT": "mpi"}
        else:
            start = [*ignores, "pc-run", "--timeout", TIMEOUT, *(["--virtual"] if transport == "virtual" else []), "-n", ranks, *preload]
            if ignores:
                start[start.index("pc-run")] = BUILD / "bin/pc-run"
            environment |= {"PCRT_TRANSPORT": transport}
        return self.start(*start, f"./{program}", "--data", GOLDEN / model / "tokens.bin", "--save", "saved", *flags, **environment, **more)

    def lines(self):
        path = self.work / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_for(self, process, condition):
        end = time.monotonic() + 60
        while not condition() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        return condition()

    def ends(self, name, process, codes, words=(), where="saved"):
        """The run ends with one of the codes and has saved."""
        try:
            out, err = process.communicate(timeout=120)
        except Exception as error:
            signal_all([process.pid, *descendants(process.pid)], signal.SIGKILL)
            return self.check(name, False, f"did not end: {error}")
        said = (out or "") + (err or "")
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        saved = (self.work / where / "trajectory.json").exists()
        good = code in codes and saved and all(word in said for word in words) and "''" not in said
        return self.check(name, good, f"$ {process.text}\nexit {code}, not {codes}; {'saved' if saved else 'NOT SAVED'}; wanted {words}: {said[-1500:]}")

    def signalled(self, plan, transport, name, ignored):
        """SIGINT that is ignored is one of a shell's background: keys do not send it, and `kill` means the run."""
        number = getattr(signal, f"SIG{name}")
        process = self.launch(plan, transport, "--steps", ENDLESS, "--metrics", "metrics.jsonl", ignored=name if ignored else None)
        self.wait_for(process, lambda: self.lines() > 5)
        target = process.pid
        if transport == "mpi":
            ranks = [pid for pid in descendants(process.pid) if Path(f"/proc/{pid}/exe").resolve().name == plan]
            target = ranks[-1] if ranks else target
        signal_all([target], number)
        title = f"{plan}, {transport}: SIG{name}" + (", ignored" if ignored else "")
        if ignored and not (name == "INT" and transport != "mpi"):
            time.sleep(0.5)
            before = self.lines()
            going = self.wait_for(process, lambda: self.lines() > before + 5)
            self.check(f"{title}: goes on", going and process.poll() is None, "the run has ended")
            number = signal.SIGTERM if name != "TERM" else signal.SIGUSR1
            signal_all([target], number)
        self.ends(f"{title}: saves", process, [128 + number])

    def broken(self, plan, transport, output, number):
        file, begin, *flags = OUTPUTS[output]
        files = {output: open(self.work / file, "w")} if output in ("stdout", "stderr") and transport != "mpi" else {}
        process = self.launch(plan, transport, "--steps", 30, *flags, faults={"FAIL_FILE": file, "FAIL_ERROR": number, "FAIL_FROM": begin}, **files)
        # If a result is lost, the exit code shows it, after the save.
        lost = output not in ("metrics", "tensorboard", "trace", "stderr")
        words = [] if output == "stderr" else ["cannot write" if output in ("summary", "save", "checkpoint") else "warning: cannot write"]
        self.ends(f"{plan}, {transport}: {errno.errorcode[number]} under {output}", process, [6] if lost else [0], words,
                  "series/step-00000030" if output == "save" else "saved")

    def slow(self, plan, transport, *flags):
        process = self.launch(plan, transport, "--steps", 8, *flags, faults={"SLOW_SYNC": 3 * TIMEOUT})
        self.ends(f"{plan}, {transport}: {'checkpoints' if flags else 'a save'} of three times the timeout", process, [0])

    def suspended(self, plan, transport, seconds):
        process = self.launch(plan, transport, "--steps", ENDLESS, "--metrics", "metrics.jsonl")
        self.wait_for(process, lambda: self.lines() > 5)
        everyone = [process.pid, *descendants(process.pid)]
        signal_all(everyone, signal.SIGSTOP)
        time.sleep(seconds)
        before = self.lines()
        signal_all(everyone, signal.SIGCONT)
        self.wait_for(process, lambda: self.lines() > before + 5)
        ranks = descendants(process.pid)
        signal_all([ranks[-1] if transport == "mpi" and ranks else process.pid], signal.SIGTERM)
        self.ends(f"{plan}, {transport}: suspended for {seconds} s", process, [143])

    def unheard(self, plan, transport):
        """Nobody reads what rank 0 prints any more, as with `| head -1`."""
        if transport == "mpi":  # mpirun reads it
            return
        reader, end = os.pipe()
        process = self.launch(plan, transport, "--steps", ENDLESS, "--metrics", "metrics.jsonl", stdout=end)
        os.close(end)
        self.wait_for(process, lambda: self.lines() > 5)
        os.close(reader)
        self.ends(f"{plan}, {transport}: a reader that has gone", process, [141])

    def unread(self, plan, transport):
        terminal, end = os.openpty()
        termios.tcflow(end, termios.TCOOFF)
        process = self.launch(plan, transport, "--steps", 200, stdout=end, stderr=end)
        if transport == "mpi":  # mpirun itself waits for the terminal, but the ranks do not
            self.wait_for(process, (self.work / "saved/trajectory.json").exists)
            termios.tcflow(end, termios.TCOON)
        self.ends(f"{plan}, {transport}: a stopped terminal", process, [0])
        os.close(end)
        os.close(terminal)

    def body(self):
        transports = TRANSPORTS if shutil.which("mpirun") else TRANSPORTS[:3]
        if len(transports) < 4:
            print("mpirun is not here: mpi is not tested")
        model = self.model("gpt2", 4)
        plans = [sys.argv[1]] if ALL else ["dp", "pp"]
        experts = self.model("mixtral", 4, to="experts.mlir")
        for plan in plans:
            mesh, *flags = PLANS[plan].split()
            for source, program in ((model, plan), (experts, f"{plan}-experts")):
                self.needs("pc-compile", source, "-o", program, "--mesh", mesh, *flags)
        table = [(self.signalled, plan, transport, name, ignored) for plan in plans for transport in transports
                 for name in ("TERM", "INT", "USR1", "HUP") for ignored in (False, True)]
        table += [(self.broken, plan, transport, output, number) for plan in plans for transport in transports
                  for output in OUTPUTS for number in (errno.ENOSPC, errno.EIO)]
        for each in (self.slow, lambda *run: self.slow(*run, "--checkpoint", "series", "--every", 4), lambda *run: self.suspended(*run, 30 if ALL else 2 * TIMEOUT), self.unread, self.unheard):
            table += [(each, plan, transport) for plan in plans for transport in transports]
        if not ALL:
            table = [(self.signalled, "dp", "shm", "HUP", False), (self.signalled, "dp", "tcp", "HUP", True), (self.signalled, "dp", "shm", "INT", True),
                     (self.broken, "dp", "shm", "metrics", errno.ENOSPC), (self.broken, "dp", "virtual", "tensorboard", errno.EIO),
                     (self.broken, "dp", "shm", "trace", errno.ENOSPC), (self.broken, "pp", "shm", "dump-grads", errno.ENOSPC),
                     (self.broken, "dp", "tcp", "dump-routing", errno.EIO), (self.broken, "dp", "shm", "checkpoint", errno.ENOSPC),
                     (self.broken, "dp", "shm", "save", errno.ENOSPC),
                     (self.slow, "dp", "shm"), (self.slow, "pp", "tcp"), (self.suspended, "pp", "shm", 2 * TIMEOUT),
                     (self.suspended, "pp", "tcp", 2 * TIMEOUT), (self.unread, "dp", "shm")]
        for what, *row in table:
            what(*row)


endures = Endures(f"endures {sys.argv[1]}")
endures.run(endures.body)
