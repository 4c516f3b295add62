#!/usr/bin/env python3
"""usage: bench/checkpoints.py [NAME] [--rounds N] [--every N] [--batch N] [--seq N]

Measures the cost of checkpoints of GPT-2 124M (dp=2, f32). Runs alternate: without checkpoints, with one every N steps
(--every), which is written while the run computes, and with one at the end alone, for which the run waits. Steps are
timed from outside, from one line of metrics to the next, so that they contain all the work of a checkpoint. A save is
timed from the last step to the end of the process, less the time that a run without one takes there. The disk is
measured between the runs: as many processes write as many bytes past the cache and wait for them. The first step of a
run is not counted. The script needs 6 GB of disk. It writes build/bench/NAME.jsonl, one line per run, and
results/NAME.json; a second call continues with the missing runs."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parents[1]
BIN, HERE = ROOT / "build/bin", ROOT / "build/bench"
RANKS, WAYS = 2, ("without", "beside", "sync")


def prepare(work, options):
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "text").exists():
        files = sorted(Path("/usr/lib/llvm-22/include/llvm").rglob("*.h"))[:400]
        (work / "text").write_bytes(b"".join(path.read_bytes() for path in files))
    subprocess.run([BIN / "pc-import", ROOT / "examples/gpt2-124m", "-o", work / "model.mlir", f"--batch={options.batch}", f"--seq={options.seq}"], check=True)
    subprocess.run([BIN / "pc-compile", work / "model.mlir", "--mesh", f"dp={RANKS}", "-o", work / "train"], check=True)


def run(work, way, options):
    """A run of two intervals and a step: seconds of each step, and from the last one to the end."""
    for name in ("DIR", "end"):
        shutil.rmtree(work / name, ignore_errors=True)
    (work / "lines").unlink(missing_ok=True)
    os.mkfifo(work / "lines")
    steps = 2 * options.every + 1
    flags = {"without": [], "beside": ["--checkpoint", "DIR", "--every", str(options.every), "--keep", "1"], "sync": ["--save", "end"]}[way]
    process = subprocess.Popen([BIN / "pc-run", "-n", str(RANKS), "./train", "--", "--data", "text:text", "--steps", str(steps), "--metrics", "lines", *flags], cwd=work,
                               stdout=subprocess.DEVNULL)
    with open(work / "lines") as lines:
        times = [time.monotonic() for _ in lines]
    if process.wait() or len(times) != steps:
        raise SystemExit(f"the run {way} ended with {process.returncode} after {len(times)} steps")
    return {"way": way, "steps": [b - a for a, b in zip(times, times[1:])], "end": time.monotonic() - times[-1],
            "bytes": sum(path.stat().st_size for path in (work / "end").glob("*.safetensors")) if way == "sync" else 0}


def disk(work, count):
    """Returns the seconds after which all ranks have written `count` bytes in total to the disk; None after an error."""
    begin = time.monotonic()
    writers = [subprocess.Popen(["dd", "if=/dev/zero", f"of=disk{i}", "bs=4M", f"count={count // RANKS >> 22}", "oflag=direct", "conv=fsync"], cwd=work, stderr=subprocess.DEVNULL)
               for i in range(RANKS)]
    good = all([writer.wait() == 0 for writer in writers])
    seconds = time.monotonic() - begin
    for i in range(RANKS):
        (work / f"disk{i}").unlink()
    return seconds if good else None


def figures(runs):
    """Compares runs within rounds, since only these ran one after the other."""
    rounds = [runs[i:i + len(WAYS)] for i in range(0, len(runs), len(WAYS))]
    longer, rates, disks = [], [], []
    for group in rounds:
        by = {one["way"]: one for one in group}
        longer.append(sum(by["beside"]["steps"]) / sum(by["without"]["steps"]) - 1)
        rates.append(by["sync"]["bytes"] / (by["sync"]["end"] - by["without"]["end"]) / 1e9)
        disks.append(by["sync"]["bytes"] / by["sync"]["disk"] / 1e9)
    shares = [rate / there for rate, there in zip(rates, disks)]
    return {"rounds": len(rounds), "longer": longer, "longer_median": statistics.median(longer), "save_gigabytes_per_second": rates, "disk_gigabytes_per_second": disks,
            "share_of_disk": shares, "share_of_disk_median": statistics.median(shares)}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("name", nargs="?", default="checkpoints")
for flag, value in (("rounds", 5), ("every", 5), ("batch", 2), ("seq", 256)):
    parser.add_argument(f"--{flag}", type=int, default=value)
options = parser.parse_args()
work, log = HERE / options.name, HERE / f"{options.name}.jsonl"
about = {"every": options.every, "batch": options.batch, "seq": options.seq, "ranks": RANKS}
lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
if lines and lines[0] != about:
    raise SystemExit(f"{log} is of other flags: {lines[0]}; give another NAME")
prepare(work, options)
if not lines:
    log.write_text(json.dumps(about) + "\n")
runs = lines[1:]
while len(runs) < options.rounds * len(WAYS):
    one = run(work, WAYS[len(runs) % len(WAYS)], options)
    if one["way"] == "sync":
        one["disk"] = disk(work, one["bytes"])
    runs.append(one)
    with open(log, "a") as file:
        file.write(json.dumps(one) + "\n")
    print(f"{one['way']:8} {statistics.median(one['steps']):7.3f} s a step, {one['end']:6.2f} s after the last one" + (f", disk {one['disk']:.2f} s" if "disk" in one else ""), flush=True)
found = figures(runs[:options.rounds * len(WAYS)])
result = ROOT / "bench/results" / f"{options.name}.json"
result.write_text(json_runs.text({**about, **found, "runs": runs}))
shutil.rmtree(work, ignore_errors=True)
print(f"steps with --every {options.every} are {100 * found['longer_median']:.1f} % longer (median of {found['rounds']} pairs: {', '.join(f'{100 * x:.1f}' for x in found['longer'])})")
print(f"a save that is waited for has {100 * found['share_of_disk_median']:.0f} % of the disk's rate ({', '.join(f'{a:.2f} of {b:.2f} GB/s' for a, b in zip(found['save_gigabytes_per_second'], found['disk_gigabytes_per_second']))})")
