#!/usr/bin/env python3
"""usage: test/EndToEnd/own_models.py MODEL

Compiles a program that pc_torch has exported (test/Torch/Inputs), trains it 5 steps under several plans, and compares the losses and the norm of
the first step's gradients with PyTorch's figures (test/Torch/figures.txt)."""
import json
import sys

from cases import ROOT, Case, mesh_flags, ranks_of

sys.path.append(str(ROOT / "test/Torch"))
import weights

PLANS = ["1", "dp=2", "tp=2", "dp=2 --zero=3", "pp=2 --microbatches=2"]
# These plans cut the model before ops that have the name of a whole layer.
MORE = {"modded": ["pp=2 --microbatches=2 --stages=2,3", "pp=2 --microbatches=2 --stages=4,1"], "mha_geglu": ["pp=2 --microbatches=2 --pipeline=zb-v"]}


class OwnModel(Case):
    def __init__(self, model):
        super().__init__(f"own_models/{model}")
        self.model = model
        rows = (line.split() for line in (ROOT / "test/Torch/figures.txt").read_text().splitlines() if line[0] != "#")
        *self.losses, self.norm = next(list(map(float, row[1:])) for row in rows if row[0] == model)

    def body(self):
        weights.write(self.work, (ROOT / f"test/Torch/Inputs/{self.model}.mlir").read_text())
        for plan in [*PLANS, *MORE.get(self.model, [])]:
            mesh, *flags = plan.split()
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "-o", "train")
            (self.work / "metrics").unlink(missing_ok=True)
            self.needs("pc-run", "-n", ranks_of(mesh), "./train", "--", "--data", "tokens.bin", "--steps", weights.STEPS, "--lr", weights.RATE,
                       "--weight-decay", weights.DECAY, "--metrics", "metrics")
            steps = [json.loads(line) for line in (self.work / "metrics").read_text().splitlines()]
            worst = max(abs(step["loss"] - loss) / loss for step, loss in zip(steps, self.losses))
            self.check(f"{plan}: losses", len(steps) == weights.STEPS and worst < 1e-6, f"differ from PyTorch's by {worst:.1e}", f"{worst:.1e}")
            norm = abs(steps[0]["grad_norm"] - self.norm) / self.norm
            self.check(f"{plan}: norm of the gradients", norm < 1e-5, f"differs from PyTorch's by {norm:.1e}", f"{norm:.1e}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    case = OwnModel(sys.argv[1])
    case.run(case.body)


main()
