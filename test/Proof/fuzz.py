#!/usr/bin/env python3
"""usage: test/Proof/fuzz.py COUNT [--seed=N] [--plans=N] [--jobs=N]     build/bin in PATH

Edits IR of every phase without sense, of characters, words, lines, types, and by the kinds of mutants.py, one to three times each, and gives it to the
phase's verifiers, the proof and the whole compiler: nothing may end by a signal, an assertion or without an end. KEEP=DIR keeps what did."""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

import mutants

NUMBERS = ["0", "1", "-1", "2", "3", "7", "64", "2147483648", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1.0e+308", "0x7FC00000"]
TYPES = ["f32", "bf16", "i32", "f64", "i1", "index", "i64"]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[%#@!^]?[\w.$-]+|->|\s+|.')


def characters(lines, draw):
    i = draw.randrange(len(lines))
    at = draw.randrange(len(lines[i]) + 1)
    lines[i] = lines[i][:at] + draw.choice(["", "", "%", "<", ">", "(", ")", "[", "]", "{", "}", ",", '"', "x", "?", "*", "#", "\t"]) + lines[i][at + draw.randrange(3):]


def words(lines, draw):
    """A word goes, comes twice, or becomes another one, of that line or any."""
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    own, other = TOKEN.findall(lines[i]), TOKEN.findall(lines[draw.choice([i, j])])
    if own and other:
        at = draw.randrange(len(own))
        own[at] = draw.choice(["", own[at] * 2, draw.choice(other), draw.choice(other), draw.choice(other)])
        lines[i] = "".join(own)


def some_lines(lines, draw):
    i, j, n = draw.randrange(len(lines)), draw.randrange(len(lines)), draw.choice([1, 1, 1, 2, 5, 20])
    piece = lines[i:i + n]
    if draw.random() < 0.6:
        del lines[i:i + n]
    if draw.random() < 0.6:
        lines[j:j] = piece


def number(lines, draw):
    replace(lines, draw, r"(?<![\w#%@.])-?\d+(?:\.\d+(?:e[+-]?\d+)?)?", lambda word: draw.choice(NUMBERS + [str(int(float(word[:15])) + draw.choice([-1, 1]))]))


def size(lines, draw):
    replace(lines, draw, r"(?<=[<x])\d+(?=x)", lambda word: draw.choice(["0", "1", "?", "3", "*", "4611686018427387904", str(int(word) * 2)]))


def element(lines, draw):
    replace(lines, draw, r"(?<=[<x])(?:f32|bf16|i32)\b", lambda word: draw.choice(TYPES))


def rank(lines, draw):
    replace(lines, draw, r"tensor<(?:\d+x)*", lambda word: draw.choice([word + "2x", "tensor<", re.sub(r"\d+x$", "", word), "vector<4x", "memref<4x", "tensor<*x"]))


def value(lines, draw):
    every = sorted({name for line in lines for name in re.findall(r"%\w+(?:#\d+)?", line)})
    replace(lines, draw, r"%\w+(?:#\d+)?", lambda word: draw.choice(every + [word.split("#")[0] + "#1", "%nothing"]))


def name(lines, draw):
    every = sorted({name for line in lines for name in re.findall(r"\bpc\.\w+", line)})
    replace(lines, draw, r"\bpc\.\w+", lambda word: draw.choice(every))


def group(lines, draw):
    """What brackets hold goes, or is that of others."""
    pattern = r"\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)|\"[^\"]*\""
    every = [found for line in lines for found in re.findall(pattern, line)]
    replace(lines, draw, pattern, lambda word: draw.choice([word[0] + word[-1], draw.choice(every), word[0] + word[1:-1] + ", " + word[1:-1] + word[-1]]))


def replace(lines, draw, pattern, new):
    at = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    if at:
        i = draw.choice(at)
        found = draw.choice(list(re.finditer(pattern, lines[i])))
        lines[i] = lines[i][:found.start()] + new(found[0]) + lines[i][found.end():]


def mutant(lines, draw):
    text = mutants.Text("\n".join(lines))
    edits = list(draw.choice(mutants.KINDS)[2](text, draw))
    if edits:
        change = draw.choice(edits)
        lines[:] = "\n".join(change.get(i, line) for i, line in enumerate(text.lines)).splitlines()


EDITS = [characters, words, words, some_lines, number, number, size, element, rank, value, value, name, group, group, mutant, mutant]


def run(command, path):
    """What is wrong with how the command ends; empty, else."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except subprocess.TimeoutExpired:
        return "no end", 0
    crashed = done.returncode < 0 or done.returncode > 100 or "Stack dump" in done.stderr or "Assertion" in done.stderr
    return (f"exit code {done.returncode}" if crashed else ""), done.returncode


def commands(plan, phase, files, path):
    """A way to read the program of each kind."""
    if phase in ("model", "step"):
        return [["pc-compile", path, *plan.flags, "--to=planned", "-o", os.devnull]] if phase == "model" else [["pc-opt", "--pc-verify-step", path, "-o", os.devnull]]
    staged = "pc.stage_axis" in path.read_text() and phase != "staged"
    passes = ",".join(f"pc-{one}" for one in mutants.VERIFIERS[phase])
    passes = f"builtin.module(builtin.module({passes}),pc-verify-staged)" if staged else f"builtin.module({passes})"
    before = list(files)[list(files).index(phase) - 1]
    more = f" before={files[before]}" if before != "step" else ""
    return [["pc-opt", f"--pass-pipeline={passes}", path, "-o", os.devnull],
            ["pc-opt", f"--pc-prove=reference={files['step']}{more}", path, "-o", os.devnull],
            ["pc-compile", path, "--to=planned", "-o", os.devnull]]


class Plan:
    def __init__(self, line, folder):
        folder.mkdir()
        model, mesh, *flags = line.split()
        self.line, self.flags = line, [f"--mesh={mesh}", *(flag for flag in flags if not flag.startswith(("--batch", "--layers")))]
        found = mutants.programs(line, folder)
        self.files = {"model": folder / "model.mlir", **found}
        self.lines = {phase: path.read_text().splitlines() for phase, path in self.files.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", type=int, default=len(mutants.PLANS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    codes, failures = collections.Counter(), []
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        plans = [Plan(line, work / str(i)) for i, line in enumerate(draw.sample(mutants.PLANS, options.plans))]

        def one(number):
            draw = random.Random(f"{options.seed} {number}")
            plan = draw.choice(plans)
            phase = draw.choice(list(plan.files))
            lines = list(plan.lines[phase])
            for edit in draw.choices(EDITS, k=draw.choice([1, 1, 2, 3])):
                edit(lines, draw)
                lines = lines or [""]
            path = work / f"{number}.mlir"
            path.write_text("\n".join(lines) + "\n")
            ends = [(command, *run(command, path)) for command in commands(plan, phase, plan.files, path)]
            bad = [f"{number}: {plan.line}, {phase}: {wrong}: {shlex.join(map(str, command))}" for command, wrong, _ in ends if wrong]
            if bad and "KEEP" in os.environ:
                (pathlib.Path(os.environ["KEEP"]) / f"{number}.mlir").write_text(path.read_text())
            path.unlink()
            return bad, [code for *_, code in ends]

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for bad, ends in pool.map(one, range(options.count)):
                failures += bad
                codes.update(ends)
                for line in bad:
                    print(line, flush=True)
    print(f"{options.count} edits, exit codes " + ", ".join(f"{code}: {n}" for code, n in sorted(codes.items())) + f"; {len(failures)} failures")
    sys.exit(bool(failures))


main()
