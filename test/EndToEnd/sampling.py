#!/usr/bin/env python3
"""usage: test/EndToEnd/sampling.py quick|all

Samples tokens with compiled programs on several plans.

* Each token is the one that the definition of pc.gumbel and pc.sampling_threshold gives for PyTorch's logits, unless two scores are
  close.
* The numbers of tokens fit the softmax, or what top-k, top-p and min-p leave of it (a chi-square test at 1e-4).
* A request has the same bits alone, among others, in any slot, and whenever it comes."""
import json
import math
import os
import random
import select
import statistics
import struct
import sys
import time

from cases import GOLDEN, Case, mesh_flags, ranks_of

MODEL, CONTEXT = "llama-tied", 24
OTHERS = ["mixtral", "gpt2", "deepseek_v3", "gpt_oss"]
PLANS = [("1", []), ("tp=2", ["--tensor-parallel"]), ("dp=2", ["--data-parallel"]), ("dp=2,tp=2", ["--data-parallel", "--tensor-parallel"]),
         ("pp=2", [])]
SETTINGS = [{"temperature": 1.0}, {"temperature": 0.7}, {"temperature": 1.0, "top_k": 5}, {"temperature": 1.0, "top_p": 0.8},
            {"temperature": 0.7, "min_p": 0.1}]
MARGIN = 1e-3


def golden_logits():
    """PyTorch's logits of the first sequences of tokens.bin: those tokens, and rows of logits [sequence][position]."""
    data = (GOLDEN / MODEL / "golden.safetensors").read_bytes()
    end = 8 + struct.unpack_from("<Q", data)[0]
    about = json.loads(data[8:end])["logits"]
    rows, length, classes = about["shape"]
    numbers = struct.unpack_from(f"<{rows * length * classes}f", data, end + about["data_offsets"][0])
    tokens = struct.unpack_from(f"<{rows * length}H", (GOLDEN / MODEL / "tokens.bin").read_bytes())
    cut = lambda values, size: [values[at:at + size] for at in range(0, len(values), size)]
    return cut(tokens, length), cut(cut(numbers, classes), length)


def philox(counter, key):
    """Philox4x32-10 of Salmon et al. (SC 2011)."""
    (a, b, c, d), (k, l) = counter, key
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = y >> 32 ^ b ^ k, y & 0xFFFFFFFF, x >> 32 ^ d ^ l, x & 0xFFFFFFFF
        k, l = k + 0x9E3779B9 & 0xFFFFFFFF, l + 0xBB67AE85 & 0xFFFFFFFF
    return a, b, c, d


