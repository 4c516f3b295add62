#!/usr/bin/env python3
"""usage: test/EndToEnd/gpu-check.py TEST...                               TEST: a name that follows test_ below
       gpu-check.py pack NAME ROWS PROGRAMS [TORCH]                     for Inputs/gpu-check.txt: a pack of scripts
       gpu-check.py call PACK OUT FLAGS...                              measures it; last.json describes the call
       gpu-check.py holds CONDITION [OUT]                               checks that call and its results

Tests scripts/gpu-check on the stand-in of the CUDA libraries: packs of scripts that warn, hang, leave processes alive
or are killed at random times, and a small pack that is killed and continued. PC_LONG=1: a hundred random times."""
import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

from cases import BUILD, LONG, ROOT, Case, shared

FIRST = "train/gpt2-124m-bf16"
EAGER = f"{FIRST}/eager"
FILES = ["raw.tar", "results.json", "table.md"]
STAND_IN = ("--stand-in", BUILD / "lib/libpc_standin.so")


# --- one call of the tool, and its results ---


class Tool:
    """A running call. All that it starts is known by a mark in its environment."""

    def __init__(self, pack, out, *flags):
        self.mark, self.began, self.said = uuid.uuid4().hex, time.monotonic(), Path(f"{out}.said")
        with open(self.said, "w") as said:
            self.process = subprocess.Popen([f"{pack}/run", "--out", out, *map(str, flags)], env=os.environ | {"PC_GPU_CHECK_MARK": self.mark},
                                            stdout=said, stderr=said, start_new_session=True)

    def wait(self):
        self.code, self.seconds = self.process.wait(), time.monotonic() - self.began
        return self

    def text(self):
        return self.said.read_text()

    def told(self):
        return re.findall(r"^\S+(?: \w+)? +[0-9.]+ s  (\S+):", self.text(), re.M)

    def processes(self):
        """Those that still run and came from this call."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry.name, (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except OSError:
                pass
        return found


def read(out):
    """Reads results.json, as strictly as JSON is defined, and its rows by their names. It also reads the other files."""

    def no_number(text):
        raise ValueError(f"{text} is no JSON")

    results = json.loads((out / "results.json").read_text(), parse_constant=no_number)
    if not (out / "table.md").read_text().startswith("# "):
        raise ValueError("table.md has no title")
    with tarfile.open(out / "raw.tar") as tar:
        tar.getnames()
    return results, {row["name"]: row for row in results["rows"]}


# --- packs whose programs are scripts ---

# Programs are called as real ones are; `option NAME` is the value of a flag.
SCRIPT = f"""#!{sys.executable}
import json, os, subprocess, sys, time
option = lambda name: sys.argv[sys.argv.index(name) + 1]
def metrics(losses, seconds=0.01):
    with open(option("--metrics"), "w") as file:
        for loss in losses:
            file.write(json.dumps({{"loss": loss, "step_seconds": seconds}}) + "\\n")
def good(losses):
    metrics(losses)
    json.dump({{"per_rank": [{{"traffic": [], "arena_bytes": 1}}], "flops_per_step": 1e9}}, open(option("--summary"), "w"))
def leave_children():  # in sessions of their own, deaf to friendly signals, with our output open
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c",
            "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(300)"], start_new_session=True)
