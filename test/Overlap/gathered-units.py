#!/usr/bin/env python3
"""usage: gathered-units.py PLANNED.mlir [TENSOR]

Reads a planned program and prints the largest number of units of split parameters (tensors whose names agree up to the
first number) that are gathered in the arena at any time of a microbatch: from the start of a gather, when its buffer is
allocated, to the last op that reads it. TENSOR is not counted.
"""
import re, sys

text = open(sys.argv[1]).read().splitlines()
end = next(i for i, line in enumerate(text) if line.startswith("      pc.yield"))  # of the microbatch: names begin anew after it
text = text[:end]
unit, starts, buffers = {}, {}, {}  # of a parameter; per ticket: (line, operands); per value: [units, home, first, last]
for at, line in enumerate(text):
    if match := re.match(r'\s*(%\w+) = pc.parameter "([^"]+)"', line):
        name = match[2]
        number = re.search(r"\.\d+(?=\.)", name)
        unit[match[1]] = name[: number.end()] if number else name
    elif match := re.match(r"\s*(%\w+) = pc.cast (%\w+)", line):  # what is rounded is of its unit
        if match[2] in unit:
            unit[match[1]] = unit[match[2]]
    for value in set(re.findall(r"%\w+(?:#\d+)?", line.split(" = ", 1)[-1])):
        if value in buffers:
            buffers[value][2] = at
    if match := re.match(r"\s*(%\w+) = pc.start \((.*)\) \{", line):
        starts[match[1]] = (at, re.findall(r"= (%\w+(?:#\d+)?) :", match[2]))
    elif match := re.match(r"\s*(%\w+)(?::\d+)? = pc.wait (%\w+)", line):
        first, operands = starts[match[2]]
        for i, operand in enumerate(operands):
            if operand in unit:
                buffers[f"{match[1]}#{i}" if len(operands) > 1 else match[1]] = [unit[operand], first, at]
    elif match := re.match(r"\s*(%\w+) = pc.all_gather (%\w+)", line):
        if match[2] in unit and not match[1] in buffers:
            buffers[match[1]] = [unit[match[2]], at, at]
most, where = 0, set()
for at in range(len(text)):
    there = {u for u, first, last in buffers.values() if first <= at <= last} - set(sys.argv[2:])
    if len(there) > most:
        most, where = len(there), there
print(f"{most} units: {', '.join(sorted(where))}")
