#!/usr/bin/env python3
"""usage: test/Proof/mutants.py COUNT [--seed=N] [--plans=N] [--log=FILE] [--part=K/N] [--wrong]     build/bin in PATH

Edits programs of every phase and runs the proof: it must refuse each edit that changes the results of the program.
Sites are drawn by kind of edit, so that rare kinds are as likely as frequent ones. Accepted edits are judged
independently: by the phase's other verifiers and the interpreter on all ranks (pc-equal), which share no algebra with
the proof. Prints, by class, how many were refused, accepted and equal, malformed (text that is no program), and missed,
which kinds of edits made programs, and how often messages name the line and the class. The exit status is 1 if one was
missed. With --log a run of hours continues where it stopped. --part divides a run, each part with a log of its own; of
all logs in one file the same COUNT computes the sums."""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "EndToEnd"))
import recurrences  # noqa: E402
GOLDEN = HERE.parent / "EndToEnd" / "golden"
PHASES = ["placed", "staged", "local", "scheduled", "planned"]
VERIFIERS = {"placed": ["verify-placed"], "staged": ["verify-staged"], "local": ["verify-local"], "scheduled": ["verify-scheduled"],
             "planned": ["verify-memory", "verify-scheduled"]}
# These plans use every tactic, every family of schedules, bf16, recomputation and windows.
PLANS = """gpt2 dp=2,tp=2 --zero=1
llama dp=2,tp=2 --zero=3 --sequence-parallel
gpt2 pp=2,dp=2 --microbatches=2
llama cp=2,dp=2 --context-parallel=ring
gpt2 dp=2 --zero=2 --precision=bf16 --microbatches=2
gpt2 row=2,col=2 --tensor-parallel=2d
llama pp=2,tp=2 --microbatches=2 --inline-tasks=0
llama tp=4 --sequence-parallel --window=tp
qwen3 dp=2,tp=2 --recompute=full
gpt2 dp=2 --data-parallel=naive
gpt2 rep=2,dp=2 --data-parallel=ddp:rep --zero=3
gpt2 pp=2 --microbatches=4 --pipeline=gpipe
gpt2 pp=2 --microbatches=4 --pipeline=zb-h1
llama pp=2 --microbatches=4 --pipeline=zb-v --layers=4
gpt2 pp=2 --microbatches=2 --pipeline=interleaved:2 --layers=4
llama-tied pp=2,dp=2 --microbatches=2
gpt2 dp=3 --zero=1 --batch=6
llama cp=4 --context-parallel=ring
gpt2 dp=2 --optimizer=sgd
llama j=2,l=2,i=2 --tensor-parallel=3d
llama depth=2,row=2,col=2 --tensor-parallel=2.5d
qwen2 dp=2 --zero=2 --microbatches=2
llama row=2,col=2 --tensor-parallel=2d --window=row,col
mistral dp=2,tp=2 --precision=bf16 --zero=3 --sequence-parallel
gpt2 dp=2 --mode=eval
gpt2-targets dp=2,tp=2 --microbatches=2
bert dp=2,tp=2 --zero=1
bert pp=2 --microbatches=2
t5 dp=2,tp=2 --zero=1
t5-gated pp=2,tp=2 --microbatches=2
gpt2-packed dp=2,tp=2
mixtral dp=2,ep=2 --zero=1
recurrences tp=2,cp=2
mixtral ep=2,tp=2
mixtral ep=2 --experts-limit=100
mixtral ep=4
mixtral dp=2,ep=2 --expert-exchange=rows
mixtral-capacity ep=2,cp=2 --context-parallel=ring
qwen3_moe pp=2 --microbatches=2
mistral-packed pp=2,dp=2 --microbatches=2
llama pp=2,cp=2 --context-parallel=ring --microbatches=2 --inline-tasks=0
qwen2 pp=2,dp=2 --zero=2 --precision=bf16 --microbatches=2 --inline-tasks=0""".splitlines()


