#!/usr/bin/env python3
"""Checks and measures this compiler's programs on a machine with a GPU. scripts/gpu-check --pack makes the folder that this runs in.

usage: run [--only PART,PART] [--out DIR] [--quick] [--stand-in FILE]
Parts: machine, conformance, kernels, plans, train. Needs Python alone; with PyTorch, `train` compares with it. Writes raw JSON and one
Markdown table to DIR (out/<date>-<device>); ends with 1 if a check failed. --stand-in runs the same without a GPU: no figure counts.
"""

import argparse
import datetime
import gzip
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PC_RUN = HERE / "bin/pc-run"


class Checks:
    """What was checked, in order."""

    def __init__(self):
        self.rows = []

    def add(self, part, name, good, **details):
        self.rows.append({"part": part, "name": name, "ok": bool(good), **details})
        note = details.get("note", "")
        print(f"{'ok  ' if good else 'FAIL'}  {part}: {name}{': ' + note if note else ''}", flush=True)
        return good


def run(command, seconds=600, **environment):
    """Exit code, last lines of what it said, and the seconds it took."""
    start = datetime.datetime.now()
    try:
        done = subprocess.run([str(word) for word in command], env=os.environ | {k: str(v) for k, v in environment.items()},
                              capture_output=True, text=True, errors="replace", timeout=seconds)
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        code, said = 124, f"no end within {seconds} s\n{(late.stderr or b'').decode(errors='replace')[-500:]}"
    return code, said.strip(), (datetime.datetime.now() - start).total_seconds()


def program(options, name):
    """A program of the pack, unpacked."""
    path = options.out / "programs" / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.decompress((HERE / "programs" / f"{name}.gz").read_bytes()))
        path.chmod(0o755)
    return path


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line]
    return (errors or lines or [""])[-1][:300]


# --- tensors ------------------------------------------------------------------


