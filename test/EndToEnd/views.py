#!/usr/bin/env python3
"""usage: test/EndToEnd/views.py PLAN

Trains Inputs/views.mlir, a model of views and rows by id, 5 steps under a plan: losses, first gradients and parameters are those of one rank."""
import sys

from cases import HERE, Case, mesh_flags, ranks_of

STEPS = ["--steps", 5, "--lr", 0.001, "--seed", 3, "--data", "text:tokens"]


class Views(Case):
    def train(self, plan, out):
        mesh, *flags = plan.split()
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "-o", f"{out}-train")
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{out}-train", "--", *STEPS, "--save", out, "--metrics", f"{out}.jsonl", "--dump-grads", f"{out}.grads")

    def body(self):
        (self.work / "model.mlir").write_text((HERE / "Inputs/views.mlir").read_text())
        (self.work / "tokens").write_bytes(bytes(i * i % 251 for i in range(2000)))
        self.train("1", "one")
        self.train(" ".join(sys.argv[1:]), "other")
        self.compare("losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-5)
        self.compare("gradients", "tensors", "one.grads", "other.grads", "--tolerance", 1e-5)
        self.compare("parameters", "tensors", "one/model.safetensors", "other/model.safetensors", "--tolerance", 1e-4)


case = Views("views/" + " ".join(sys.argv[1:]))
case.run(case.body)