class Text:
    """A program as lines, with the type and the function of each value."""

    def __init__(self, text):
        text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)
        self.lines = [line for line in text.splitlines() if not line.startswith("#loc")]
        self.mesh = re.findall(r"(\w+) = \d+", next((line for line in self.lines if "pc.mesh" in line), ""))
        self.types, self.scope, self.values = {}, [], collections.defaultdict(list)
        block = 0
        for i, line in enumerate(self.lines):
            block += "func.func" in line
            self.scope.append(block)
            found = re.match(r"\s*(%\w+)(?::\d+)? = pc\.\w+.*(?:->|:) ?\(?(tensor<[^()]*?>)\)?$", line)
            if found and "," not in re.sub(r"<[^<>]*(<[^<>]*>)?[^<>]*>", "", found[2]):
                self.values[block, found[2], line.index("%")].append((i, found[1]))
                self.types[block, found[1]] = found[2]

    def others(self, at, name):
        """Values of the type of `name` in the block that stand before line `at`."""
        kind = self.types.get((self.scope[at], name))
        indent = len(self.lines[at]) - len(self.lines[at].lstrip())
        return [value for line, value in self.values[self.scope[at], kind, indent] if line < at and value != name]


    def end(self, first):
        """The number of the line that closes the block which line number `first` opens."""
        close = " " * self.lines[first - 1].index("%") + "}"
        return next((i for i in range(first, len(self.lines)) if self.lines[i].startswith(close)), first) + 1

    def opening(self, i):
        """The number of the line of the op that line i closes, and says the types of: the op stands there for messages."""
        indent = len(self.lines[i]) - len(self.lines[i].lstrip())
        if not self.lines[i].lstrip().startswith("}"):
            return set()
        return {next((j for j in range(i - 1, -1, -1) if len(self.lines[j]) - len(self.lines[j].lstrip()) == indent), i) + 1}

    def maker(self, block, name):
        """The numbers of the lines of the op that computes a value. For a wait, they include the lines of its start."""
        at = next((i for i, line in enumerate(self.lines) if self.scope[i] == block and re.match(rf"[^=]*{name}\b[^=]* = pc", line)), None)
        found = at is not None and re.search(r"= pc\.wait (%\w+)", self.lines[at])
        start = self.maker(block, found[1]) if found else set()
        return (set() if at is None else {at + 1}) | {i for first in start for i in range(first, self.end(first))}

    def makers(self, change):
        """The lines of what lines read that are taken out."""
        return {line for i, new in change.items() if not new for name in re.findall(r"%\w+", self.lines[i]) for line in self.maker(self.scope[i], name)}


KINDS = []  # class, name, function of (text, generator) that lists edits: {line: new line or None}


def kind(family):
    def add(function):
        KINDS.append((family, function.__name__.replace("_", " "), function))
        return function
    return add


def edit(family, name, pattern, new, where=""):
    """An edit of what matches in a line; `new` makes other texts of the match."""
    def sites(text, draw):
        for i, line in enumerate(text.lines):
            if where in line and "pc.program" not in line:
                for found in re.finditer(pattern, line):
                    choices = new(found, text) if callable(new) else [found.expand(new)]
                    choices = [choice for choice in choices if choice != found[0]]
                    if choices:
                        yield {i: line[:found.start()] + draw.choice(choices) + line[found.end():]}
    KINDS.append((family, name, sites))


def axes(found, text):
    """Another axis in the place of one; one more; one less; the other order."""
    own = re.findall(r'"(\w+)"', found[0])
    more = [own[:i] + [axis] + own[i + 1:] for i in range(len(own)) for axis in text.mesh if axis not in own]
    more += [own + [axis] for axis in text.mesh if axis not in own] + [own[:-1]] * (len(own) > 1) + [own[::-1]]
    return ["[" + ", ".join(f'"{axis}"' for axis in list) + "]" for list in more]


def places(found, text):
    dims = [dim.strip() for dim in re.split(r",(?![^(]*\))", found[1])]
    more = [dims[:i] + [other] + dims[i + 1:] for i in range(len(dims)) for other in text.mesh + ["_"]]
    more += [dims[:i] + [dims[i + 1], dims[i]] + dims[i + 2:] for i in range(len(dims) - 1)]
    more += [dims[:i] + ["(" + ", ".join(dims[i][1:-1].split(", ")[::-1]) + ")"] + dims[i + 1:] for i in range(len(dims)) if dims[i].startswith("(")]
    return ["<[" + ", ".join(list) + "]" for list in more]


def number(*changes):
    return lambda found, text: [found[1] + change(found[2]) for change in changes]


def plus(n):
    return lambda word: str(int(word) + n)


def times(x):
    return lambda word: repr(float(word) * x)


MOVES = "collective, axis, dim, placement"
for move in "all_reduce reduce_scatter all_gather all_to_all slice mask pad broadcast scatter gather reduce permute insert".split():
    edit(MOVES, f"axes of {move}", r'\["\w+"(?:, "\w+")*\]', axes, f"pc.{move} ")
for move in "all_reduce reduce_scatter reduce".split():
    edit(MOVES, f"{move} of a maximum", r"\bsum (?=%)", "max ", f"pc.{move} sum")
