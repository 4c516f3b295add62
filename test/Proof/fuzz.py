#!/usr/bin/env python3
"""usage: test/Proof/fuzz.py COUNT [--seed=N] [--plans=N] [--jobs=N]     build/bin in PATH

Makes random edits of IR of every phase, of characters, words, lines, types, and of the kinds of mutants.py, one to
three at a time, and passes the result to the phase's verifiers, the proof and the whole compiler (pc-fuzz-each). None
may end with a signal or an internal error, or run forever. KEEP=DIR keeps the programs that failed."""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
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
    """Empties a pair of brackets, doubles its contents, or replaces it by another pair."""
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


def requests(plan, phase, files):
    """Returns a function from the text of a program to what pc-fuzz-each reads it with: STEP, BEFORE, FLAGS and PASSES."""
    if phase == "model":
        return lambda text: ("", "", " ".join(flag.removeprefix("--") for flag in plan.flags), "")
    if phase == "step":
        return lambda text: ("", "", "-", "builtin.module(pc-verify-step)")
    before = files[list(files)[list(files).index(phase) - 1]]
    passes = ",".join(f"pc-{one}" for one in mutants.VERIFIERS[phase])

    def ways(text):
        staged = "pc.stage_axis" in text and phase != "staged"
        return files["step"], before, "-", f"builtin.module(builtin.module({passes}),pc-verify-staged)" if staged else f"builtin.module({passes})"
    return ways


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

        def share(first):
            """Every edit of a number that is `first` modulo the jobs."""
            each = subprocess.Popen(["pc-fuzz-each"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for number in range(first, options.count, options.jobs):
                draw = random.Random(f"{options.seed} {number}")
                plan = draw.choice(plans)
                phase = draw.choice(list(plan.files))
                lines = list(plan.lines[phase])
                for edit in draw.choices(EDITS, k=draw.choice([1, 1, 2, 3])):
                    edit(lines, draw)
                    lines = lines or [""]
                path = work / f"{number}.mlir"
                text = "\n".join(lines) + "\n"
                path.write_text(text)
                each.stdin.write("\t".join(map(str, (path, *requests(plan, phase, plan.files)(text)))) + "\n")
                each.stdin.flush()
                said = each.stdout.readline().split(maxsplit=1)
                if said[0] == "ok":
                    codes.update(said[1].split())
                else:
                    failures.append(number)
                    print(f"{number}: {plan.line}, {phase}: {said[1].strip()}", flush=True)
                    if "KEEP" in os.environ:
                        (pathlib.Path(os.environ["KEEP"]) / path.name).write_text(text)
                path.unlink()
            each.stdin.close()
            return each.wait()

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            if any(pool.map(share, range(options.jobs))):
                sys.exit("pc-fuzz-each has failed")
    print(f"{options.count} edits, exit codes " + ", ".join(f"{code}: {n}" for code, n in sorted(codes.items())) + f"; {len(failures)} failures")
    sys.exit(bool(failures))


main()
