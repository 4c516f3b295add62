#!/usr/bin/env python3
"""usage: test/EndToEnd/groups.py quick|PLAN...

Parameter groups of a GPT-2: a biases' group with a rate, a decay and betas of its own, a head that learns at half the
rate, and weight decay for matrices alone. On one rank the first step moves each tensor as AdamW's formula says for its
group. Every other plan makes the steps of one rank, with the same report. A run continues a checkpoint only with the
same groups."""
import json
import math
import sys

from cases import GOLDEN, STAND_IN, Case, mesh_flags, ranks_of
from key_biases import KEY_BIASES
from masks import read

FLAGS = ["--group", "*.bias:lr=2x,decay=0.5x,beta1=0.8,eps=1e-6", "--group", "*h.1.mlp.*.weight|*h.1.ln_1.weight:lr=0.5x", "--decay=matrices"]
PLANS = ["dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "dp=2 --zero=3 --microbatches=2", "tp=2", "dp=2,tp=2", "pp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=zb-v",
         "1 --pack-products", "tp=2 --pack-products", "cp=2 --context-parallel=ring"]
QUICK = ["dp=2 --zero=3", "pp=2 --microbatches=2", "tp=2 --pack-products"]
RATE, DECAY = 0.01, 0.1
SKIP = [word for entries in KEY_BIASES["gpt2"] for word in ("--skip", entries)]
STEPS = ["--lr", RATE, "--weight-decay", DECAY, "--seed", 3, "--data", GOLDEN / "gpt2/tokens.bin"]


def settings(name, shape):
    """Rate, decay, beta1 and eps of a tensor."""
    name = name.removeprefix("transformer.")
    if name.endswith(".bias"):
        return 2 * RATE, 0.5 * DECAY, 0.8, 1e-6
    rate = 0.5 * RATE if name.startswith("h.1.mlp.") or name == "h.1.ln_1.weight" else RATE
    return rate, DECAY if len(shape) > 1 and name not in ("wte.weight", "wpe.weight") else 0, 0.9, 1e-8


class Groups(Case):
    def run_plan(self, plan, out, *flags, steps=5):
        mesh, *own = plan.split()
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *FLAGS, *flags, "-o", f"{out}-train", f"--report={out}.json")
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{out}-train", "--", *STEPS, "--steps", steps, "--save", out, "--metrics", f"{out}.jsonl", "--dump-grads", f"{out}.grads",
                   "--summary", f"{out}.summary", "--check-replicas", 2)

    def first_step(self):
        """p - rate (m / (sqrt(v) + eps) + decay p), where one step's corrected moments are g and |g|."""
        self.run_plan("1", "first", steps=1)
        header = json.loads((self.work / "first/model.safetensors").read_bytes()[8:].split(b"}}")[0] + b"}}")
        shapes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        worst = 0
        for name, shape in shapes.items():
            before, after, gradient = (read(path, name) for path in (GOLDEN / "gpt2/model.safetensors", self.work / "first/model.safetensors", self.work / "first.grads"))
            rate, decay, _, eps = settings(name, shape)
            for p, q, g in zip(before, after, gradient):
                if abs(g) < 1e-6:  # zero but for rounding
                    continue
                wanted = p - rate * (g / (math.fabs(g) + eps) + decay * p)
                worst = max(worst, abs(q - wanted) / rate)
        self.check("the first step moves each tensor as its group says", worst < 1e-3, worst)
        betas = {name: [x / g for x, g in zip(read(self.work / "first/training_state.safetensors", f"exp_avg.{name}"), read(self.work / "first.grads", name)) if abs(g) > 1e-4]
                 for name in shapes}
        wrong = [name for name, ratios in betas.items() if any(abs(r - (1 - settings(name, [])[2])) > 1e-4 for r in ratios)]
        self.check("the first moment has its group's beta1", not wrong, wrong)

    def body(self):
        self.model("gpt2", 4, 16)
        self.first_step()
        self.run_plan("1", "one")
        info = self.needs("./one-train", "--info").said
        self.check("--info shows the groups", "*.bias: lr x2, decay x0.5, beta1 0.8, eps 1e-06 (" in info and "no decay: decay 0 (" in info, info)
        for plan in QUICK if sys.argv[1:] == ["quick"] else PLANS if sys.argv[1:] == ["all"] else sys.argv[1:]:
            self.run_plan(plan, "other")
            self.compare(f"{plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-5)
            self.compare(f"{plan}: parameters", "tensors", "one/model.safetensors", "other/model.safetensors", "--tolerance", 1e-4, *SKIP)
            self.compare(f"{plan}: report and summary", "reports", "other.json", "other.summary")
        self.needs("pc-compile", "model.mlir", "-o", "plain")
        again = self.call("./plain", *STEPS, "--steps", 6, "--load", "one")
        self.check("other groups are refused", again.code == 2 and "groups: *.bias: lr x2" in again.said and "--change groups" in again.said, again.why())
        self.needs("./plain", *STEPS, "--steps", 6, "--load", "one", "--change", "groups")
        self.needs("pc-compile", "model.mlir", "--freeze", "wte.weight", *FLAGS, "-o", "frozen")
        self.holds("frozen parameters are compared", "./frozen", *STEPS, "--steps", 6, "--load", "one", code=2, words=r"groups: .* there, .*; frozen \(1 tensors, \d+ elements\)")
        self.environment |= STAND_IN
        self.run_plan("dp=2 --zero=3", "other", "--target=cuda", "--arch=sm_90a", "--stand-in")
        self.compare("cuda: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-5)
        self.compare("cuda: parameters", "tensors", "one/model.safetensors", "other/model.safetensors", "--tolerance", 1e-4, *SKIP)


if __name__ == "__main__":
    case = Groups("groups " + " ".join(sys.argv[1:]))
    case.run(case.body)