for move in "reduce_scatter all_gather slice pad insert scatter gather".split():
    edit(MOVES, f"dim of {move}", r"( dim )(\d+)", number(plus(1), lambda d: str(max(0, int(d) - 1))), f"pc.{move} ")
edit(MOVES, "from and to of all_to_all", r"from (\d+) to (\d+)", r"from \2 to \1", "pc.all_to_all")
for move in "permute insert slice".split():
    edit(MOVES, f"shift of {move}", r"( shift )(-?\d+)", number(plus(1), plus(-1)), f"pc.{move} ")
    edit(MOVES, f"partner of {move}", r' with \["\w+"\]', "", f"pc.{move} ")
edit(MOVES, "shift of a plain slice", r"( dim \d+)( on )", r"\1 shift 1\2", "pc.slice")
edit(MOVES, "layout of a leaf", r"<\[([^\]<>]*)\]", places, " layout ")
edit(MOVES, "layout of an output", r"<\[([^\]<>]*)\]", places, "pc.output")


@kind(MOVES)
def a_move_is_left_out(text, draw):
    for i, line in enumerate(text.lines):
        if re.search(r"pc\.(all_reduce|mask|permute|broadcast|reduce) ", line):
            yield {i: re.sub(r"pc\.\w+ (?:sum |max )?(%[\w#]+)(?: shift \d+)? on .*? : ", r"pc.copy \1 : ", line)}


@kind(MOVES)
def a_move_is_made_twice(text, draw):
    for i, line in enumerate(text.lines):
        found = re.search(r"(%\w+) = pc\.(?:all_reduce|mask|permute) (?:sum |max )?(%[\w#]+) .* : \((.*)\) -> (.*)$", line)
        if found and found[3] == found[4]:
            again = line.replace(found[1] + " =", "%again =").replace(found[2] + " ", found[1] + " ", 1)
            yield {i: line + "\n" + again, **{j: re.sub(re.escape(found[1]) + r"(?![\w#])", "%again", text.lines[j])
                   for j in range(i + 1, len(text.lines)) if text.scope[j] == text.scope[i]}}


SCALES = "scale, constant, mask, rope"
edit(SCALES, "factor of scale", r"( by )(-?[\d.e+-]+)", number(times(2), times(-1)), "pc.scale")
edit(SCALES, "constant", r"(pc\.constant )(-?[\d.e+-]+)", number(times(2), lambda x: repr(float(x) + 1)))
edit(SCALES, "eps", r"( eps )([\d.e+-]+)", number(times(10)), "_norm")
edit(SCALES, "scale of attention", r"( scale )([\d.e+-]+)", number(times(0.5)), "pc.attention")
edit(SCALES, "causal attention", r"attention(_grad)? causal", r"attention\1", "pc.attention")
edit(SCALES, "attention over documents", r" starts %[\w#]+(.*), (tensor<[^()]*?xi32[^()]*?>)(?=[,)])", r"\1", "pc.attention")
edit(SCALES, "addends of scores", r" bias %[\w#]+(.*), tensor<\d+x\d+x\d+xf32[^()]*?>(?=[,)])", r"\1", "pc.attention ")
edit(SCALES, "bucket of a distance", r"( values \[)(\d+)", number(plus(1)), "pc.iota")
edit(SCALES, "distances of a bucket", r"( pieces \[0, )(\d+)", number(plus(1), plus(-1)), "pc.iota")
edit(SCALES, "inverse of rope", r"pc\.rope (inverse )?", lambda found, text: ["pc.rope " if found[1] else "pc.rope inverse "])
edit(SCALES, "cos and sin", r"pc\.rope (inverse )?(%[\w#]+), (%[\w#]+), (%[\w#]+)", r"pc.rope \1\2, \4, \3")
edit(SCALES, "kind of table", r"rope_table (cos|sin)", lambda found, text: ["rope_table cos", "rope_table sin"])
edit(SCALES, "scale of a table", r"( scale )([\d.e+-]+)", number(times(2)), "pc.rope_table")
edit(SCALES, "frequencies of a table", r"inv_freq \[([\d.e+-]+),", lambda found, text: [f"inv_freq [{float(found[1]) + 1!r},"])
edit(SCALES, "activation", r"pc\.(activation(?:_grad)?) \w+", lambda found, text: [f"pc.{found[1]} {k}" for k in ("gelu", "silu", "relu")])
edit(SCALES, "padding of the vocabulary", r"( valid )(\d+)", number(plus(-1), plus(1)), "pc.mask_padding")
edit(SCALES, "value of padding", r"( value )(-?[\d.e+-]+)", number(lambda x: "1.0"), "pc.mask_padding")
edit(SCALES, "block of an offset", r"( block )(\d+)", number(plus(1), plus(-1)), "pc.block_offset")
edit(SCALES, "axes of an offset", r'\["\w+"(?:, "\w+")*\]', axes, "pc.block_offset")
edit(SCALES, "no offset", r"(%\w+) offset %\w+(.*), tensor<i32[^()]*?>\)", r"\1\2)", "offset %")
edit(SCALES, "first column", r"( from )(-?\d+)", number(plus(1), plus(-1)), "pc.columns")
edit(SCALES, "direction of a recurrence", r'( along "\w+") (reverse )?', lambda found, text: [f"{found[1]} reverse ", f"{found[1]} "], "pc.recurrence")
edit(SCALES, "dim of a recurrence", r'"[^"]* (\w+)" along "(\w+)"', lambda found, text: [found[0].replace(f'along "{found[2]}"', f'along "{found[1]}"')], "pc.recurrence")
edit(SCALES, "capacity of experts", r"( capacity )(\d+)", number(plus(1), plus(-1)), "pc.admit")
edit(SCALES, "round of rows", r"( round )(\d+)", number(plus(1), plus(-1)), "pc.round_of_rows")
edit(SCALES, "rounds of rows", r"( of )(\d+)(?= limit)", number(plus(1), plus(-1)), "pc.round_of_rows")
edit(SCALES, "rows of a round", r"( limit )(\d+)", number(plus(1), plus(-1)), "pc.round_of_rows")
edit(SCALES, "shift of counts", r"( shift )(\d+)", number(plus(1)), "pc.key_counts")
for one, other in [("exp", "log"), ("sqrt", "recip"), ("recip", "exp"), ("log", "exp"), ("exp", "copy"), ("sqrt", "copy")]:
    edit(SCALES, f"{one} becomes {other}", rf"pc\.{one} ", f"pc.{other} ")

