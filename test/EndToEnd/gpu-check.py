#!/usr/bin/env python3
"""usage: test/EndToEnd/gpu-check.py TEST...     TEST: what follows test_ below

scripts/gpu-check on the stand-in of the CUDA libraries: a small pack, killed and gone on with, and packs whose programs are scripts that
warn, hang, leave processes behind or are killed at random times. PC_LONG=1: a hundred random times."""

import json
import lzma
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

from cases import BUILD, LONG, ROOT, Case

STANDIN = BUILD / "lib/libpc_standin.so"
FIRST = "train/gpt2-124m-bf16"
case = Case("gpu-check-" + "-".join(sys.argv[1:]))
WORK, check = case.work, case.check


# --- one call of the tool ---------------------------------------------------------


class Tool:
    """A running call. All that it starts is known by a mark in its environment."""

    def __init__(self, pack, out, *flags, path=""):
        self.mark, self.out = uuid.uuid4().hex, out
        environment = os.environ | {"PC_GPU_CHECK_MARK": self.mark, "PATH": path + os.environ["PATH"]}
        self.start = time.monotonic()
        self.said = open(WORK / f"said-{self.mark}", "w")
        self.process = subprocess.Popen([pack / "run", "--out", out, *map(str, flags)], env=environment, stdout=self.said,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def wait(self):
        self.code = self.process.wait()
        self.seconds = time.monotonic() - self.start
        return self

    def text(self):
        return Path(self.said.name).read_text()

    def rows_told(self):
        return re.findall(r"^\S+(?: \w+)? +[0-9.]+ s  (\S+):", self.text(), re.M)

    def kill(self, whole_group):
        (os.killpg if whole_group else os.kill)(self.process.pid, signal.SIGKILL)
        return self.wait()

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

    def processes_after(self, seconds):
        end = time.monotonic() + seconds
        while (alive := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        return alive


def call(pack, out, *flags, **more):
    return Tool(pack, out, *flags, **more).wait()


def read(out):
    """results.json, parsed as strictly as JSON is defined; the other files are read, too."""

    def no_number(text):
        raise ValueError(f"{text} is no JSON")

    results = json.loads((out / "results.json").read_text(), parse_constant=no_number)
    if not (out / "table.md").read_text().startswith("# "):
        raise ValueError("table.md has no title")
    with tarfile.open(out / "raw.tar") as tar:
        tar.getnames()
    return results


def rows_of(out):
    return {row["name"]: row for row in read(out)["rows"]}


def names_in(out):
    return sorted(path.name for path in out.iterdir())


FILES = ["raw.tar", "results.json", "table.md"]

# --- packs whose programs are scripts ---------------------------------------------

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
PREDICTED = {"traffic": [], "arena_bytes": 1}


def fake_pack(name, rows, programs, torch=TORCH):
    pack = WORK / name
    (pack / "programs").mkdir(parents=True)
    for file in ("measure.py", "process.py", "results.py"):
        shutil.copy(ROOT / "bench/gpu_check" / file, pack)
    shutil.copy(ROOT / "bench/gpu_check/run.py", pack / "run")
    (pack / "torch_train.py").write_text(torch)
    (pack / "models/m").mkdir(parents=True)
    (pack / "rows.json").write_text(json.dumps(rows))
    (pack / "pack.json").write_text(json.dumps({"commit": "c", "arch": "sm_90a", "stand_in": True, "digest": name}))
    for program, text in programs.items():
        (pack / f"programs/{program}.xz").write_bytes(lzma.compress((SCRIPT + text).encode(), preset=0))
    for path in (BUILD / "bin/pc-run", BUILD / "test/Runtime/comm/comm-conformance"):
        (pack / f"programs/{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=0))
    return pack


def train_row(name, program, **more):
    return {"name": name, "kind": "train", "program": program, "batch": 1, "sequence": 8, "precision": "f32", "data": "text:text",
            "steps_asked": 12, **more}


def torch_row(beside, mode="eager"):
    return train_row(f"{beside}/{mode}", None, beside=beside, mode=mode, config="c.json") | {"kind": "torch"}


def plan_row(name, program, ranks, precision="f32"):
    return {"name": name, "kind": "plan", "program": program, "model": "m", "precision": precision, "ranks": ranks,
            "alone": "plan/one", "steps_asked": 12, "predicted": PREDICTED}


STAND_IN = ("--stand-in", STANDIN)


def test_noise():
    """What is written on standard error is not parsed, and neither are lines that only look like figures."""
    pack = fake_pack("noise", [train_row(FIRST, "train"), torch_row(FIRST)], {"train": "print('{oops', file=sys.stderr)\n" + TRAIN})
    done = call(pack, WORK / "noise-out", *STAND_IN)
    row = rows_of(WORK / "noise-out").get(f"{FIRST}/eager", {})
    check("noise: warnings of PyTorch do not hide its figures", row.get("state") == "ok" and row.get("ours_over_theirs") == 3, done.text())
    check("noise: three files come back", names_in(WORK / "noise-out") == FILES, names_in(WORK / "noise-out"))


def test_absent():
    """Without PyTorch a row says so, and nothing fails."""
    torch = "import sys\nprint('torch_train.py: error: PyTorch is not installed', file=sys.stderr)\nsys.exit(6)\n"
    pack = fake_pack("absent", [train_row(FIRST, "train"), torch_row(FIRST)], {"train": TRAIN}, torch)
    done, rows = call(pack, WORK / "absent-out", *STAND_IN), rows_of(WORK / "absent-out")
    row = rows.get(f"{FIRST}/eager", {})
    check("absent: PyTorch is not needed", done.code == 0 and row.get("state") == "absent" and "not installed" in row["note"], done.text())


HANG = "leave_children()\nmetrics([5, 4, 3, 2, 1])\ntime.sleep(300)\n"


def test_hang():
    """A program that hangs is ended with all that it left; what it had measured counts, and the next rows are measured."""
    kernel = {"kernel": "k", "ok": True, "error": 1e-7, "seconds": 1e-3, "bytes": 10}
    lines = [{"cases": 2, "copy_bytes_per_second": 1e5, "bf16_flops_per_second": 1.0}, kernel]
    cases = f"for line in {lines!r}: print(json.dumps(line), flush=True)\nsys.stdout.write('{{\"ker')\nsys.stdout.flush()\ntime.sleep(300)\n"
    rows = [train_row(FIRST, "hang"), {"name": "kernels/k", "kind": "kernels", "program": "cases"}, train_row("train/b", "train")]
    pack = fake_pack("hang", rows, {"hang": HANG, "cases": cases, "train": TRAIN})
    out = WORK / "hang-out"
    done = call(pack, out, *STAND_IN, "--limit", 3)
    rows = rows_of(out)
    check("hang: ended at its limit", done.seconds < 12 and done.code == 1, f"{done.seconds:.1f} s: {done.text()}")
    check("hang: the steps before it count", rows[FIRST]["state"] == "timed out" and rows[FIRST].get("tokens_per_second", 0) > 0, rows[FIRST])
    check("hang: the kernels before it count", rows["kernels/k"]["state"] == "timed out" and
          [round(case["share"], 3) for case in rows["kernels/k"]["cases"]] == [0.1], rows["kernels/k"])
    check("hang: the next row is measured", rows["train/b"]["state"] == "ok", rows["train/b"])
    check("hang: no process is left", not done.processes(), done.processes())


def test_left_behind():
    """A program that ends and leaves processes behind."""
    pack = fake_pack("left", [train_row(FIRST, "leaves")], {"leaves": "leave_children()\n" + TRAIN})
    done = call(pack, WORK / "left-out", *STAND_IN)
    check("left behind: the row is right, no process is left", done.code == 0 and done.seconds < 5 and not done.processes(), done.text())


def test_budget():
    """A call ends within its budget; the next one measures again what the budget cut short, and the rest."""
    pack = fake_pack("budget", [train_row(FIRST, "hang"), train_row("train/b", "train")], {"hang": HANG, "train": TRAIN})
    out = WORK / "budget-out"
    done = call(pack, out, *STAND_IN, "--budget", 6)
    rows = rows_of(out)
    check("budget: kept", done.seconds <= 6 and rows[FIRST]["state"] == "cut" and "train/b" not in rows, f"{done.seconds} s {done.text()}")
    shutil.rmtree(pack / "work")
    (pack / "programs/hang.xz").write_bytes(lzma.compress((SCRIPT + TRAIN).encode()))
    done = call(pack, out, *STAND_IN)
    check("budget: the next call goes on", done.rows_told() == [FIRST, "train/b"] and done.code == 0, done.text())
    done = call(pack, out, *STAND_IN)
    check("budget: then nothing is left", done.rows_told() == [] and "2 ok, 0 failed or too slow, 0 left" in done.text(), done.text())
    shutil.copytree(out, WORK / "budget-earlier")
    shutil.rmtree(out)
    done = call(pack, out, *STAND_IN, "--from", WORK / "budget-earlier/results.json", "--match", "train/b", "--again")
    check("budget: --from, --match, --again", done.rows_told() == ["train/b"] and list(rows_of(out)) == [FIRST, "train/b"], done.text())


def test_refusals():
    rows = [train_row(FIRST, "train"), train_row("train/off", "train", default=False)]
    pack, other = (fake_pack(name, rows, {"train": TRAIN}) for name in ("refusals", "another"))
    out = WORK / "refusals-out"
    call(pack, out, *STAND_IN)
    before = (out / "results.json").read_bytes()
    for what, done, words in (
            ("results of another pack", call(other, out, *STAND_IN), "another folder"),
            ("no such row", call(pack, out, *STAND_IN, "--match", "nothing"), "no row matches"),
            ("a bad pattern", call(pack, out, *STAND_IN, "--match", "("), "no regular expression")):
        check(f"refusals: {what}", done.code == 2 and words in done.text(), f"{done.code} {done.text()}")
    check("refusals: results are as they were", (out / "results.json").read_bytes() == before)
    (out / "results.json").write_text("{")
    done = call(pack, out, *STAND_IN)
    check("refusals: results that are none", done.code == 2 and "cannot go on from" in done.text(), f"{done.code} {done.text()}")
    done = call(pack, WORK / "refusals-list", "--list")
    check("refusals: --list runs nothing and tells what is off", done.code == 0 and "train/off  (only with --match)" in done.text()
          and not (WORK / "refusals-list").exists(), done.text())
    done = call(pack, WORK / "refusals-off", *STAND_IN, "--match", "off$")
    check("refusals: --match runs what is off", done.rows_told() == ["train/off"], done.text())


def test_tolerance():
    """Losses beside one rank may differ as products of other shapes do, and no more; what is no number is written and wrong."""
    losses = [5 - 0.1 * step for step in range(12)]
    programs = {"one": f"good({losses})\n"} | {name: f"good([x * {factor} for x in {losses}])\n" for name, factor in
                                               (("near", 1 + 5e-5), ("far", 1 + 2e-4), ("none", "float('nan')"))}
    pack = fake_pack("tolerance", [plan_row(f"plan/{name}", name, 1 + (name != "one")) for name in programs], programs)
    # Virtual ranks of a script: pc-run starts it once.
    done = call(pack, WORK / "tolerance-out", *STAND_IN)
    states = {name: row["state"] for name, row in rows_of(WORK / "tolerance-out").items()}
    check("tolerance", states == {"plan/one": "ok", "plan/near": "ok", "plan/far": "failed", "plan/none": "failed"}, done.text())


# What NCCL writes where a communicator of one rank is split.
NCCL_LOG = """host:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
host:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0xa0 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init START
host:1:1 [0] NCCL INFO ncclCommInitRankConfig comm 0xa0 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init COMPLETE
host:1:1 [0] NCCL INFO ncclCommSplit comm 0xb0 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 parent 0xa0 splitCount 1 color 0 key 0- Init START
"""
NCCL_LOG_WHOLE = NCCL_LOG + NCCL_LOG.splitlines()[-1].replace("START", "COMPLETE") + "\n"


def test_device():
    """What is done with a GPU only: its name and driver, NCCL's log as the proof of a split, shares and PyTorch in the table."""
    tools = WORK / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 580.159.04, 81559 MiB'\n")
    (tools / "nvidia-smi").chmod(0o755)
    nccl = "open(os.environ['NCCL_DEBUG_FILE'].replace('%h', 'h').replace('%p', '1'), 'w').write({!r})\nprint('9 checks passed')\n"
    peaks = {"cases": 1, "copy_bytes_per_second": 3e12, "bf16_flops_per_second": 8e14}
    product = {"product": "head", "shape": [1, 2, 3, 4], "flops": 4e14, "seconds": 1.0, "seconds_spread": [1, 1], "ok": True, "error": 1e-3}
    suite = {"kind": "conformance", "launched": True, "command": ["program:whole"], "splits_communicators": True}
    rows = [train_row(FIRST, "train"), torch_row(FIRST), {"name": "kernels/k", "kind": "kernels", "program": "kernels"},
            suite | {"name": "nccl/whole"}, suite | {"name": "nccl/half", "command": ["program:half"]}, suite | {"name": "nccl/two", "devices": 2}]
    pack = fake_pack("device", rows, {"train": TRAIN, "kernels": f"for line in {[peaks, product]!r}: print(json.dumps(line))\n",
                                      "whole": nccl.format(NCCL_LOG_WHOLE), "half": nccl.format(NCCL_LOG)})
    out = WORK / "device-out"
    done = call(pack, out, path=f"{tools}:")
    results, states = read(out), {name: row["state"] for name, row in rows_of(out).items()}
    check("device: rows", states == {FIRST: "ok", f"{FIRST}/eager": "ok", "kernels/k": "ok", "nccl/whole": "ok", "nccl/half": "failed",
                                     "nccl/two": "absent"}, done.text())
    check("device: what it ran on", results["devices"] == ["NVIDIA H100 80GB HBM3"] and results["driver"] == "580.159.04" and
          results["versions"] == {"torch": "9.9", "NCCL": "2.28.9+cuda13.0"} and not results["stand_in"], results["versions"])
    table = (out / "table.md").read_text()
    check("device: the table", f"| {FIRST} | 800 | 10.00 (10.00 to 10.00) | 3.00 |  | 0% |" in table and "| head 1x2x3x4 | 1000000.0 | 50% |" in table, table)


def killed(name, tool, out, whole_group):
    """What holds after a SIGKILL; the names of rows that were told before."""
    told = tool.rows_told()
    tool.kill(whole_group)
    alive = tool.processes_after(3)
    problems = [f"{alive} are left"] if alive else []
    try:
        rows = rows_of(out) if told or (out / "results.json").exists() else {}
        problems += [f"{row} is lost" for row in told if row not in rows]
    except (OSError, ValueError, KeyError, tarfile.TarError) as problem:
        problems.append(f"{type(problem).__name__}: {problem}")
    return [f"{name}: {problem}" for problem in problems]


def test_random_kills():
    """SIGKILL of the tool, or of its process group, at random times: results can be read, rows that were told are there, no process is
    left, and a last call has all rows."""
    seed = int(os.environ.get("PC_SEED", "0")) or random.randrange(1 << 30)
    generator, problems = random.Random(seed), []
    rounds, rows = 100 if LONG else 6, [train_row(FIRST, "a")] + [train_row(f"train/{i}", "b") for i in range(12)]
    programs = {"a": "leave_children()\ntime.sleep(0.3)\n" + TRAIN, "b": "time.sleep(0.05)\n" + TRAIN}
    pack = fake_pack("kills", rows, programs)
    for number in range(rounds):
        out = WORK / f"kills-{number}"
        for attempt in range(2):
            tool = Tool(pack, out, *STAND_IN)
            time.sleep(generator.uniform(0, 2.5))
            problems += killed(f"round {number}.{attempt}", tool, out, generator.random() < 0.5)
    done = call(pack, out, *STAND_IN)
    check(f"random kills: {2 * rounds} of them, seed {seed}", not problems, "\n      ".join(problems[:5]))
    check("random kills: a last call has all rows", done.code == 0 and len(rows_of(out)) == len(rows) and names_in(out) == FILES, done.text())


# --- packs of real programs ---------------------------------------------------------


def make_pack(name, *flags):
    done = subprocess.run([ROOT / "scripts/gpu-check", "--pack", WORK / name, *flags], env=os.environ | {"PC_BUILD": str(BUILD)},
                          capture_output=True, text=True)
    check(f"{name}: made", done.returncode == 0, done.stdout + done.stderr)
    return done.returncode == 0 and WORK / name


def bytes_of(files):
    return sum(path.stat().st_size for path in files if path.is_file())


def test_small_pack():
    """A pack in small: killed after some rows, gone on with, within a budget of a minute."""
    if not (pack := make_pack("small", "--quick", "--stand-in")):
        return
    order, out = [row["name"] for row in json.loads((pack / "rows.json").read_text()) if row.get("default", True)], WORK / "small-out"
    tool = Tool(pack, out, *STAND_IN, "--budget", 60)
    while len(tool.rows_told()) < 2 and tool.process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.4)
    problems = killed("killed", tool, out, True)
    rows = list(rows_of(out))
    check("small: killed, rows can be read, GPT-2 124M first", not problems and rows[0] == FIRST and rows == order[:len(rows)], problems)
    said, seconds = "", []
    for _ in range(4):  # one is enough where nothing else runs
        start = time.monotonic()
        done = subprocess.run([ROOT / "scripts/gpu-check", pack, *STAND_IN, "--out", out, "--budget", "60"], capture_output=True, text=True)
        seconds.append(time.monotonic() - start)
        said += done.stdout + done.stderr
        if " 0 left" in done.stdout:
            break
    rows = rows_of(out)
    check("small: calls end within their budgets", max(seconds) <= 60, seconds)
    check("small: a second call measures the rest", done.returncode == 0 and list(rows) == order and
          not any(f"  {name}:" in said for name in order[:2]), said)
    check("small: all rows are right", all(row["state"] == "ok" for row in rows.values()), said)
    first = rows[FIRST]
    check("small: the first row is shrunken, and says so", "shrunken" in first["note"] and first["stand_in"] and
          all(math.isfinite(loss) for loss in first["losses"]), first)
    check("small: three files come back", names_in(out) == FILES, names_in(out))


def test_whole_pack():
    """For minutes: the pack for a GPU fits beside the tree; one for the stand-in, killed after 60 s, and to its end."""
    if not (pack := make_pack("whole")):
        return
    size = bytes_of(pack.rglob("*"))
    tree = bytes_of(ROOT / name for name in subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True).stdout.splitlines())
    check(f"whole: {size / 2**20:.1f} MiB, beside a tree of {tree / 2**20:.1f}", size <= 36 << 20 and size + tree <= 64 << 20)
    if not (pack := make_pack("whole-stand-in", "--stand-in")):
        return
    out = WORK / "whole-out"
    tool = Tool(pack, out, *STAND_IN)
    time.sleep(60)
    problems = killed("killed", tool, out, False)
    rows = list(rows_of(out))
    check(f"whole: killed after 60 s, {len(rows)} rows can be read, GPT-2 124M first", not problems and rows[0] == FIRST, problems)
    done = call(pack, out, *STAND_IN, "--budget", 3000, "--limit", 300)
    check("whole: the rest is right", done.code == 0 and all(row["state"] == "ok" for row in rows_of(out).values()), done.text())


def body():
    for name in sys.argv[1:]:
        globals()[f"test_{name}"]()


case.run(body)
