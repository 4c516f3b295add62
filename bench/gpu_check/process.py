"""Runs one program with a time limit, and leaves none of its processes alive, whatever ends it.

A keeper process does this: it starts the program in a session of its own, adopts the orphans of the program's
processes, and kills all of them when the program ends, when its time is over, or when the calling process is gone, even
by SIGKILL."""

import ctypes
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)
# A process that waits inside of a driver may not die: after this many seconds it is left alone, and told.
SECONDS_TO_DIE = 2.0


@dataclass
class Outcome:
    """How a program ended. Standard output and standard error lie in files of their own: what is parsed is never mixed with warnings."""

    code: int  # as a shell has it: 128 + n for signal n; 124 where `late`
    late: bool  # it was ended because its time was over
    seconds: float
    left: int  # processes that could not be killed
    out: Path
    err: Path

    def output(self):
        return self.out.read_text(errors="replace")

    def last_line(self):
        """The last message: an error if there is one. A program's own error is preferred to that of a launcher about its end."""
        lines = [line for path in (self.out, self.err) for line in path.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        own = [line for line in errors if "ended with exit code" not in line]
        return (own or errors or lines or [f"exit {self.code}, not a word"])[-1].strip()[:300]


def run(command, seconds, folder, **environment):
    """Runs `command` for at most `seconds`; its output goes to `out` and `err` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    out, err = folder / "out", folder / "err"
    asker, alive = os.pipe()  # `asker` reads the end of file when this process is gone
    answer, say = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        try:
            os.close(alive)
            said = keep([str(word) for word in command], seconds, out, err, asker, os.environ | {k: str(v) for k, v in environment.items()})
            os.write(say, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(asker)
    os.close(say)
    start = time.monotonic()
    text = b""
    if select.select([answer], [], [], seconds + 2 * SECONDS_TO_DIE)[0]:
        text = os.read(answer, 4096)
    os.close(answer)
    os.close(alive)
    if not text:
        os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0 if text else os.WNOHANG)
    said = json.loads(text or '{"code": 124, "late": true, "left": 1}')
    for path in (out, err):
        path.touch()
    return Outcome(said["code"], said["late"], time.monotonic() - start, said["left"], out, err)


def keep(command, seconds, out, err, asker, environment):
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the asker ends this through `asker`
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    end = time.monotonic() + seconds
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        try:
            program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment,
                                       start_new_session=True, preexec_fn=in_program)
        except OSError as problem:
            stderr.write(f"error: cannot run {command[0]}: {problem}\n".encode())
            return {"code": 127, "late": False, "left": 0}
    while program.poll() is None and time.monotonic() < end and not select.select([asker], [], [], 0.02)[0]:
        pass
    code = program.poll()
    left = kill_descendants()
    if code is None:
        return {"code": 124, "late": True, "left": left}
    return {"code": 128 - code if code < 0 else code, "late": False, "left": left}


def in_program():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def kill_descendants():
    """Kills all that came from this process; how many did not die."""
    end = time.monotonic() + SECONDS_TO_DIE
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return 0
        alive = descendants()
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > end:
            return len(alive)
        time.sleep(0.005)


def descendants():
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # gone meanwhile
            children.setdefault(parent, []).append(int(entry))
    found, todo = [], [os.getpid()]
    while todo:
        mine = children.get(todo.pop(), [])
        found += mine
        todo += mine
    return found