def read_tensors(path):
    """Name -> values of the f32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
    return tensors


def largest_difference(expected, got, prefix=""):
    """Largest |a - b| / max(1, largest |a| of the tensor) over the tensors of `got`, and where. A tensor that `expected` lacks counts
    as infinitely different."""
    worst, where = 0.0, "none"
    for name, values in got.items():
        want = expected.get(prefix + name)
        if want is None or len(want) != len(values):
            return math.inf, name
        scale = max(1.0, max(map(abs, want)))
        for a, b in zip(want, values):
            difference = abs(a - b) / scale if math.isfinite(b) else math.inf
            if difference > worst:
                worst, where = difference, name
    return worst, where


def read_metrics(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- the parts ----------------------------------------------------------------


def devices(options):
    if options.stand_in:
        return ["stand-in"]
    code, said, _ = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 60)
    return said.splitlines() if code == 0 else []


def plans():
    return json.loads((HERE / "plans.json").read_text())


def part_machine(checks, options):
    facts = {"devices": devices(options), "cores": os.cpu_count(), "python": sys.version.split()[0]}
    if not options.stand_in:
        _, facts["nvidia_smi"], _ = run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit",
                                         "--format=csv,noheader"], 60)
    try:
        import torch
        facts["torch"] = torch.__version__
        if torch.cuda.is_available():
            facts |= measure_roofs(torch)
    except ImportError:
        facts["torch"] = None
    missing = sorted({line.split()[0] for file in [PC_RUN, HERE / "bin/comm-conformance", program(options, plans()[0]["name"])]
                      for line in run(["ldd", file], 60)[1].splitlines() if "not found" in line})
    checks.add("machine", "programs find their libraries", not missing, note=", ".join(missing) or ", ".join(facts["devices"]))
    return facts


def measure_roofs(torch):
    """What a large copy and a large product reach here: the yardsticks of all other figures."""
    def best(function, repeat=20):
        times = []
        for _ in range(repeat):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            function()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        return min(times[3:])

    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * a.numel() / best(lambda: b.copy_(a))
    m = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(m)
    product = 2 * 8192**3 / best(lambda: torch.matmul(m, m, out=out))
    return {"copy_bytes_per_second": copy, "bf16_flops_per_second": product}


def part_conformance(checks, options):
    suite, rows = HERE / "bin/comm-conformance", []

    def one(name, command, **environment):
        code, said, seconds = run(command, 300, **environment)
        passed = re.search(r"(\d+) checks passed", said)
        checks.add("conformance", name, code == 0 and passed, note=last_line(said), seconds=seconds)
        rows.append({"name": name, "code": code, "said": said[-2000:], "seconds": seconds})

    one("cuBLASLt and cuDNN", [HERE / "bin/cuda-conformance"])
    for ranks in (1, 2, 4) if options.quick else (1, 2, 3, 4, 6, 8):
        one(f"virtual, {ranks} ranks", [suite, "--device", "--transport=virtual", f"--ranks={ranks}"])
    local = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1, "NCCL_NET_PLUGIN": "none", "PCRT_TIMEOUT_SECONDS": 120}
    if options.stand_in:
        local["PC_STANDIN_DEVICES"] = 4
    one("nccl, 1 rank", [PC_RUN, "-n", 1, suite, "--", "--device"], PCRT_TRANSPORT="tcp", **local)
    count = 2 if options.stand_in else len(devices(options))
    if count > 1:
        one(f"nccl, {count} ranks on {count} devices", [PC_RUN, "-n", count, suite, "--", "--device"], **local)
    if not options.stand_in:
        # NCCL refuses two ranks on one device unless it takes them for two machines.
        two = ["bash", "-c", 'NCCL_HOSTID=host$PCRT_RANK exec "$0" --device', suite]
        one("nccl, 2 ranks on one device", [PC_RUN, "-n", 2, *two], PCRT_CUDA_DEVICE=0, **local)
    return rows


def part_kernels(checks, options):
    """Every generated kernel against the CPU's kernel of the same ops, every product against sums in double precision, with their
    shares of what a large copy and a large product reach in the same run."""
    rows = []
    for one in json.loads((HERE / "kernels.json").read_text()):
        if options.stand_in and not one["small"]:
            continue
        code, said, seconds = run([program(options, one["name"]), "--check-kernels"], 1800)
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        roofs, cases = (lines or [{}])[0], lines[1:]
        bad = [case for case in cases if not case["ok"]]
        whole = code == 0 and cases and len(cases) == roofs["cases"]
        checks.add("kernels", f"{one['name']}: {len(cases)} kernels and products as on the CPU", whole, seconds=seconds,
                   note=", ".join(f"{case.get('kernel', case.get('product'))}: {case['error']}" for case in bad)
                   or ("" if whole else last_line(said)))
        for case in cases:
            if "seconds" in case and case["seconds"] > 0:
                done, roof = ((case["flops"], roofs["bf16_flops_per_second"]) if "flops" in case else
                              (case["bytes"], roofs["copy_bytes_per_second"]))
                case["share"] = done / case["seconds"] / roof
        rows.append({"name": one["name"], "small": one["small"], "roofs": roofs, "cases": cases})
    return rows


def part_plans(checks, options):
    """Every plan on virtual ranks against PyTorch's golden figures and against the plan of one rank."""
    rows, alone = [], {}
    for plan in plans():
        name, model, bf16 = plan["name"], HERE / "models" / plan["model"], plan["precision"] == "bf16"
        out = options.out / "plans" / name
        out.mkdir(parents=True, exist_ok=True)
        steps = 3 if options.quick else 20
        ranks = ["--virtual", "-n", plan["ranks"]] if plan["ranks"] > 1 else ["-n", 1]
        code, said, seconds = run(
            [PC_RUN, *ranks, program(options, name), "--", "--data", model / "tokens.bin", "--init", model, "--steps", steps,
             "--lr", "1e-3", "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1", "--metrics", out / "metrics.jsonl",
             "--summary", out / "summary.json", "--dump-grads", out / "grads.safetensors", "--dump-logits", out / "logits.safetensors"],
            600)
        row = {"name": name, "code": code, "seconds": seconds}
        rows.append(row)
        if not checks.add("plans", f"{name} runs", code == 0, note="" if code == 0 else last_line(said)):
            continue
        golden = read_tensors(model / "golden.safetensors")
        losses = [line["loss"] for line in read_metrics(out / "metrics.jsonl")]
        grads = read_tensors(out / "grads.safetensors")
        row["gradients"], where = largest_difference(golden, grads, "grad.")
        row["logits"], _ = largest_difference(golden, read_tensors(out / "logits.safetensors"))
        row["losses"] = max(abs(a - b) / abs(a) for a, b in zip(golden["losses"], losses))
        limit = 3e-2 if bf16 else 1e-4
        checks.add("plans", f"{name} as PyTorch", row["gradients"] <= limit and row["logits"] <= limit and row["losses"] <= limit,
                   note=f"gradients {row['gradients']:.1e} ({where}), logits {row['logits']:.1e}, losses {row['losses']:.1e}")
        if plan["ranks"] == 1:
            alone[plan["model"], plan["precision"]] = losses
        elif (plan["model"], plan["precision"]) in alone:
            row["losses_of_one_rank"] = max(abs(a - b) / abs(a) for a, b in zip(alone[plan["model"], plan["precision"]], losses))
            checks.add("plans", f"{name} as one rank", row["losses_of_one_rank"] <= (1e-2 if bf16 else 1e-5),
                       note=f"losses {row['losses_of_one_rank']:.1e}")
        report = HERE / "programs" / f"{name}.report.json"
        if report.exists():
            summary = json.loads((out / "summary.json").read_text())
            predicted = json.loads(report.read_text())["per_rank"][0]
            counted = summary["per_rank"][0]
            key = lambda entry: (entry["axis"], entry["move"], entry["phase"])
            same = sorted(predicted["traffic"], key=key) == sorted(counted["traffic"], key=key)
            checks.add("plans", f"{name} moves what the report says", same and predicted["arena_bytes"] == counted["arena_bytes"],
                       note=f"{len(counted['traffic'])} kinds of traffic, arena {counted['arena_bytes']['device']} bytes")
    return rows


