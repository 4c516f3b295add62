#!/usr/bin/env python3
"""usage: certificate.py PROGRAM STEP PLANNED     build/bin in PATH

Edits an executable (every number of its tables, characters of its certificate and of its description) and IR
(constants, operands and attributes of its step and planned programs). pc-check-certificate must refuse each edit."""
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

program, step, planned = sys.argv[1:4]
data = bytearray(open(program, "rb").read())
draw = random.Random(1)


def sections():
    """Yields (type, address, offset, size, link) for each section of the ELF file."""
    at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    for i in range(count):
        name, kind, _, address, offset, length, link, _, _, _ = struct.unpack_from("<IIQQQQIIQQ", data, at + i * size)
        yield kind, address, offset, length, link


def file_offset(address):
    at, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, offset, begin, _, length = struct.unpack_from("<IIQQQQ", data, at + i * size)
        if kind == 1 and begin <= address < begin + length:
            return offset + address - begin


def tables():
    """Yields (table, offset in the file) for each number of the tables. Of pointers, which the loader sets, it yields
    those of pc_program, at the place that tells the loader what to set."""
    all_sections, symbols, pointers = list(sections()), {}, {}
    for kind, _, offset, length, link in all_sections:
        if kind == 2:
            names = all_sections[link][2]
            for at in range(offset, offset + length, 24):
                name, _, _, _, value, size = struct.unpack_from("<IBBHQQ", data, at)
                symbols[data[names + name:data.index(0, names + name)].decode()] = value, size
        if kind == 4:
            pointers |= {struct.unpack_from("<Q", data, at)[0]: at + 16 for at in range(offset, offset + length, 24)}
    for name, (address, size) in symbols.items():
        if re.fullmatch(r"pc_(program|moves|gemms|groups|flows|kernel_table|attentions|device_kernels|mesh_sizes)(_stage\d+)?", name):
            for word in range(address, address + size - 3, 4):
                if "flows" in name and (word - address) % 40 == 28:
                    continue  # pcrt_flow: nothing is between messages and bytes
                if word & ~7 not in pointers:
                    yield name, file_offset(word)
                elif word % 8 == 0 and "program" in name:
                    yield "pointers", pointers[word]


def refused(path, *files):
    done = subprocess.run(["pc-check-certificate", path, *files], capture_output=True, text=True)
    if done.returncode not in (0, 3, 5):
        sys.exit(f"exit {done.returncode}: {done.stderr[-500:]}")
    return done.returncode != 0


counts = {}


def count(kind, is_refused, what):
    row = counts.setdefault(kind, [0, 0])
    row[not is_refused] += 1
    if not is_refused:
        print(f"accepted: {what}")


assert not refused(program, step, planned)
with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "edited")
    sites = list(tables())
    texts = []
    for kind, begin, end in (("certificate", b'{"collectives"', b"\0"), ("description", b'{"abi"', b"\0")):
        at = data.find(begin)
        while at >= 0:
            texts += [(kind, i) for i in range(at, data.index(end, at)) if chr(data[i]).isalnum()]
            at = data.find(begin, at + 1)
    draw.shuffle(texts)
    own = [site for name, site in sites if name == "pointers"]
    chosen = [("tables", site) for _, site in draw.sample(sites, min(len(sites), 40))] + [("pointers", site) for site in draw.sample(own, 8)]
    chosen += [row for row in texts if row[0] == "certificate"][:12] + [row for row in texts if row[0] == "description"][:12]
    for kind, at in chosen:
        old = data[at]
        data[at] = old ^ 1 if kind in ("tables", "pointers") else old + 1 if old not in b"9zZ" else old - 1
        with open(out, "wb") as file:
            file.write(data)
        data[at] = old
        count(kind, refused(out), f"{kind}, byte {at}")
    for path in (step, planned):
        lines = open(path).read().splitlines()
        ops = [i for i, line in enumerate(lines) if " = pc." in line or "pc.update" in line or "pc.output" in line]
        for i in draw.sample(ops, 20):
            line = lines[i]
            code, loc = (line.rsplit(" loc(", 1) + [""])[:2]
            found = list(re.finditer(r"(?<=[ <%\[])\d+(?=[^.\w])", code))
            if not found:
                continue
            one = draw.choice(found)
            other = code[:one.start()] + str(int(one[0]) + 1) + code[one.end():]
            with open(out + ".mlir", "w") as file:
                file.write("\n".join(lines[:i] + [other + (" loc(" + loc if loc else "")] + lines[i + 1:]) + "\n")
            count("IR", refused(program, out + ".mlir"), f"{path}, line {i + 1}: {other.strip()}")
for kind, (yes, no) in sorted(counts.items()):
    print(f"{kind}: {yes} refused, {no} accepted")