UPDATES = "gradient, optimizer, update"
edit(UPDATES, "averages of adamw", r"adamw (%[\w#]+), (%[\w#]+), (%[\w#]+), (%[\w#]+)", r"adamw \1, \2, \4, \3")
edit(UPDATES, "gradient of adamw", r"adamw (%[\w#]+), (%[\w#]+)", r"adamw \2, \1")
edit(UPDATES, "results of adamw", r"(update \"exp_avg\w*\" of .* %\w+)#(\d)", lambda found, text: [f"{found[1]}#{n}" for n in range(3)])
edit(UPDATES, "an update is left out", r"^\s*pc\.update .*", "")
edit(UPDATES, "name of an update", r'update "exp_avg"', 'update "exp_avg_sq"')


def swapped(family, name, word):
    """Exchanges two values of one type that follow the word."""
    def sites(text, draw):
        lines = [i for i, line in enumerate(text.lines) if word in line]
        groups = collections.defaultdict(list)
        for i in lines:
            groups[text.scope[i], text.lines[i].split(" : ")[-1]].append(i)
        for group in groups.values():
            for i, j in zip(group, group[1:]):
                a, b = (re.search(rf"{re.escape(word)}.*?(%[\w#]+)", text.lines[k])[1] for k in (i, j))
                if a != b:
                    yield {i: text.lines[i].replace(a, b), j: text.lines[j].replace(b, a)}
    KINDS.append((family, name, sites))


def otherwise(family, name, pattern):
    """Another earlier value of its type where group 1 stands."""
    def sites(text, draw):
        for i, line in enumerate(text.lines):
            for found in re.finditer(pattern, line):
                others = text.others(i, found[1])
                if others:
                    yield {i: line[:found.start(1)] + draw.choice(others) + line[found.end(1):]}
    KINDS.append((family, name, sites))


swapped(UPDATES, "two updates", 'pc.update "')
swapped(UPDATES, "two gradients", "pc.output gradient")
otherwise(UPDATES, "another gradient", r"pc\.(?:adamw|sgd) %[\w#]+, (%\w+)(?![\w#])")
otherwise(UPDATES, "another coefficient", r"pc\.(?:adamw .*?|sgd .*?), (%\w+), %\w+ : ")
otherwise(UPDATES, "another new value", r"pc\.update .* (%\w+) : ")

NORM = "clip norm"
otherwise(NORM, "another norm", r"pc\.clip_coefficient (%\w+)")
otherwise(NORM, "another square", r'pc\.einsum "[^"]*->" (%\w+), %\w+ : ')
edit(NORM, "a sum without a square", r"pc\.add (%[\w#]+), (%[\w#]+) : \((tensor<f32[^()]*?>), (tensor<f32[^()]*?>)\)",
     lambda found, text: [f"pc.copy {found[1]} : ({found[3]})", f"pc.copy {found[2]} : ({found[4]})"])
