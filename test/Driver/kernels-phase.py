#!/usr/bin/env python3
"""usage: kernels-phase.py KERNELS PLANNED COUNT     build/bin in PATH

Edits a program of the phase kernels, COUNT places of each kind, one at a time. pc-compile must refuse each edit; given
the planned program it must also refuse edits of the step and the tables in a program without pc.certificate."""
import random
import re
import subprocess
import sys
import tempfile

kernels, planned, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
lines = open(kernels).read().split("\n")
draw = random.Random(2)
NUMBER = re.compile(r"(constant\(|arith\.constant )(\d+)\b")
CALL = re.compile(r"( *%\w+) = (llvm\.call @pcrt_(\w+).*?)( loc\(.*)?$")


def compiled(text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        return subprocess.run(["pc-compile", file.name, "--to=kernels", "-o", "/dev/null", *flags], capture_output=True, text=True)


def without_certificate(text):
    return re.sub(r'pc\.certificate = \["[^"]*", "[^"]*"\], ', "", text, count=1)


def edits():
    """The kind of every edit, and which lines it replaces."""
    where, before = "", {}
    for i, line in enumerate(lines):
        if found := re.search(r"(?:global|func).* @(\w+)\(", line):
            where, before = found[1], {}
        number = NUMBER.sub(lambda found: found[1] + str(int(found[2]) + 4), line, count=1)
        if i < 200 and (found := re.search(r"module.* attributes \{.*pc\.certificate = ", line)):
            for key in ("pc.plan = ", "pc.step = ", "pc.target = ", "pc.certificate = "):
                at = re.compile(r"[0-9]").search(line, line.index(key)) or re.compile(r"cpu|cuda").search(line, line.index(key))
                yield "attributes", {i: line[:at.start()] + chr(ord(at[0][0]) ^ 1) + line[at.start() + 1:]}
        elif re.match(r"pc_(step|evaluate|round)", where):
            if call := CALL.match(line):
                yield "step, a call is left out", {i: call[1] + " = llvm.mlir.constant(0 : i32) : i32"}
                last, other = before.get(call[3], (i, call))
                if other[2] != call[2]:
                    yield "step, two calls change places", {last: other[1] + " = " + call[2], i: call[1] + " = " + other[2]}
                before[call[3]] = i, call
            elif number != line:
                yield "step, a constant", {i: number}
        elif re.match(r"pc_(moves|gemms|groups|flows|program)", where):
            if number != line:
                yield "tables", {i: number}
        elif "\\22offset\\22:" in line:
            yield "description", {i: re.sub(r"(offset\\22:)(\d+)", lambda found: found[1] + str(int(found[2]) + 64), line, count=1)}
        elif number != line and not where.startswith("pc_text"):
            yield "kernels", {i: number}


clean = compiled("\n".join(lines))
assert clean.returncode == 0 and not clean.stderr, clean.stderr
assert "are not checked" in compiled(without_certificate("\n".join(lines))).stderr
by_kind = {}
for kind, edit in edits():
    by_kind.setdefault(kind, []).append(edit)
for kind, all_edits in sorted(by_kind.items()):
    accepted = []
    for edit in draw.sample(all_edits, min(most, len(all_edits))):
        text = "\n".join(edit.get(i, line) for i, line in enumerate(lines))
        runs = [compiled(text)]
        if re.match("step|tables", kind):
            runs.append(compiled(without_certificate(text), f"--reference={planned}"))
        accepted += [run.stderr for run in runs if run.returncode not in (3, 5)]
        if runs[0].returncode == 5:
            assert "was edited" in runs[0].stderr, runs[0].stderr
    print(f"{kind}: {len(accepted)} accepted", *accepted)
