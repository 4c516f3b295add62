#!/usr/bin/env python3
"""usage: test/EndToEnd/random_generation.py quick|all|SEED...

Random triples of a golden model's config, a plan and sizes of steps, half of them with weights in 8 bits: pc-check-generation compares the
step of a random phase with the model's forward pass. A triple is determined by its seed."""
import json
import random
import sys

from cases import GOLDEN, Case, import_flags, mesh_flags

PLANS = [("1", []), ("tp=2", ["--tensor-parallel"]), ("dp=2", ["--data-parallel"]), ("dp=2,tp=2", ["--data-parallel", "--tensor-parallel"]),
         ("dp=2", ["--zero=3"]), ("tp=2", ["--tensor-parallel", "--sequence-parallel"]), ("dp=2,tp=2", ["--zero=3", "--tensor-parallel"]),
         ("ep=2", ["--expert-parallel"]), ("cp=2", ["--context-parallel"]), ("cp=3,tp=2", ["--context-parallel", "--tensor-parallel"]), ("pp=2", []), ("tp=2,pp=2", ["--tensor-parallel", "--microbatches=2"])]
PHASES = ["step", "placed", "staged", "local", "local", "planned", "planned"]
WINDOWS = ["sliding_window", "window_size"]


class RandomGeneration(Case):
    def triple(self, seed, models):
        draw = random.Random(seed)
        model, (mesh, flags), phase = draw.choice(models), draw.choice(PLANS), draw.choice(PHASES)
        if "--expert-parallel" in flags:
            model = draw.choice(["mixtral", "qwen3_moe"])
        config = json.loads((GOLDEN / model / "config.json").read_text())
        config["vocab_size"] = draw.randint(89, 128)
        for key in WINDOWS:
            if config.get(key):
                config[key] = draw.randint(1, 9)
        (self.work / "model").mkdir(exist_ok=True)
        (self.work / "model/config.json").write_text(json.dumps(config))
        context, slots = draw.randint(4, 20), draw.randint(1, 4)
        if "--context-parallel" in flags:
            parts = int(mesh[3])
            context = max(1, context // parts) * parts
        if "--microbatches=2" in flags:
            slots *= 2
        size = draw.randint(slots, 9)
        chunk = draw.choice([0, draw.randint(1, 9)])
        # BLOOM's bias is built for one sequence length.
        sequence = context if model == "bloom" else draw.randint(context, 20)
        if "--sequence-parallel" in flags:
            size, chunk = max(2, size // 2 * 2), chunk // 2 * 2
            slots = min(slots, size)
        flags = [*flags, f"--weights={draw.choice(['full', 'int8'])}"]
        name = f"seed {seed}: {model}, vocabulary {config['vocab_size']}, {mesh} {' '.join(flags)}, {phase}, slots {slots}, size {size}, chunk {chunk}, context {context}"
        self.needs("pc-import", "model", "-o", "model.mlir", "--batch", draw.randint(1, 4), "--seq", sequence, *import_flags(model))
        made = self.call("pc-compile", "model.mlir", "--mode=generate", "--slots", slots, "--size", size, "--chunk", chunk, "--context", context, f"--to={phase}",
                         "-o", "step.mlir", *mesh_flags(mesh), *flags)
        if made.code:
            self.check(name, False, made.why())
        else:
            self.holds(name, "pc-check-generation", "model.mlir", "step.mlir", "--seed", seed, "--requests", draw.randint(4, 10), words="equal$")

    def body(self):
        models = list(json.loads((GOLDEN / "generations.json").read_text()))
        seeds = {"quick": range(1, 9), "all": range(1, 201)}.get(sys.argv[1]) or map(int, sys.argv[1:])
        for seed in seeds:
            self.triple(seed, models)


if __name__ == "__main__":
    case = RandomGeneration(" ".join(["random_generation.py", *sys.argv[1:2]]))
    case.run(case.body)