edit(NORM, "a square counted twice", r"pc\.add (%[\w#]+), (%[\w#]+)(?= : \(tensor<f32)", lambda found, text: [f"pc.add {found[n]}, {found[n]}" for n in (1, 2)])

WRONG = "wrong value read, addend dropped or doubled"
otherwise(WRONG, "another operand", r"(?<= = )pc\.(?!copy)\w+[^%]*(%\w+)(?![\w#])")
otherwise(WRONG, "another second operand", r"(?<= = )pc\.\w+[^%]*%[\w#]+, (%\w+)(?![\w#])")
edit(WRONG, "operands the other way", r"pc\.(sub|einsum \"[^\"]*\"|activation_grad \w+|attention causal) (%[\w#]+), (%[\w#]+)", r"pc.\1 \3, \2")
edit(WRONG, "keys and values", r"(attention(?:_grad)?(?: causal)? %[\w#]+), (%[\w#]+), (%[\w#]+)", r"\1, \3, \2")
edit(WRONG, "add becomes sub", r"pc\.add ", "pc.sub ")
edit(WRONG, "an addend twice", r"pc\.add (%[\w#]+), (%[\w#]+)", lambda found, text: [f"pc.add {found[n]}, {found[n]}" for n in (1, 2)])
edit(WRONG, "an addend less", r"pc\.add (%[\w#]+), (%[\w#]+) : \((tensor<[^()]*>), (tensor<[^()]*>)\)",
     lambda found, text: [f"pc.copy {found[1]} : ({found[3]})"] if found[3] == found[4] else [])
edit(WRONG, "another result", r"(%\w+)#(\d+)", lambda found, text: [f"{found[1]}#{int(found[2]) + d}" for d in (-1, 1) if int(found[2]) + d >= 0])
edit(WRONG, "order of yields", r"pc\.yield (%[\w#]+), (%[\w#]+)", r"pc.yield \2, \1")
edit(WRONG, "letters of a product", r'einsum "([^"]*)"', lambda found, text: [f'einsum "{re.sub(a + "|" + b, lambda m: b if m[0] == a else a, found[1].split("->")[0])}->{found[1].split("->")[1]}"'
     for a, b in zip(found[1].split("->")[1].split(), found[1].split("->")[1].split()[1:])])
otherwise(WRONG, "statistics of a norm", r"norm_grad %[\w#]+, %[\w#]+, (%\w+)")

DATA = "what data, which weight"
edit(DATA, "tokens and targets", r"pc\.input (tokens|targets)", lambda found, text: ["pc.input tokens", "pc.input targets"])
edit(DATA, "kind of a mask", r"pc\.input (starts|positions)", lambda found, text: ["pc.input starts", "pc.input positions"])
edit(DATA, "what ends documents, what a decoder reads first", r"( key )(\d+)", number(plus(1)), "pc.input")
edit(DATA, "start of a source", r"start = \[(\d+)", lambda found, text: [f"start = [{int(found[1]) + 1}"])
edit(DATA, "tensor of a source", r'source <"([^"]*)\.(\d+)\.', r'source <"\1.7.')
edit(DATA, "init of a parameter", r"init <(\w+), ([\d.e+-]+)>", lambda found, text: [f"init <{found[1]}, {float(found[2]) + 1!r}>"])
edit(DATA, "key of a parameter", r"( key )(\d+)", number(plus(1)), "pc.parameter")
edit(DATA, "name of a parameter", r'parameter "([^"]*)(\d+)([^"]*)"', lambda found, text: [f'parameter "{found[1]}{1 - int(found[2]) % 2}{found[3]}"'])
edit(DATA, "dims of a leaf", r'dims \["(\w+)"', 'dims ["other"', "pc.parameter")
edit(DATA, "name of a state", r'state "exp_avg"', 'state "exp_avg_sq"')
edit(DATA, "microbatch", r"\[(\d+)\] :", lambda found, text: [f"[{1 - int(found[1]) % 2}] :"], "pc.microbatch")
edit(DATA, "kind of an output", r"output (loss|grad_norm)", lambda found, text: ["output loss", "output grad_norm"])
edit(DATA, "whole shape of a leaf", r"global \[(\d+)", lambda found, text: [f"global [{int(found[1]) * 2}"])