"""
TRAIN = "good([5, 4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2])\n"
TORCH = """import json, sys
print("warning: {", file=sys.stderr)
print("{ this is no JSON either")
print(json.dumps({"step_seconds": [0.03] * 12, "losses": [5] * 12, "torch": "9.9", "peak_bytes": None}))
sys.stdout.flush()
print('{"warning": 1} UserWarning: something is deprecated', file=sys.stderr)
"""
prints = "for line in {!r}: print(json.dumps(line), flush=True)\n".format  # a program that prints figures
HANG = "leave_children()\nmetrics([5, 4, 3, 2, 1])\ntime.sleep(300)\n"


def train(name, program, **more):
    return dict(name=name, kind="train", program=program, batch=1, sequence=8, precision="f32", data="text:text", steps_asked=12) | more


def torch(beside, mode="eager"):
    return train(f"{beside}/{mode}", None, kind="torch", beside=beside, mode=mode, config="c.json")


def plan(name, program, ranks):
    return dict(name=name, kind="plan", program=program, model="m", precision="f32", ranks=ranks, alone="plan/one", steps_asked=12,
                predicted={"traffic": [], "arena_bytes": 1})


def make(pack, rows, programs, torch_train=TORCH):
    (pack / "programs").mkdir(parents=True, exist_ok=True)
    (pack / "models/m").mkdir(parents=True, exist_ok=True)
    for file in ("measure.py", "process.py", "results.py"):
        shutil.copy(ROOT / "bench/gpu_check" / file, pack)
    shutil.copy(ROOT / "bench/gpu_check/run.py", pack / "run")
    (pack / "torch_train.py").write_text(torch_train)
    (pack / "rows.json").write_text(json.dumps(rows))
    (pack / "pack.json").write_text(json.dumps({"commit": "c", "arch": "sm_90a", "stand_in": True, "digest": pack.name}))
    files = {program: (SCRIPT + text).encode() for program, text in programs.items()}
    for path in (BUILD / "bin/pc-run", BUILD / "test/Runtime/comm/comm-conformance"):
        files[path.name] = path.read_bytes()
    with tarfile.open(pack / "programs/0.tar.xz", "w:xz", preset=0) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (pack / "programs/index.json").write_text(json.dumps({name: "0.tar.xz" for name in files}))
    return pack


# --- results that Inputs/gpu-check.txt reports ---


def pack(name, rows, programs, *torch_train):
    make(Path(name), eval(rows), eval(programs), *torch_train)


def call(folder, out, *flags):
    tool = Tool(folder, out, *flags).wait()
    print(tool.text(), file=sys.stderr if tool.code == 2 else sys.stdout)
    Path("last.json").write_text(json.dumps(dict(said=tool.text(), told=tool.told(), seconds=tool.seconds, left=tool.processes())))
    sys.exit(tool.code)


def holds(condition, out="out"):
    values, out = json.loads(Path("last.json").read_text()), Path(out)
    if out.exists():
        results, rows = read(out)
        states = {name: row["state"] for name, row in rows.items()}
        values |= dict(results=results, rows=rows, states=states, table=(out / "table.md").read_text(), files=sorted(os.listdir(out)))
    if not eval(condition, globals() | values):
        sys.exit(f"it does not hold of {values}")


# --- tests of their own ---


def killed(name, tool, out, whole_group):
    """What holds after a SIGKILL; the names of rows that were told before."""
    told, end = tool.told(), time.monotonic() + 3
    (os.killpg if whole_group else os.kill)(tool.process.pid, signal.SIGKILL)
    tool.wait()
    while (alive := tool.processes()) and time.monotonic() < end:
        time.sleep(0.02)
    problems = [f"{alive} are left"] if alive else []
    try:
        rows = read(out)[1] if told or (out / "results.json").exists() else {}
        problems += [f"{row} is lost" for row in told if row not in rows]
    except (OSError, ValueError, KeyError, tarfile.TarError) as problem:
        problems.append(f"{type(problem).__name__}: {problem}")
    return [f"{name}: {problem}" for problem in problems]


def test_random_kills():
    """SIGKILL of the tool, or of its process group, at random times: results can be read, rows that were told are there, no process is
    left, and a last call has all rows."""
    seed = int(os.environ.get("PC_SEED", "0")) or random.randrange(1 << 30)
    generator, problems, rounds = random.Random(seed), [], 100 if LONG else 6
    rows = [train(FIRST, "a"), train("train/c", "c")] + [train(f"train/{i}", "b") for i in range(12)]
    pack = make(WORK / "kills", rows, {"a": "leave_children()\ntime.sleep(0.3)\n" + TRAIN, "b": "time.sleep(0.05)\n" + TRAIN,
                                       "c": "time.sleep(0.3)\nif os.environ.get('PCRT_CUDA_GRAPH') != '0': sys.exit('error')\n" + TRAIN})
    (WORK / "none").mkdir()
    (WORK / "none/libcuda.so.1").touch()
    os.environ["LD_LIBRARY_PATH"] = str(WORK / "none")
    for number in range(rounds):
        out, on = WORK / f"kills-{number}", STAND_IN if number % 2 else ()  # on the stand-in, and without a device
        for attempt in range(2):
            tool = Tool(pack, out, *on)
            time.sleep(generator.uniform(0, 2.5))
            problems += killed(f"round {number}.{attempt}", tool, out, generator.random() < 0.5)
    done = Tool(pack, out, *on).wait()
    check(f"{2 * rounds} kills, seed {seed}", not problems, "\n      ".join(problems[:5]))
    check("a last call has all rows", done.code == 0 and len(read(out)[1]) == len(rows) and sorted(os.listdir(out)) == FILES, done.text())
    check("one by its fallback", read(out)[1]["train/c"]["environment"] == {"PCRT_CUDA_GRAPH": 0}, done.text())


def real_pack(name, *flags):
    """A pack of real programs, and its rows in their order. The quick run keeps it."""
    def make(folder):
        case.needs(ROOT / "scripts/gpu-check", "--pack", folder / "pack", *flags, seconds=1200, PC_BUILD=str(BUILD))
    folder = WORK / name
    if LONG:
        make(folder)
    else:
        folder = shared(f"gpu-check/{name}", make, *(ROOT / "scripts").iterdir(), *(ROOT / "bench").rglob("*"))
    rows = json.loads((folder / "pack/rows.json").read_text())
    return folder / "pack", [row["name"] for row in rows if row.get("default", True)]


def cut_short(tool, out, order, whole_group):
    problems = killed("killed", tool, out, whole_group)
    rows = list(read(out)[1])
    check(f"killed, {len(rows)} rows can be read, GPT-2 124M first", not problems and rows[0] == FIRST and rows == order[:len(rows)], problems)


def test_small_pack():
    """A pack in small: killed after some rows, gone on with, within a budget of a minute."""
    pack, order = real_pack("small", "--quick", "--stand-in")
    out, flags = WORK / "small-out", [*STAND_IN, "--budget", 60]
    tool = Tool(pack, out, *flags)
    while len(tool.told()) < 2 and tool.process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.4)
    cut_short(tool, out, order, True)
    told, seconds, said = [], [], "left"
    while " 0 left" not in said and len(seconds) < 4:  # one is enough where nothing else runs
        done = Tool(pack, out, *flags).wait()
        told, said = told + done.told(), done.text()
        seconds.append(done.seconds)
    rows = read(out)[1]
    check("calls end within their budgets", max(seconds) <= 60, seconds)
    check("a second call measures the rest", done.code == 0 and list(rows) == order and not {*told} & {*order[:2]}, [told, said])
    check("all rows are right", all(row["state"] == "ok" for row in rows.values()), said)
    first = rows[FIRST]
    check("the first row is shrunken, and says so", "shrunken" in first["note"] and first["stand_in"] and all(map(math.isfinite, first["losses"])), first)
    check("three files come back", sorted(os.listdir(out)) == FILES, os.listdir(out))
    # The whole pack has 58 programs; test_whole_pack makes it.
    programs, index = [*(pack / "programs").glob("*.xz")], json.loads((pack / "programs/index.json").read_text())
    size = sum(path.stat().st_size for path in programs) / len(index)
    check(f"58 programs of {size / 1024:.0f} KiB fit into 30 MiB", 58 * size < 25 << 20)


def test_whole_pack():
    """Takes minutes: the pack for a GPU fits together with the tree; one for the stand-in is killed after 60 s, and then runs to its end."""
    size = lambda paths: sum(path.stat().st_size for path in paths if path.is_file())
    pack = size(real_pack("whole")[0].rglob("*"))
    tree = size(ROOT / name for name in case.needs("git", "-C", ROOT, "ls-files").out.splitlines())
    check(f"{pack / 2**20:.1f} MiB, beside a tree of {tree / 2**20:.1f}", pack <= 30 << 20 and pack + tree <= 64 << 20)
    pack, order = real_pack("whole-stand-in", "--stand-in")
    out = WORK / "whole-out"
    tool = Tool(pack, out, *STAND_IN)
    time.sleep(60)
    cut_short(tool, out, order, False)
    done = Tool(pack, out, *STAND_IN, "--budget", 3000, "--limit", 300).wait()
    check("the rest is right", done.code == 0 and all(row["state"] == "ok" for row in read(out)[1].values()), done.text())


if sys.argv[1] in ("pack", "call", "holds"):
    globals()[sys.argv[1]](*sys.argv[2:])
else:
    case = Case("gpu-check-" + "-".join(sys.argv[1:]))
    WORK, check = case.work, case.check
    case.run(lambda: [globals()[f"test_{name}"]() for name in sys.argv[1:]])
