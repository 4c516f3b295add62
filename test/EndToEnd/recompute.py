#!/usr/bin/env python3
"""usage: test/EndToEnd/recompute.py [--write]

Lists the tensors that a layer of GPT-2 keeps from its forward for its backward pass in bf16, with the published
formulas, with and without tensor and sequence parallelism and recomputation. Tensors are read from the planned
programs. That none is missing follows from the compiler's report: three layers hold as many bytes more than two. The
table is in docs/rationale/recompute.md; --write makes it anew.
"""
import math
import re

from pages import Page, table

# The model 22B of the paper's table 3, with a batch so large that activations determine the peak.
H, A, S, B, T = 6144, 64, 2048, 128, 8
SBH, SCORES, ROWS = S * B * H, A * S * S * B, S * B

# Tensors of the formulas: name, bytes, whether tensor parallelism splits the tensor, and whether recomputation of
# attention drops it.
ITEMS = [
    ("input of ln_1", 2 * SBH, False, False), ("output of ln_1", 2 * SBH, False, False),
    ("queries", 2 * SBH, True, False), ("keys", 2 * SBH, True, False), ("values", 2 * SBH, True, False),
    ("softmax", 2 * SCORES, True, True), ("mask of its dropout", SCORES, True, True), ("softmax after dropout", 2 * SCORES, True, True),
    ("output of attention", 2 * SBH, True, False), ("mask of the dropout after attention", SBH, False, False),
    ("input of ln_2", 2 * SBH, False, False), ("output of ln_2", 2 * SBH, False, False),
    ("input of gelu", 8 * SBH, True, False), ("output of gelu", 8 * SBH, True, False),
    ("mask of the dropout after the MLP", SBH, False, False)]
# Tensors that only our programs have.
OWN = ["log-sum-exp of attention", "statistics of the norms"]


def formula(item, tensor, sequence, mode):
    name, size, split, attention = item
    if mode == "full":
        return size if name == "input of ln_1" else 0
    if mode == "selective" and attention:
        return 0
    return size // T if sequence or (tensor and split) else size


def published(tensor, sequence, mode, h, a, s):
    """Bytes a layer over sbh (V. Korthikanti et al., MLSys 2023, table 2)."""
    t, scores = T if tensor else 1, 0 if mode != "none" else 5 * a * s / h
    return 2 if mode == "full" else (34 + scores) / t if sequence else 10 + 24 / t + scores / t


class Recompute(Page):
    def load_all(self):
        for layers in (2, 3):
            self.load(B, S, to=str(layers), model_type="gpt2", vocab_size=512, n_embd=H, n_layer=layers, n_head=A, n_positions=S)

    def plan(self, layers, flags):
        """The planned program, and bytes of activations and of what moves make."""
        memory = self.report("--precision=bf16", *flags, model=str(layers))["per_rank"][0]["memory"]
        return (self.work / f"{layers}.planned").read_text().split("\n"), memory["activations"], memory["communication"]


def maker(region, result):
    """The op that makes a result of a fusion, or None."""
    yields = [line.split(" : ")[0].split("pc.yield ")[1] for line in region if "pc.yield" in line]
    if not yields:
        return None
    value = yields[0].split(", ")[result]
    return next((line.split(" = pc.")[1].split(" ")[0] for line in region[1:] if value in line.partition(" = ")[0].strip().split(", ")), None)


def kept(lines):
    """Returns op, name, dims and element type of the values that are made before pc.seed and read after it."""
    names = {match[1]: match[2] for line in lines if (match := re.match(r'(#loc\d*) = loc\("([^"]*)"', line))}
    start = next(i for i, line in enumerate(lines) if "pc.accumulate (" in line) + 1
    made, read, behind = [], set(), False
    while not re.match(r"    \}", lines[start]):
        last = start # of the op's lines, if it has a region
        if lines[start].endswith("{"):
            last = next(i for i in range(start + 1, len(lines)) if re.match(r"      \}", lines[i]))
        text, tail = lines[start], lines[last]
        behind |= "pc.seed" in text
        results, _, op = text.partition(" = ")
        if behind:
            read.update(re.findall(r"%\w+(?:#\d+)?", op if op else text))
        elif op and "!pc.ticket" not in tail:
            values = []
            for word in results.split(", "):
                value, _, count = word.strip().partition(":")
                values += [f"{value}#{i}" for i in range(int(count))] if count else [value]
            name = names.get((re.findall(r"loc\((#loc\d*)\)", tail) or [""])[-1], "")
            types = re.findall(r"tensor<([\dx]*x)?(\w+), #pc.home", tail.split(" -> ")[-1] if start == last else tail)[-len(values):]
            assert len(types) == len(values), (text, tail)
            for i, (value, (dims, element)) in enumerate(zip(values, types)):
                made.append((value, maker(lines[start:last], i) or re.match(r"pc\.(\w+)", op)[1], name, [int(d) for d in dims.split("x")[:-1]], element))
        start = last + 1
    return [entry[1:] for entry in made if entry[0] in read]