MESSAGES = "messages, microbatches, order"
edit(MESSAGES, "message", r"( message )(\d+)", number(plus(1), lambda m: str(max(0, int(m) - 1))))
edit(MESSAGES, "flow", r"( flow )(\d+)", number(plus(1), lambda m: str(max(0, int(m) - 1))))
edit(MESSAGES, "callee", r"@(forward|backward)(\d+)(_first)?\(", lambda found, text: [f"@{found[1]}{found[2]}{'' if found[3] else '_first'}(", f"@{found[1]}{1 - int(found[2]) % 2}{found[3] or ''}("], "pc.call")
otherwise(MESSAGES, "another argument of a call", r"pc\.call @\w+\((?:%[\w#]+, )*?(%\w+)[,)]")
swapped(MESSAGES, "two messages sent", "pc.send ")


@kind(MESSAGES)
def two_receives(text, draw):
    lines = [i for i, line in enumerate(text.lines) if "pc.receive" in line]
    for i, j in zip(lines, lines[1:]):
        if text.scope[i] == text.scope[j]:
            a, b = (text.lines[k].split(" = ")[0].strip() for k in (i, j))
            yield {i: text.lines[i].replace(a + " =", b + " ="), j: text.lines[j].replace(b + " =", a + " =")}


WAITS = "waits and memory"


def homes(change):
    def sites(text, draw):
        every = sorted({m for line in text.lines for m in re.findall(r"tensor<[^<>]*, #pc\.home<\d+>>", line)})
        draw.shuffle(every)
        for old in every[:12]:
            shape, home = re.match(r"(tensor<[^<>]*, #pc\.home<)(\d+)", old).groups()
            new = f"{shape}{change(int(home), every, draw)}>>"
            if new != old:
                yield {i: line.replace(old, new) for i, line in enumerate(text.lines) if old in line}
    return sites


