#!/usr/bin/env python3
"""usage: test/EndToEnd/pairs.py TACTIC...     PC_LONG=1: in both orders, also on one axis, and every program interpreted (else every fortieth)

Each of these tactics and every other one in one plan file, on axes of their own and on one axis, in any order: pc-compile either says why not, with
exit code 4, or makes a program that computes what its step computes. Never an internal error, never wrong numbers."""
import json
import sys

from cases import LONG, Case

CONFIG = dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=4, vocab_size=32, max_position_embeddings=16, rms_norm_eps=1e-5, rope_theta=10000.0,
              hidden_act="silu", tie_word_embeddings=False)
# What a tactic is called, its axes (%: a letter of its own for each of the two), and its passes.
TACTICS = {
    "ddp": (["d%"], ["pc-data-parallel{axis=d%}"]),
    "naive": (["d%"], ["pc-data-parallel{axis=d% mode=naive}"]),
    "zero1": (["d%"], ["pc-zero{axis=d% stage=1}"]),
    "zero2": (["d%"], ["pc-zero{axis=d% stage=2}"]),
    "zero3": (["d%"], ["pc-zero{axis=d% stage=3}"]),
    "1d": (["d%"], ["pc-tensor-parallel{axis=d%}"]),
    "sp": (["d%"], ["pc-sequence-parallel{axis=d%}"]),
    "1d+sp": (["d%"], ["pc-tensor-parallel{axis=d%}", "pc-sequence-parallel{axis=d%}"]),
    "2d": (["r%", "d%"], ["pc-tensor-parallel{axis=r%,d% form=2d}"]),
    "2.5d": (["e%", "r%", "d%"], ["pc-tensor-parallel{axis=e%,r%,d% form=2.5d}"]),
    "3d": (["i%", "j%", "d%"], ["pc-tensor-parallel{axis=i%,j%,d% form=3d}"]),
    "heads": (["d%"], ["pc-context-parallel{axis=d% form=heads}"]),
    "ring": (["d%"], ["pc-zigzag{ranks=2}", "pc-context-parallel{axis=d% form=ring}"]),
    "zigzag": ([], ["pc-zigzag{ranks=2}"]),
    "1f1b": (["d%"], ["pc-pipeline-parallel{axis=d% schedule=1f1b}"]),
    "zb-h1": (["d%"], ["pc-pipeline-parallel{axis=d% schedule=zb-h1}"]),
    "interleaved": (["d%"], ["pc-pipeline-parallel{axis=d% schedule=interleaved}"]),
    "full": ([], ["pc-recompute{mode=full}"]),
    "selective": ([], ["pc-recompute{mode=selective}"]),
    "bf16": ([], ["pc-mixed-precision{compute=bf16}"]),
}


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
            self.holds(f"{name}, interpreted", "pc-equal", "--exact", "--common", self.step("bf16" if "bf16" in (first, second) else "f32"), "out")

    def body(self):
        (self.work / "config.json").write_text(json.dumps(CONFIG))
        self.model(self.work, 16)
        for number, pair in enumerate(pairs(), 1):
            if pair[0] in sys.argv:
                self.pair(number, *pair)


pairs_of = Pairs("pairs-" + "-".join(sys.argv[1:]))
pairs_of.run(pairs_of.body)
