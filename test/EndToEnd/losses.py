#!/usr/bin/env python3
"""usage: test/EndToEnd/losses.py

Label smoothing and z-loss of pc-import: the loss of the first step, on every plan, is what this file computes from the
logits of that step, and gradients agree with finite differences."""
import json
import math
import sys

from cases import GOLDEN, ROOT, STAND_IN, Case, ranks_of

B, T, V, SMOOTHING, Z = 4, 16, 96, 0.1, 1e-2
FLAGS = ["--label-smoothing", SMOOTHING, "--z-loss", Z]
PLANS = ["1", "dp=2 --microbatches=2", "tp=2", "dp=2 --zero=3", "pp=2 --microbatches=2", "tp=2 --target=cuda --arch=sm_90a --stand-in --pad-vocabulary=1"]


class Losses(Case):
    def wanted(self, tokens):
        data = (self.work / "logits").read_bytes()
        logits = memoryview(data)[-4 * B * T * V:].cast("f")
        total = 0
        for row in range(B):
            for at in range(T):
                scores = logits[(row * T + at) * V:][:V]
                sum_exp = math.log(sum(map(math.exp, scores)))
                target = scores[tokens[row * T + at + 1]]
                total += (1 - SMOOTHING) * (sum_exp - target) + SMOOTHING * (sum_exp - sum(scores) / V) + Z * sum_exp**2
        return total / (B * T)

    def body(self):
        tokens = memoryview((GOLDEN / "gpt2/tokens.bin").read_bytes()).cast("H")
        self.model("gpt2", B, T, *FLAGS)
        for plan in PLANS:
            mesh, *flags = plan.split()
            self.needs("pc-compile", "model.mlir", "-o", "train", *([] if mesh == "1" else ["--mesh", mesh]), *flags)
            self.environment = dict(STAND_IN) if "cuda" in plan else {}
            self.needs("pc-run", "-n", ranks_of(mesh), "./train", "--", "--init", GOLDEN / "gpt2", "--data", GOLDEN / "gpt2/tokens.bin", "--steps", 1,
                       "--metrics", "losses.jsonl", "--dump-logits", "logits")
            found = next(json.loads(line)["loss"] for line in open(self.work / "losses.jsonl") if '"loss"' in line)
            wanted = self.wanted(tokens)
            self.check(plan, abs(found - wanted) < 3e-6 * wanted, f"{found}, not {wanted}", f"{found:.6f}")
        self.environment = {}
        done = self.call("pc-compile", "model.mlir", "-o", "train", "--mesh", "tp=2", "--pad-vocabulary=64")
        self.check("a padded vocabulary", done.code == 4 and "padding" in done.err, done.why())
        self.model(ROOT / "examples/tour", 1, 4, *FLAGS)
        self.needs("pc-opt", "model.mlir", "--pc-differentiate", "--pc-check-gradients", "-o", "checked.mlir")
        for flag, text in {"--label-smoothing=1": "below 1", "--label-smoothing=-0.1": "at least 0", "--z-loss=nan": "at least 0", "--z-loss=-1": "at least 0"}.items():
            done = self.call("pc-import", GOLDEN / "gpt2", "-o", "bad.mlir", flag)
            self.check(flag, done.code == 3 and text in done.err, done.why())


if __name__ == "__main__":
    case = Losses(" ".join(["losses.py", *sys.argv[1:]]))
    case.run(case.body)