KINDS.append((WAITS, "a home 64 bytes further", homes(lambda home, every, draw: home + 64)))
KINDS.append((WAITS, "a home 256 bytes before", homes(lambda home, every, draw: max(0, home - 256))))
KINDS.append((WAITS, "the home of another value", homes(lambda home, every, draw: re.search(r"home<(\d+)", draw.choice(every))[1])))
edit(WAITS, "a smaller arena", r"(pc\.arena )(\d+)", number(plus(-64), lambda n: str(int(n) // 128 * 64)))
edit(WAITS, "frame of a call", r"( frame )(\d+)", number(plus(64), plus(-64)))


@kind(WAITS)
def an_op_before_another(text, draw):
    for i in range(1, len(text.lines)):
        a, b = text.lines[i - 1], text.lines[i]
        both = all(re.match(r"\s*(%\w+(:\d+)?(, %\w+)* = )?pc\.\w+ ", line) and not line.endswith("{") for line in (a, b))
        if both and not any(re.search(re.escape(name) + r"\b", b) for name in re.findall(r"%\w+", a.split(" = ")[0])):
            yield {i - 1: b, i: a}


@kind(WAITS)
def a_wait_comes_earlier(text, draw):
    for i, line in enumerate(text.lines):
        if "pc.wait" in line and not text.lines[i - 1].strip().startswith("}") and not text.lines[i - 1].endswith("{"):
            yield {i - 1: line, i: text.lines[i - 1]}


PRECISION = "precision"


@kind(PRECISION)
def a_sum_in_bf16(text, draw):
    for i, line in enumerate(text.lines):
        found = re.match(r"(\s*)(%\w+) = pc\.all_reduce sum (%[\w#]+) (on \[.*?\]) : \((.*f32.*)\) -> (.*f32.*)$", line)
        if found and "home" not in line:
            indent, result, x, on, a, b = found.groups()
            narrow = [re.sub(r"(?<=[x<])f32", "bf16", kind) for kind in (a, b)]
            yield {i: f"{indent}%narrow = pc.cast {x} : ({a}) -> {narrow[0]}\n{indent}%sum = pc.all_reduce sum %narrow {on} : ({narrow[0]}) -> {narrow[1]}\n"
                      f"{indent}{result} = pc.cast %sum : ({narrow[1]}) -> {b}"}


@kind(PRECISION)
def a_value_rounded(text, draw):
    for i, line in enumerate(text.lines):
        found = re.match(r"(\s*)(%\w+) = (pc\.(?:add|einsum|scale) .* : \(.*\) -> )(tensor<[^()]*\bf32\b[^()]*>|tensor<[\dx]*xf32>)$", line)
        if found and "home" not in line:
            narrow = re.sub(r"(?<=[x<])f32", "bf16", found[4])
            yield {i: f"{found[1]}%narrow = {found[3]}{narrow}\n{found[1]}{found[2]} = pc.cast %narrow : ({narrow}) -> {found[4]}"}


def also(name, family, lines):
    """The kinds of message that name an edit of this kind correctly. For instance, an edit of an operand of the norm
    may be reported as one of the norm, and an edit of a value that an optimizer reads as one of updates."""
    more = {"an op before another": [DATA, MESSAGES], "layout of a leaf": [DATA], "whole shape of a leaf": [MOVES], "a move is made twice": [MESSAGES]}
    of = [(UPDATES, r"pc\.(adamw|sgd|update|output gradient) "), (NORM, r"pc\.clip_coefficient ")]
    return [family] + more.get(name, []) + [other for other, pattern in of for line in lines if re.search(pattern, line)] + [NORM] * (family in (SCALES, WRONG, PRECISION)) + [WRONG] * (family == NORM)


def edited(change):
    """The numbers of the lines that the edit makes or changes."""
    lines, more = set(), 0
    for i in sorted(change):
        new = change[i].count("\n")
        lines |= set(range(i + 1 + more, i + 2 + more + new))
        more += new
    return lines


def tool(*command, **more):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)


def programs(plan, folder, last=PHASES[-1]):
    """Writes the step program of a plan, and that of each phase up to the last, to files."""
    model, mesh, *flags = plan.split()
    options = {"batch": "4", "layers": "2"} | {key[2:]: value for key, _, value in (flag.partition("=") for flag in flags) if key in ("--batch", "--layers")}
    flags = [flag for flag in flags if not flag.startswith(("--batch", "--layers"))]
    source = GOLDEN / model
    if options["layers"] != "2":
        (folder / "config").mkdir()
        config = (source / "config.json").read_text()
        (folder / "config" / "config.json").write_text(re.sub(r'("n_layer"|"num_hidden_layers"): \d+', rf'\1: {options["layers"]}', config))
        source = folder / "config"
    more = GOLDEN / model / "import-flags"
    if model == "recurrences":
        (folder / "model.mlir").write_text(recurrences.Model().text())
    done = subprocess.CompletedProcess([], 0) if model == "recurrences" else tool("pc-import", source, "-o", folder / "model.mlir", "--batch", options["batch"], "--seq", 16, *(more.read_text().split() if more.exists() else []))
    found = {}
    for phase in ["step"] + PHASES:
        if phase == "staged" and "pp=" not in mesh:
            continue
        out = folder / f"{phase}.mlir"
        done = done if done.returncode else tool("pc-compile", folder / "model.mlir", f"--mesh={mesh}", *flags, f"--to={phase}", "-o", out)
        if done.returncode:
            sys.exit(f"{plan}: {done.stderr}")
        # Names of the model are left out, so that messages name lines of the file.
        out.write_text("\n".join(Text(out.read_text()).lines) + "\n")
        found[phase] = out
        if phase == last:
            break
    return found


def accepted_is_equal(path, step, phase, family):
    """Judges an edited program that the proof accepts: refused by another verifier, or equal to the step in the
    interpreter. Returns "" if neither holds."""
    passes = [f"builtin.module(pc-{name})" if phase in ("placed", "staged") or "pc.stage_axis" not in path.read_text() else f"builtin.module(builtin.module(pc-{name}))"
              for name in VERIFIERS[phase]]
    if "pc.stage_axis" in path.read_text() and phase != "staged":
        passes.append("builtin.module(pc-verify-staged)")
    for text in passes:
        if tool("pc-opt", f"--pass-pipeline={text}", path, "-o", os.devnull).returncode:
            return "refused by another verifier"
    if family == PRECISION:
        return ""
    try:
        done = tool("pc-equal", "--tolerance=1e-7", step, path, timeout=600)
    except subprocess.TimeoutExpired:
        return "not judged"
    return "equal" if done.returncode == 0 else ""


def judged(plan, phase, count, files, folder, draw, kinds):
    """Draws `count` edits of the program of a phase; a row of what became of each."""
    step, path = files["step"], files[phase]
    before = files[list(files)[list(files).index(phase) - 1]]
    text, mutants = Text(path.read_text()), []
    sites = [(family, name, list(function(text, draw))) for family, name, function in KINDS]
    sites = [row for row in sites if row[2]]
    # Kinds that have been drawn least come first.
    while len(mutants) < count and sites:
        family, name, edits = min(sites, key=lambda row: (kinds[row[1]], draw.random()))
        kinds[name] += 1
        change = edits.pop(draw.randrange(len(edits)))
        sites = [row for row in sites if row[2]]
        out = folder / f"{phase}-{len(mutants)}.mlir"
        out.write_text("\n".join(change.get(i, line) for i, line in enumerate(text.lines)) + "\n")
        mutants.append((family, name, change, edited(change) | text.makers(change).union(*map(text.opening, change)), out))
    answers = tool("pc-proof-each", step, before, input="".join(f"{row[-1]}\n" for row in mutants)).stdout.splitlines()
    if len(answers) != len(mutants):
        sys.exit(f"{plan}, {phase}: the proof ended at {mutants[len(answers)][1:3]}")
    rows = []
    for (family, name, change, lines, out), answer in zip(mutants, answers):
        row = {"plan": plan, "phase": phase, "class": family, "kind": name, "lines": sorted(lines)[:6], "answer": answer[:900], "verdict": answer.split()[0]}
        if row["verdict"] == "refused":
            first, other = (min(abs(int(word) - line) for line in lines) for word in answer.split()[1:3])
            row["distance"], row["either"] = first, min(first, other)
            row["isClass"] = any(answer.endswith(f"({one})") for one in also(name, family, [edit for edit in change.values() if edit]))
        if row["verdict"] == "proved":
            row["verdict"] = accepted_is_equal(out, step, phase, family) or "missed"
        if row["verdict"] == "missed" and os.environ.get("KEEP"):
            (pathlib.Path(os.environ["KEEP"]) / f"{len(os.listdir(os.environ['KEEP']))}.mlir").write_text(out.read_text())
        rows.append(row)
        out.unlink()
    return rows


def report(rows, wrong):
    """Prints what became of all edits; how many were missed."""
    counts, total = collections.defaultdict(collections.Counter), collections.Counter(missed=0)
    for row in rows:
        counts[row["class"], row["phase"]][row["verdict"]] += 1
        total[row["verdict"]] += 1
    for (family, phase), row in sorted(counts.items()):
        print(f"{family}, {phase}: " + ", ".join(f"{n} {word}" for word, n in sorted(row.items())))
    made = {row["kind"] for row in rows if row["verdict"] != "malformed"}
    print(f"{len(made)} of {len(KINDS)} kinds of edits, {len({row['plan'] for row in rows})} plans: " + ", ".join(f"{n} {word}" for word, n in sorted(total.items())))
    named = [row for row in rows if row["verdict"] == "refused"]
    share = {"edited": lambda row: row["distance"] == 0, "edited, or that of the other op of two that do not fit": lambda row: row["either"] == 0, "at most 3 lines from it": lambda row: row["distance"] <= 3, "of that class": lambda row: row["isClass"]}
    print(f"of {len(named)} refused ones the line that is named is " +
          ", ".join(f"{key}: {sum(map(good, named)) * 100 / max(1, len(named)):.1f} %" for key, good in share.items()))
    for row in named if wrong else []:
        if row["either"] or not row["isClass"]:
            print(f"{'LINE' if row['either'] else 'CLASS'} {row['plan']}, {row['phase']}, {row['kind']}, lines {row['lines']}: {row['answer']}")
    for row in rows:
        if row["verdict"] == "missed":
            print(f"MISSED {row['plan']}, {row['phase']}, {row['kind']}, line {row['lines'][0]}")
    return total["missed"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", type=int, default=len(PLANS))
    parser.add_argument("--log", type=pathlib.Path, help="file with one line per edit; edits that are in it are not run again")
    parser.add_argument("--part", default="0/1", help="K/N: run only programs K, K + N, ...")
    parser.add_argument("--wrong", action="store_true", help="show edits that are reported at a different line or with a different class")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    plans = PLANS[:1] + draw.sample(PLANS[1:], options.plans - 1) if options.plans < len(PLANS) else PLANS
    part, parts = map(int, options.part.split("/"))
    blocks = [(plan, phase) for plan in plans for phase in PHASES if phase != "staged" or "pp=" in plan][part::parts]
    rows = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log and options.log.exists() else []
    kinds, known = collections.Counter(row["kind"] for row in rows), {(row["plan"], row["phase"]) for row in rows}
    for position, (plan, phase) in enumerate(blocks):
        if (plan, phase) in known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            budget = options.count * (position + 1) // (len(blocks) * parts) - len(rows)
            new = judged(plan, phase, budget, programs(plan, folder, phase), folder, random.Random(f"{options.seed} {plan} {phase}"), kinds)
        rows += new
        if options.log:
            with options.log.open("a") as log:
                log.writelines(json.dumps(row) + "\n" for row in new)
    sys.exit(bool(report(rows, options.wrong)))


if __name__ == "__main__":
    main()