def part_train(checks, options):
    """Training side by side with PyTorch: same model, batch, precision and optimizer."""
    rows = []
    for bench in json.loads((HERE / "benchmarks.json").read_text()):
        if options.stand_in and not bench["small"] or options.quick and not bench["small"]:
            continue
        name = bench["name"]
        out = options.out / "train" / name
        out.mkdir(parents=True, exist_ok=True)
        steps = 3 if options.stand_in else 40
        flags = ["--data", bench["data"], "--steps", steps, "--lr", "3e-4", "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1"]
        code, said, _ = run([PC_RUN, "-n", 1, program(options, name), "--", *flags, "--metrics", out / "metrics.jsonl", "--summary",
                             out / "summary.json", "--trace", out / "trace.json"], 900)
        row = {"name": name, "code": code, "batch": bench["batch"], "sequence": bench["sequence"], "precision": bench["precision"]}
        rows.append(row)
        if not checks.add("train", f"{name} runs", code == 0, note="" if code == 0 else last_line(said)):
            continue
        metrics = read_metrics(out / "metrics.jsonl")
        # The first steps warm up, the last one is traced.
        seconds = [line["step_seconds"] for line in metrics][min(10, len(metrics) // 3):-1]
        row["tokens_per_second"] = bench["batch"] * bench["sequence"] / statistics.median(seconds)
        row["losses"] = [line["loss"] for line in metrics]
        row["flops_per_step"] = json.loads((out / "summary.json").read_text()).get("flops_per_step")
        row["by_name"] = times_by_name(out / "trace.json")
        if not bench["small"]: # gelu and bias gradients by kernels of their own
            code, said, _ = run([PC_RUN, "-n", 1, program(options, name), "--", *flags, "--metrics", out / "apart.jsonl"], 900,
                                PCRT_CUDA_EPILOGUES=0)
            seconds = [line["step_seconds"] for line in read_metrics(out / "apart.jsonl")[10:]]
            row["epilogues_apart"] = ({"tokens_per_second": bench["batch"] * bench["sequence"] / statistics.median(seconds)}
                                      if code == 0 and seconds else {"failed": last_line(said)})
        for mode in () if bench["small"] else ("eager", "compile"):
            row[f"torch_{mode}"] = run_torch(bench, mode, steps, out)
            if "failed" in row[f"torch_{mode}"]:
                checks.add("train", f"{name} beside PyTorch, {mode}", False, note=row[f"torch_{mode}"]["failed"])
        texts = [f"{row['tokens_per_second']:.0f} tokens/s"]
        for mode in ("eager", "compile"):
            theirs = row.get(f"torch_{mode}") or {}
            if "tokens_per_second" in theirs:
                texts.append(f"{row['tokens_per_second'] / theirs['tokens_per_second']:.2f}x of {mode}")
        checks.add("train", f"{name} speed", row["losses"][-1] < row["losses"][0] + 1, note=", ".join(texts))
    return rows


def times_by_name(path):
    """Seconds in the traced step by call, the longest first."""
    totals = {}
    events = json.loads(path.read_text())
    for event in events if isinstance(events, list) else events["traceEvents"]:
        if event.get("ph") == "X":
            entry = totals.setdefault(event["name"], [0, 0.0])
            entry[0] += 1
            entry[1] += event["dur"] * 1e-6
    return [{"name": name, "calls": calls, "seconds": seconds}
            for name, (calls, seconds) in sorted(totals.items(), key=lambda item: -item[1][1])[:40]]


def run_torch(bench, mode, steps, out):
    code, said, _ = run([sys.executable, HERE / "torch_train.py", "--config", HERE / bench["config"], "--data", HERE / "text", "--batch",
                         bench["batch"], "--sequence", bench["sequence"], "--precision", bench["precision"], "--steps", steps,
                         *(["--compile"] if mode == "compile" else [])], 900)
    (out / f"torch_{mode}.log").write_text(said)
    return json.loads(said.splitlines()[-1]) if code == 0 else {"failed": last_line(said)}


# --- the table ------------------------------------------------------------------


def table(results, checks):
    lines = [f"# {results['title']}", "", f"{sum(row['ok'] for row in checks.rows)} checks passed, "
             f"{sum(not row['ok'] for row in checks.rows)} failed.", ""]
    facts = results.get("machine") or {}
    for key in ("copy_bytes_per_second", "bf16_flops_per_second"):
        if key in facts:
            lines.append(f"* {key.replace('_', ' ')}: {facts[key]:.3g}")
    lines += ["", "| part | check | | |", "|---|---|---|---|"]
    lines += [f"| {row['part']} | {row['name']} | {'ok' if row['ok'] else '**FAILED**'} | {row.get('note', '').replace('|', '/')} |"
              for row in checks.rows]
    for program in results.get("kernels") or []:
        timed = [case for case in program["cases"] if "share" in case]
        if program["small"] or not timed:
            continue
        roofs = program["roofs"]
        lines += ["", f"{program['name']}: copy {roofs['copy_bytes_per_second']:.3g} bytes/s, bf16 product of 8192 "
                  f"{roofs['bf16_flops_per_second']:.3g} flops/s", "", "| kernel or product | us | share | error |", "|---|---|---|---|"]
        lines += [f"| {case.get('kernel') or case['product'] + ' ' + 'x'.join(map(str, case['shape']))} | {case['seconds'] * 1e6:.1f} | "
                  f"{case['share']:.0%} | {case['error']:.1e} |" for case in sorted(timed, key=lambda case: -case["seconds"])]
    peak = facts.get("bf16_flops_per_second")
    if results.get("train"):
        lines += ["", "| training | tokens/s | eager | torch.compile | of the bf16 peak |", "|---|---|---|---|---|"]
    for row in results.get("train") or []:
        if "tokens_per_second" not in row:
            continue
        theirs = [(row.get(f"torch_{mode}") or {}).get("tokens_per_second") for mode in ("eager", "compile")]
        flops = row.get("flops_per_step")
        share = f"{flops * row['tokens_per_second'] / (row['batch'] * row['sequence']) / peak:.0%}" if flops and peak else ""
        lines.append(f"| {row['name']} | {row['tokens_per_second']:.0f} | " +
                     " | ".join(f"{x:.0f} ({row['tokens_per_second'] / x:.2f}x)" if x else "" for x in theirs) + f" | {share} |")
        lines += ["", f"| {row['name']}: longest calls of a step | calls | ms |", "|---|---|---|"]
        lines += [f"| {entry['name']} | {entry['calls']} | {entry['seconds'] * 1e3:.3f} |" for entry in row["by_name"][:15]]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="machine,conformance,kernels,plans,train")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stand-in", dest="stand_in")
    options = parser.parse_args()
    if options.stand_in:
        os.environ["PCRT_CUDA_LIBRARIES"] = "standin:" + options.stand_in
        os.environ["PCRT_CACHE_DIR"] = ""
        options.quick = True
    names = devices(options)
    device = re.sub(r"[^a-z0-9]+", "-", (names or ["no-device"])[0].lower()).strip("-")
    title = f"{datetime.date.today()}-{device}"
    options.out = (options.out or HERE / "out" / title).resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.chdir(HERE)
    checks, results = Checks(), {"title": title}
    for part in options.only.split(","):
        try:
            results[part] = globals()[f"part_{part}"](checks, options)
        except Exception as problem:  # one part that breaks leaves the others
            checks.add(part, "ran to its end", False, note=f"{type(problem).__name__}: {problem}")
        results["checks"] = checks.rows
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "table.md").write_text(table(results, checks))
    failed = sum(not row["ok"] for row in checks.rows)
    print(f"{options.out}/table.md\n{len(checks.rows) - failed} passed, {failed} failed")
    return 1 if failed or not checks.rows else 0


if __name__ == "__main__":
    sys.exit(main())