def label(op, name, dims, element):
    """Which item of ITEMS or OWN a tensor of a layer is."""
    part = name.split(".", 2)[-1]
    if norm := re.fullmatch(r"(ln_[12])", part):
        return "statistics of the norms" if len(dims) == 2 else f"{'input' if op == 'add' else 'output'} of {norm[1]}"
    return {"attn.c_attn:q": "queries", "attn.c_attn:k": "keys", "attn.c_attn:v": "values",
            "attn": "output of attention" if element == "bf16" else OWN[0],
            "mlp.c_fc": "output of gelu" if op == "activation" else "input of gelu"}[part]


def cell(counted, wanted):
    """In units of SBH, with the formula in parentheses where it differs."""
    return f"{counted / SBH:.4g}" + (f" ({wanted / SBH:.4g})" if counted != wanted else "") if counted or wanted else ""


def compared(test):
    """Each plan with the bytes that the formulas have and that are counted, by tensor."""
    test.load_all()
    for plan, tensor, sequence, flags in [("1 rank", False, False, []), ("`tp=8`", True, False, ["--mesh", "tp=8"]),
                                          ("`tp=8 --sequence-parallel`", True, True, ["--mesh", "tp=8", "--sequence-parallel"])]:
        for mode in ("none", "selective", "full"):
            all = flags + [f"--recompute={mode}"]
            _, *two = test.plan(2, all)
            lines, *three = test.plan(3, all)
            ours = {}
            for op, name, dims, element in kept(lines):
                if ".h.1." in f".{name}":
                    item = label(op, name, dims, element)
                    ours[item] = ours.get(item, 0) + {"f32": 4, "bf16": 2}[element] * math.prod(dims)
            counted = sum(three) - sum(two)
            assert sum(ours.values()) == counted, (plan, mode, ours, counted)
            theirs = {item[0]: formula(item, tensor, sequence, mode) for item in ITEMS}
            assert abs(sum(theirs.values()) / SBH - published(tensor, sequence, mode, H, A, S)) < 1e-9
            yield plan, mode, theirs, ours


# Figure 7 of the paper: percent of tensor parallelism alone, for 22B and 175B.
FIGURE = [("sequence parallelism", True, "none", 66.84, 62.04), ("selective recomputation", False, "selective", 49.42, 56.53),
          ("both", True, "selective", 16.18, 18.49), ("full recomputation", False, "full", 7.64, 8.71)]


def figure():
    for what, sequence, mode, *percents in FIGURE:
        row = f"| {what} |"
        for (h, a), percent in zip([(6144, 64), (12288, 96)], percents):
            share = 100 * published(True, sequence, mode, h, a, S) / published(True, False, "none", h, a, S)
            assert abs(share - percent) < 0.1, (what, share, percent)
            row += f" {share:.2f} | {percent:.2f} |"
        yield row


def page_tables():
    plans = list(compared(test))
    total = lambda tensors: f"{sum(tensors.values()) / SBH:.2f}"
    yield table("plan | `--recompute` | formula | counted",
                (f"| {plan} | {mode} | {total(theirs)} | {total(ours)} |" for plan, mode, theirs, ours in plans))
    yield table("| 22B | published | 175B | published", figure())
    names = [item[0] for item in ITEMS] + OWN
    yield table("kept tensor | " + " | ".join(f"{plan}, {mode}" for plan, mode, *_ in plans),
                (f"| {name} | " + " | ".join(cell(ours.get(name, 0), theirs.get(name, 0)) for *_, theirs, ours in plans) + " |" for name in names))


test = Recompute()
test.make(page_tables)
