#!/usr/bin/env python3
"""usage: test/EndToEnd/pairs.py TACTIC...

Puts each of these tactics and every other one into one plan file, on separate axes and on one axis, in any order.
pc-compile must either state the reason with exit code 4, or make a program that computes what its step computes: never
an internal error, never wrong numbers. PC_LONG=1: in both orders, also on one axis, and every program is interpreted
(else every fortieth)."""
import json
import re
import sys

from cases import HERE, LONG, SMALL_LLAMA, Case

# Tactics by name: their axes and their passes. % stands for a letter of the tactic's own.
TACTICS = {name: (axes.split(), passes.split("; ")) for name, axes, passes in
           re.findall(r"(?m)^([\w.+-]+) \| (.*) ?\| (.*)$", (HERE / "Inputs/tactics.txt").read_text())}


def pairs():
    """All pairs that are tried, with whether they share an axis, in one order whatever is asked for."""
    names = list(TACTICS)
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            if LONG or i <= j:
                yield first, second, False
                if (LONG and TACTICS[first][0] and TACTICS[second][0]) or {first, second} == {"1d", "sp"}:
                    yield first, second, True


def plan_of(first, second, shared):
    axes, passes = [], []
    for name, letter in ((first, "a"), (second, "a" if shared else "b")):
        axes += [axis.replace("%", letter) for axis in TACTICS[name][0]]
        passes += [f'"{text.replace("%", letter)}"' for text in TACTICS[name][1]]
    mesh = ", ".join(f"{axis} = 2" for axis in dict.fromkeys(axes))
    return f"pc.plan <{mesh}> [{', '.join(passes)}] microbatches 2\n"


class Pairs(Case):
    def step(self, precision):
        """The step that the two have in common, once per precision."""
        path = self.work / f"{precision}.step"
        if not path.exists():
            self.needs("pc-compile", "model.mlir", "--microbatches=2", f"--precision={precision}", "--to=step", "-o", path)
        return path

    def pair(self, number, first, second, shared):
        name = f"{first} and {second}{' on one axis' if shared else ''}"
        (self.work / "plan").write_text(plan_of(first, second, shared))
        done = self.call("pc-compile", "model.mlir", "--plan=plan", "--to=planned", "-o", "out")
        if done.code == 4:
            self.check(name, done.err.strip() and "internal" not in done.err, done.why(), "refused")
        elif not self.check(name, done.code == 0, done.why()):
            return
        elif LONG or number % 40 == 0:
            self.holds(f"{name}, interpreted", "pc-equal", "--common", self.step("bf16" if "bf16" in (first, second) else "f32"), "out")

    def body(self):
        (self.work / "config.json").write_text(json.dumps(SMALL_LLAMA))
        self.model(self.work, 16)
        for number, pair in enumerate(pairs(), 1):
            if pair[0] in sys.argv:
                self.pair(number, *pair)


pairs_of = Pairs("pairs-" + "-".join(sys.argv[1:]))
pairs_of.run(pairs_of.body)
