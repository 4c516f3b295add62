#!/usr/bin/env python3
"""usage: test/EndToEnd/combinations.py SEED [COUNT]     PC_LONG=1: four hundred combinations of the seed, else forty

Draws models (dense ones and mixtures of experts, large enough for blocks of fp8), targets, meshes and flags without regard to which fit together. pc-compile proves the
planned program of each combination, or says in one message why it refuses it: never a failed proof (5), an internal error or a signal."""
import json
import random
import sys
from collections import Counter

from cases import GOLDEN, LONG, Case, mesh_flags

SIZES = {"gpt2": dict(n_embd=256, n_inner=512, n_head=4, n_positions=512), "llama": {}, "qwen3": dict(head_dim=64), "gemma2": dict(head_dim=64), "mixtral": dict(intermediate_size=256),
         "qwen3_moe": dict(head_dim=64, moe_intermediate_size=256)}
WIDE = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
MESHES = ["1", "dp=2", "tp=2", "cp=2", "pp=2", "dp=2,tp=2", "pp=2,dp=2", "pp=2,tp=2", "pp=2,cp=2", "dp=2,cp=2", "cp=2,tp=2", "ep=2", "dp=2,ep=2", "ep=2,tp=2", "pp=2,ep=2",
          "outer=2", "outer=2,tp=2", "row=2,col=2", "rep=2,dp=2", "pp=2,dp=2,tp=2", "tp=4"]
DISK = ["states", "parameters", "activations", "masters", "states,activations"]
# (chance, axis that it needs, alternatives)
FLAGS = [(.5, "", ["--precision=bf16", "--precision=fp8", "--precision=fp8 --fp8-scaling=current", "--precision=fp8 --fp8-scaling=delayed", "--precision=fp8 --fp8-gradients=e5m2",
                   "--precision=bf16 --residual-precision=f32"]),
         (.3, "", ["--recompute=full", "--recompute=selective", "--recompute=auto --memory-limit=40M"]), (.6, "dp=", ["--zero=1", "--zero=2", "--zero=3", "--zero=3 --zero-keep=*wte*"]),
         (.2, "dp=", ["--window=dp --zero=3"]), (.6, "tp=", ["--sequence-parallel", "--window=tp", "--sequence-parallel --window=tp"]), (.5, "cp=", ["--context-parallel=ring"]),
         (.5, "ep=", ["--expert-exchange=rows", "--expert-exchange=gather"]), (1, "pp=", ["--microbatches=2", "--microbatches=4"]), (.2, "", ["--microbatches=2"]),
         (.7, "pp=", [f"--pipeline={name}" for name in ("gpipe", "naive", "1f1b-eager", "interleaved", "zb-h1", "zb-h2", "zb-v", "auto")]), (.2, "pp=", ["--inline-tasks=0"]),
         (1, "outer=", ["--local-sgd=outer:2", "--local-sgd=outer:4 --outer-deltas=int8"]), (1, "row=", ["--tensor-parallel=2d", "--tensor-parallel=2d --window=row,col"]),
         (1, "rep=", ["--zero=3:dp --data-parallel=ddp:rep", "--zero=3:dp --zero-outer=rep"]), (.3, "", [f"--optimizer={name}" for name in ("muon", "lion", "adafactor", "amsgrad", "sgd")]),
         (.1, "", ["--states=8bit"]), (.1, "", ["--weight-precision=int8"]), (.1, "", [f"--gradient-precision={name}" for name in ("bf16", "int8", "int4")]),
         (.2, "", ["--loss-chunks=2", "--loss-chunks=4"]), (.1, "", ["--tile=*mlp*:2"]), (.1, "", ["--ema=0.9"]), (.1, "", ["--freeze=*layers.0.*", "--freeze=*wte*"]),
         (.1, "", ["--group=*norm*:decay=0,lr=0.5x", "--decay=matrices"]), (.06, "", ["--lora=rank=4,alpha=8,targets=q_proj|v_proj", "--lora=rank=4,alpha=8,targets=c_attn"]),
         (.2, "", ["--pack-products"]), (.2, "", ["--bucket-bytes=30000"]),
         (.1, "", ["--prefetch=2"]), (.1, "", ["--pad-vocabulary=64"]), (.06, "", ["--mode=eval"])]


class Combinations(Case):
    def imported(self, model, layers, sequence):
        """The program of a model, imported once."""
        path = self.work / f"{model}-{layers}-{sequence}.mlir"
        if not path.exists():
            config = json.loads((GOLDEN / model / "config.json").read_text()) | ({} if model == "gpt2" else WIDE) | SIZES[model]
            config |= {key: layers for key in ("n_layer", "num_hidden_layers") if key in config}
            config.pop("layer_types", None)
            (self.work / "config.json").write_text(json.dumps(config))
            self.model(self.work, 8, sequence, to=path.name)
        return path.name

    def body(self, seed, count):
        draw, ends = random.Random(seed), Counter()
        for number in range(count):
            mesh, cuda = draw.choice(MESHES), draw.random() < 0.5
            model = draw.choice([name for name in SIZES if "ep=" not in mesh or name in ("mixtral", "qwen3_moe")])
            flags = [draw.choice(choices) for chance, axis, choices in FLAGS if axis in mesh and draw.random() < chance]
            if draw.random() < 0.2:
                flags.append(f"--offload={draw.choice(DISK)}" + (":host" if cuda and draw.random() < 0.8 else ""))
            if cuda:
                flags += ["--target=cuda --arch=" + draw.choice(["sm_80", "sm_90a"])] + ["--attention=generated"] * (draw.random() < 0.3)
            done = self.call("pc-compile", self.imported(model, draw.choice([2, 4]), draw.choice([256, 512])), *mesh_flags(mesh), *" ".join(flags).split(), "--to=planned", "-o", "/dev/null")
            ends[done.code] += 1
            if done.code not in (0, 2, 4, 6) or (done.code and ("error: " not in done.err or "internal" in done.err)):
                self.check(f"{number}: {model} {mesh} {' '.join(flags)}", False, done.why())
        self.check(f"{count} combinations", ends[0] > count // 5, ends, f"{ends[0]} proved, {count - ends[0]} refused")


seed, *count = map(int, sys.argv[1:])
case = Combinations(f"combinations {seed}")
case.run(lambda: case.body(seed, count[0] if count else 400 if LONG else 40))
