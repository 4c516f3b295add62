#!/usr/bin/env python3
"""usage: test/EndToEnd/tiles.py quick|all|PLAN...

Parameters in tiles (--tile). Every plan makes the steps of one rank without tiles, and each continues the checkpoints
of the other. With --zero=3, a rank has two tiles in memory where it had two layers."""
import json
import sys

from cases import GOLDEN, SMALL_LLAMA, STAND_IN, Case, mesh_flags, ranks_of
from key_biases import KEY_BIASES

TILES = {"gpt2": ["--tile=*.mlp.*:4", "--tile=*.attn.*:2"], "llama": ["--tile=*.mlp.*:3"], "qwen3": ["--tile=*.gate_proj.*:2", "--tile=*q_proj.*|*k_norm.*:2"]}
PLANS = ["1", "dp=2 --zero=1", "dp=2 --zero=3", "dp=2 --zero=3 --microbatches=2 --prefetch=0", "tp=2", "dp=2,tp=2 --zero=3 --sequence-parallel", "pp=2 --microbatches=2", "cp=2 --context-parallel=ring",
         "1 --recompute=full", "row=2,col=2 --tensor-parallel=2d", "1 --pack-products"]
SIZED = """pc.optimizer "sized" dims ["all"] scalars ["lr", "size"] {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %lr: tensor<f32>, %size: tensor<f32>):
  %step = pc.einsum ", , all -> all" %lr, %size, %g : (tensor<f32>, tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %w, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new : tensor<?xf32>
}
"""
QUICK = {"gpt2": ["dp=2 --zero=3", "pp=2 --microbatches=2"], "llama": ["tp=2"]}


class Tiles(Case):
    def train(self, program, ranks, out, *flags, steps=3):
        self.needs("pc-run", "-n", ranks, f"./{program}", "--", "--data", GOLDEN / self.of / "tokens.bin", "--steps", steps, "--lr", 0.01, "--clip", 1, "--weight-decay", 0.1, "--seed", 3,
                   "--save", out, "--metrics", f"{out}.jsonl", "--summary", f"{out}.summary", "--check-replicas", 2, *flags)

    def same(self, name, what, one, other, tolerance):
        self.compare(name, what, one, other, "--tolerance", tolerance, *[word for entries in KEY_BIASES.get(self.of, []) for word in ("--skip", entries)])

    def plan(self, plan, target=()):
        mesh, *own = plan.split()
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *TILES[self.of], *target, "--decay=matrices", "-o", "tiled", "--report=tiled.json")
        name = f"{self.of} {plan}{' cuda' if target else ''}"
        self.train("tiled", ranks_of(mesh), "other", "--init", GOLDEN / self.of)
        self.compare(f"{name}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-5)
        self.same(f"{name}: parameters", "tensors", "one/model.safetensors", "other/model.safetensors", 2e-4)
        self.compare(f"{name}: report and summary", "reports", "tiled.json", "other.summary")
        self.train("tiled", ranks_of(mesh), "more", "--load", "one", steps=5)
        self.compare(f"{name}: goes on with a checkpoint without tiles", "losses", "five.jsonl", "more.jsonl", "--tolerance", 1e-5)
        self.train("whole", 1, "back", "--load", "other", steps=5)
        self.compare(f"{name}: without tiles goes on with its checkpoint", "losses", "five.jsonl", "back.jsonl", "--tolerance", 1e-5)

    def memory(self):
        """Parameters that are gathered: those of two layers, 3 x 64 x 4096 numbers each, or two tiles of a sixteenth of them."""
        (self.work / "config.json").write_text(json.dumps(SMALL_LLAMA | {"hidden_size": 64, "intermediate_size": 4096}))
        self.model(self.work, to="wide.mlir")
        bytes_of = {}
        for tile in (1, 16):
            self.needs("pc-compile", "wide.mlir", "--mesh", "dp=4", "--zero=3", "--bucket-bytes=256K", *([f"--tile=*.mlp.*:{tile}"] if tile > 1 else []), "-o", "wide-train", "--report=wide.json")
            bytes_of[tile] = json.loads((self.work / "wide.json").read_text())["per_rank"][0]["memory_at_most"]["communication"]
        gathered = 3 * 64 * 4096 * 4
        self.check("memory of gathered parameters", bytes_of[1] >= 2 * gathered and 2 * bytes_of[16] < gathered, bytes_of, bytes_of)

    def refused(self):
        for flag, words in ((["--tile=*.mlp.*:5"], "cannot have 5 tiles .*ffn: its size of 128 is not a multiple"), (["--tile=*.wte.*:2"], "'pc.embedding' needs all of the dim"),
                            (["--tile=*.mlpx.*:2"], "'\\*.mlpx.\\*' fits no parameter"), (["--tile=*.mlp.*"], "expected GLOB:N"), (["--tile=*.mlp.*:1"], "expected GLOB:N"),
                            (["--tile=*.mlp.*:2", "--tile=*.c_proj.*:4"], "would have 4 tiles")):
            self.holds(" ".join(flag), "pc-compile", "model.mlir", *flag, "-o", "refused", code=2, words=words)
        (self.work / "sized.mlir").write_text(SIZED)
        for optimizer in ("muon", "sized.mlir"):
            self.holds(optimizer, "pc-compile", "model.mlir", "--tile=*.mlp.*:2", f"--optimizer={optimizer}", "-o", "refused", code=4, words="needs whole matrices")
        for flags, state in ((["--ema=0.9"], "ema_begun"), (["--group=*.c_fc.weight:sparsity=2:4"], "mask_age")):
            self.holds(" ".join(flags), "pc-compile", "model.mlir", "--tile=*.mlp.*:2", *flags, "-o", "refused", code=4, words=f"whose state '{state}' belongs to the whole tensor")
        self.holds("generation", "pc-compile", "model.mlir", "--mode=generate", "--tile=*.mlp.*:2", "-o", "refused", code=2, words="--tile is for")

    def body(self):
        names = sys.argv[1:]
        models = QUICK if names == ["quick"] else {model: PLANS if names == ["all"] else names for model in TILES}
        if names == ["all"]:  # a tile has one group of heads
            models["qwen3"] = [plan for plan in PLANS if "2d" not in plan]
        for self.of, plans in models.items():
            self.model(self.of, 4, 16)
            self.needs("pc-compile", "model.mlir", "--decay=matrices", "-o", "whole")
            self.train("whole", 1, "one", "--init", GOLDEN / self.of)
            self.train("whole", 1, "five", "--load", "one", steps=5)
            for plan in plans:
                self.plan(plan)
            if self.of == "gpt2":
                self.refused()
                self.environment |= STAND_IN
                self.plan("dp=2 --zero=3", ["--target=cuda", "--arch=sm_90a", "--stand-in"])
                self.environment = {}
        self.memory()


case = Tiles("tiles " + " ".join(sys.argv[1:]))
case.run(case.body)