def noise(seed, position, classes):
    words = [word for block in range((classes + 3) // 4) for word in philox((block, position, 0, 1 << 30), (seed & 0xFFFFFFFF, seed >> 32))]
    return [-math.log(-math.log(((word >> 9) + 0.5) / 2**23)) for word in words[:classes]]


def left(logits, temperature, top_k=0, top_p=1.0, min_p=0.0):
    """The classes that remain, with their shares of the softmax."""
    order = sorted(range(len(logits)), key=lambda v: -logits[v])
    if top_k:
        order = order[:top_k]
    weights = [math.exp((logits[v] - logits[order[0]]) / temperature) for v in order]
    before, kept = 0.0, []
    for v, weight in zip(order, weights):
        if before < top_p * sum(weights) and weight >= min_p:
            kept.append((v, weight))
        before += weight
    total = sum(weight for _, weight in kept)
    return {v: weight / total for v, weight in kept}


def chi_square(counts, shares, total):
    """How many standard deviations the sum of squares is off (Wilson and Hilferty), with rare classes as one; and its degrees of freedom."""
    cells, rare = [], [0, 0.0]
    for v, share in shares.items():
        if share * total < 8:
            rare = [rare[0] + counts.get(v, 0), rare[1] + share * total]
        else:
            cells.append((counts.get(v, 0), share * total))
    cells += [tuple(rare)] if rare[1] >= 8 else []
    freedom, square = len(cells) - 1, sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    variance = 2 / (9 * freedom)
    return ((square / freedom) ** (1 / 3) - (1 - variance)) / math.sqrt(variance), freedom


class Program:
    """A program that runs, and pipes to it. A read ends with an error if the program does."""

    def __init__(self, case, number, ranks):
        paths = [case.work / f"{kind}-{number}" for kind in ("requests", "answers")]
        for path in paths:
            os.mkfifo(path)
        self.requests, self.answers = (os.open(path, os.O_RDWR) for path in paths)
        self.process = case.start("pc-run", "-n", ranks, f"./program-{number}", "--", "--requests", paths[0], "--answers", paths[1])
        self.text, self.lines = b"", []

    def send(self, line):
        os.write(self.requests, json.dumps(line).encode() + b"\n")

    def line(self):
        while not self.lines:
            if not select.select([self.answers], [], [], 1)[0]:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the program ended with {self.process.returncode}: {self.process.communicate()[1][-500:]}")
                continue
            *lines, self.text = (self.text + os.read(self.answers, 1 << 16)).split(b"\n")
            self.lines = [json.loads(line) for line in lines]
        return self.lines.pop(0)

    def wait_for(self, names, answers):
        """Reads answers until all of `names` have ended."""
        missing = set(names)
        while missing:
            line = self.line()
            answers.setdefault(line["id"], []).append((line.get("token"), line.get("logprob"), str(line.get("error", ""))))
            if "finish_reason" in line or "error" in line:
                missing.discard(line["id"])

    def end(self):
        os.close(self.requests)
        out, err = self.process.communicate(timeout=60)
        os.close(self.answers)
        return self.process.returncode, err


class SamplingTest(Case):
    def distributions(self, program, name, count, tokens, logits):
        """One token for each of `count` seeds and each setting, compared with the definition. Returns the tokens."""
        wrong, close, all_tokens = [], 0, {}
        for number, setting in enumerate(SETTINGS):
            row, length = number % len(tokens), 2 + 3 * number
            wanted, counts, answers = logits[row][length - 1], {}, {}
            seeds = [seed * 0x9E3779B97F4A7C15 % 2**64 for seed in range(1, count + 1)]
            shares = left(wanted, **setting)
            for first in range(0, count, 64):
                names = [f"{number}.{seed}" for seed in range(first, min(first + 64, count))]
                for name_, seed in zip(names, seeds[first:]):
                    program.send({"id": name_, "prompt": list(tokens[row][:length]), "max_tokens": 1, "seed": seed, **setting})
                program.wait_for(names, answers)
            for at, seed in enumerate(seeds):
                token = answers[f"{number}.{at}"][0][0]
                counts[token] = counts.get(token, 0) + 1
                random_part = noise(seed, length - 1, len(wanted))
                scores = {v: wanted[v] / setting["temperature"] + random_part[v] for v in shares}
                best, next_best = sorted(scores.values(), reverse=True)[:2]
                close += best - next_best < MARGIN
                if best - next_best >= MARGIN and scores.get(token) != best:
                    wrong.append((setting, seed, token))
                elif best - next_best >= MARGIN:
                    all_tokens[number, at] = token
            if count >= 4000:
                off, freedom = chi_square(counts, shares, count)
                self.check(f"{name}: distribution with {setting}", set(counts) <= set(shares) and off < -statistics.NormalDist().inv_cdf(1e-4),
                           f"{off} standard deviations off, {freedom} degrees of freedom", f"{len(counts)} tokens, {off:+.1f} standard deviations")
        self.check(f"{name}: tokens by definition", not wrong and close < count * len(SETTINGS) / 50, f"{len(wanted)} classes, {len(wrong)} wrong: {wrong[:3]}",
                   f"{count * len(SETTINGS)} tokens, {close} close")
        return all_tokens

    def schedules(self, program, name, count, draw):
        """The same requests in `count` schedules."""
        prompt = lambda length: [draw.randrange(89) for _ in range(length)]
        watched = [{"prompt": prompt(1), "max_tokens": 12}, {"prompt": prompt(17), "max_tokens": 7, "temperature": 1.0, "seed": 7},
                   {"prompt": prompt(5), "max_tokens": 10, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 2**63 + 5}]
        alone, answers = [], {}
        for number, request in enumerate(watched):
            program.send({"id": f"alone {number}", **request})
            program.wait_for([f"alone {number}"], answers)
            alone.append(answers[f"alone {number}"])
        differing, cancelled = [], 0
        for schedule in range(count):
            names = [f"{schedule} {number}" for number in range(len(watched))]
            lines = [{"id": name_, **request} for name_, request in zip(names, watched)]
            others = [f"{schedule} other {number}" for number in range(draw.randrange(12))]
            lines += [{"id": other, "prompt": prompt(draw.randint(1, 18)), "max_tokens": draw.randint(1, 6), "temperature": draw.choice([0, 1.5]), "seed": draw.randrange(2**64)}
                      for other in others]
            draw.shuffle(lines)
            for line in lines:
                program.send(line)
                if draw.random() < 0.3:
                    time.sleep(draw.random() / 500)
                if others and draw.random() < 0.1:  # it may not have come, or have ended
                    program.send({"cancel": draw.choice(others)})
                    cancelled += 1
            program.wait_for(names, answers)
            differing += [name_ for name_, wanted in zip(names, alone) if answers[name_] != wanted]
        self.check(f"{name}: bits in {count} schedules", not differing and all(not error for answer in alone for _, _, error in answer),
                   f"{len(differing)} answers differ, first {differing[:2]}: {[answers[name_] for name_ in differing[:1]]}, alone {alone}", f"{cancelled} requests cancelled")

    def start_on(self, number, mesh, *flags):
        self.needs("pc-compile", "model.mlir", "-o", f"program-{number}", "--mode=generate", "--slots", 4, "--size", 8, *mesh_flags(mesh), *flags)
        return Program(self, number, ranks_of(mesh))

    def ends(self, program, name):
        code, err = program.end()
        self.check(f"{name}: ends", code == 0, err)

    def body(self):
        quick = sys.argv[1:] != ["all"]
        tokens, logits = golden_logits()
        self.model(MODEL, 2, CONTEXT)
        first = None
        for number, (mesh, flags) in enumerate(PLANS[:1] + PLANS[3:] if quick else PLANS):
            name = f"{mesh} {' '.join(flags)}".strip()
            program = self.start_on(number, mesh, *flags)
            sampled = self.distributions(program, name, 100 if quick else 4096, tokens, logits)
            self.schedules(program, name, 5 if quick else 200, random.Random(number))
            first = first or sampled
            self.check(f"{name}: tokens of one rank", sampled == first, "they differ")
            self.ends(program, name)
        for number, model in enumerate(OTHERS[:1] if quick else OTHERS, len(PLANS)):
            self.model(model, 2, CONTEXT)
            program = self.start_on(number, "1")
            self.schedules(program, model, 5 if quick else 50, random.Random(number))
            self.ends(program, model)


if __name__ == "__main__":
    case = SamplingTest(" ".join(["sampling.py", *sys.argv[1:]]))
    case.run(case.body)
