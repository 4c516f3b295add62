#!/usr/bin/env python3
"""usage: any-phase.py GOLDEN WORK [ROW]     build/bin and golden-interpret in PATH

Tests that pc-compile continues from a program of any phase. For each plan below, and from each phase: the executable
must compute the same bits as the one compiled in one run. With two ops exchanged the program must be proved and compute
the same bits. With another scale of attention it must be refused (5) if it has to compute what its step computes;
compiled nevertheless, it must compute the interpreter's results."""
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

PLANS = """gpt2 dp=2,tp=2 --zero=1
llama pp=2,dp=2 --microbatches=2 --pipeline=gpipe
gpt2 dp=2 --microbatches=2 --zero=3
llama tp=2 --sequence-parallel --window=tp""".splitlines()
PHASES = ["step", "placed", "staged", "local", "scheduled", "planned", "kernels"]
GOLDEN, WORK = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()


def call(*command, code=0):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=WORK)
    if done.returncode != code:
        sys.exit(f"exit {done.returncode}, not {code}: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done


def tensors(path, prefix=""):
    """Returns {name: (dtype, shape, bytes)} for a safetensors file, with a prefix before each name."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {prefix + name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write(path, entries):
    header, at = {}, 0
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in entries.values()))


def run(program, model, ranks, out, steps):
    folder = WORK / out
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    call("pc-run", "-n", ranks, program, "--", "--data", GOLDEN / model / "tokens.bin", "--init", GOLDEN / model, "--steps", steps, "--lr", "1e-3",
         "--weight-decay", "0.1", "--clip", "1.0", "--seed", 1, "--metrics", f"{out}/metrics.jsonl", "--save", f"{out}/save", "--dump-grads",
         f"{out}/grads", "--dump-logits", f"{out}/logits")
    return folder


def bits(folder):
    losses = re.sub(r', "step_seconds.*', "", (folder / "metrics.jsonl").read_text())
    return losses, [(folder / "save" / f"{name}.safetensors").read_bytes() for name in ("model", "training_state")]


def swapped(text):
    """Two neighbouring ops that do not need each other, the other way round."""
    lines = text.splitlines()
    ops = [i for i, line in enumerate(lines) if " = pc." in line]
    for i in ops[len(ops) // 3:-1]:
        a, b = lines[i], lines[i + 1]
        found = [re.match(r"\s*(%\w+) = pc\.(?:einsum|scale|exp|add|cast|adamw|parameter|fusion|slice) ", line) for line in (a, b)]
        if all(found) and not a.endswith("{") and not b.endswith("{") and not re.search(re.escape(found[0][1]) + r"\b", b):
            yield "\n".join(lines[:i] + [b, a] + lines[i + 2:]) + "\n"


def scaled(text):
    return re.sub(r"(pc\.attention(?:_grad)? causal.* scale )([\d.e+-]+)", lambda found: f"{found[1]}{float(found[2]) / 2!r}", text)


def check(plan):
    model, mesh, *flags = plan.split()
    ranks = 1
    for size in re.findall(r"=(\d+)", mesh):
        ranks *= int(size)
    call("pc-import", GOLDEN / model, "-o", "model.mlir", "--batch", 4 if "--microbatches=2" in flags else 2, "--seq", 8)
    call("pc-compile", "model.mlir", f"--mesh={mesh}", *flags, "-o", "whole")
    want = bits(run("./whole", model, ranks, "whole.run", 2))
    for phase in PHASES:
        if phase == "staged" and "pp=" not in mesh:
            continue
        call("pc-compile", "model.mlir", f"--mesh={mesh}", *flags, f"--to={phase}", "-o", "phase.mlir")
        text = (WORK / "phase.mlir").read_text()
        said = call("pc-compile", "phase.mlir", "-o", "part").stderr
        if bits(run("./part", model, ranks, "part.run", 2)) != want or "remark" in said:
            sys.exit(f"{plan}: from phase {phase} other bits than in one go; {said}")
        report = [phase, "the same bits"]
        if phase == "kernels":
            print(f"{plan}: " + ", ".join(report))
            continue
        for other in swapped(text):
            (WORK / "other.mlir").write_text(other)
            if subprocess.run(["pc-compile", "other.mlir", "-o", "part"], cwd=WORK, capture_output=True).returncode == 0:
                if bits(run("./part", model, ranks, "part.run", 2)) != want:
                    sys.exit(f"{plan}: from phase {phase} with two ops in the other order other bits")
                report.append("two ops swapped: the same bits")
                break
        other = scaled(text)
        assert other != text
        (WORK / "other.mlir").write_text(other)
        if phase != "step":
            refused = call("pc-compile", "other.mlir", "-o", "part", code=5).stderr
            if "does not compute the same as the step program" not in refused:
                sys.exit(f"{plan}: phase {phase}, another scale: {refused}")
            report.append("another scale: refused")
        call("pc-compile", "other.mlir", "-o", "part", *(["--verify=phase"] if phase != "step" else []))
        done = run("./part", model, ranks, "part.run", 1)
        # Writes what this program computed in the format of golden files, with which the interpreter compares its
        # results.
        golden = WORK / "golden"
        shutil.rmtree(golden, ignore_errors=True)
        golden.mkdir()
        for name in ("model.safetensors", "tokens.bin"):
            shutil.copy(GOLDEN / model / name, golden / name)
        loss = json.loads((done / "metrics.jsonl").read_text().splitlines()[0])["loss"]
        write(golden / "golden.safetensors", tensors(done / "grads", "grad.") | tensors(done / "logits") |
              {"losses": ("F32", [1], struct.pack("<f", loss))})
        found = call("golden-interpret", "other.mlir", "golden", 1, "1e-5").stdout.strip()
        report.append(f"compiled, as interpreted: {found}")
        print(f"{plan}: " + ", ".join(report))


WORK.mkdir(exist_ok=True)
for row in PLANS:
    if len(sys.argv) < 4 or sys.argv[3] in row:
        check(row)
