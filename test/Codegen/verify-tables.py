#!/usr/bin/env python3
"""usage: verify-tables.py PLANNED KERNELS COUNT [WHERE]     build/bin in PATH

Edits COUNT constants of the step and the tables (or of WHERE, for example evaluate) of a kernels program, one at a
time. Each edit must be refused, either by the comparison with the planned program, or by the text of the tables that is
part of the certificate."""
import collections
import random
import re
import subprocess
import sys
import tempfile

planned, kernels = sys.argv[1:3]
parts = sys.argv[4] if len(sys.argv) > 4 else "step|moves|gemms|groups|flows|kernel_table|program|mesh_sizes"
lines = open(kernels).read().splitlines()
draw = random.Random(1)
sites, where, tables = [], "", 0
for i, line in enumerate(lines):
    if found := re.search(r"llvm\.(?:mlir\.global|func).* @(\w+)\(", line):
        where = found[1]
    inside = re.match(rf"pc_(?:{parts})", where)
    if not inside:
        continue
    if found := re.search(r"llvm\.mlir\.constant\((-?\d+) : (i32|i64)\)", line):
        sites.append([where, i, line.replace(f"({found[1]} :", f"({int(found[1]) + draw.choice([1, 64])} :")])
    if (found := re.search(r"llvm\.mlir\.addressof @(pc_\w+)", line)) and "kernel_table" in where:
        others = [name for name in set(re.findall(r"llvm\.func internal @(pc_\w+)\(", "\n".join(lines))) if name != found[1]]
        if others and found[1].startswith("pc_") and "text" not in found[1]:
            sites.append([where, i, line.replace(found[1], draw.choice(sorted(others)))])
draw.shuffle(sites)
# Tables take turns, so that short tables are tested as often as long ones.
turns = collections.Counter()
for site in sites:
    kind = re.sub(r"_stage\d+", "", site[0])
    turns[kind] += 1
    site += [turns[kind]]
sites = [site[:3] for site in sorted(sites, key=lambda site: site[3])]
counts = {}
for where, i, line in sites[:int(sys.argv[3])]:
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as out:
        out.write("\n".join(lines[:i] + [line] + lines[i + 1:]) + "\n")
        out.flush()
        done = subprocess.run(["pc-opt", f"--pc-verify-tables=planned={planned}", out.name, "-o", "/dev/null"], capture_output=True, text=True)
    kind = re.sub(r"_stage\d+", "", where)
    row = counts.setdefault(kind, [0, 0])
    row[done.returncode == 0] += 1
    if done.returncode == 0:
        print(f"accepted: @{where}, line {i + 1}: {line.strip()}")
for kind, (refused, accepted) in sorted(counts.items()):
    print(f"{kind}: {refused} refused, {accepted} accepted")
