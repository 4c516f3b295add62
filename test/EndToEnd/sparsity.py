#!/usr/bin/env python3
"""usage: test/EndToEnd/sparsity.py quick|all|MODEL SPARSITY PLAN

Weights that are pruned while they are trained (--group GLOB:sparsity=...). Masks of the first step are those of the magnitudes that a run without pruning has. After
100 steps, and after steps of the schedule, rows or groups have as many zeros as was asked for, zeros are where masks are zero, and masks, losses and weights of each plan
are those of one rank. Checkpoints move between plans bit for bit, and a run that continues has the bits of one that did not stop. A skipped step keeps the masks. In
double precision a plan computes what the step program does, and the proof refuses mutants. What cannot be pruned is refused."""
import json
import re
import sys

from cases import GOLDEN, STAND_IN, Case, mesh_flags, ranks_of
from masks import read

KINDS = {"2:4": "sparsity=2:4,every=10,until=30", "0.75": "sparsity=0.75,every=8,until=32"}
GLOBS = {"gpt2": "*.c_*.weight", "llama": "*_proj.weight", "llama-tied": "*_proj.weight", "qwen3_moe": "*_proj.weight"}
PLANS = ["dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2 --zero=3", "pp=2 --microbatches=2",
         "pp=2,dp=2 --zero=1 --microbatches=2", "1 --pack-products"]
QUICK = [("llama-tied", "0.75", "pp=2,dp=2 --zero=1 --microbatches=2")]
FILES = ["model.safetensors", "training_state.safetensors"]


class Sparsity(Case):
    def tensors(self, path):
        content = (self.work / path).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        return {name: (entry["shape"], content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]])
                for name, entry in json.loads(content[8:end]).items() if name != "__metadata__"}

    def compile(self, out, plan, settings, *flags):
        mesh, *own = plan.split()
        group = ["--group", f"{GLOBS[self.name_of_model]}:{settings}"] if settings else []
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *group, *flags, "-o", out)
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", "--lr", 1e-3, "--weight-decay", 0.1, "--clip", 1, "--data", GOLDEN / self.name_of_model / "tokens.bin"]

    def begin(self, model):
        self.name_of_model = model
        self.model(model, 4, 16)

    def masks(self, folder):
        return {name.partition(".")[2]: value for name, value in self.tensors(f"{folder}/{FILES[1]}").items() if name.startswith("mask.")}

    def rows(self, folder, name, shape):
        """The masks of a tensor, by rows of the checkpoint's tensor."""
        mask = read(self.work / folder / FILES[1], f"mask.{name}")
        return [mask[i : i + shape[-1]] for i in range(0, len(mask), shape[-1])]

    def zeros(self, title, folder, kind, share):
        """Each row, or group of 4, has the wanted number of ones, and weights are zero where the mask is. GPT-2 has q, k and v in one row, of which each has its own."""
        wrong = []
        masks = self.masks(folder)
        for name, (shape, _) in masks.items():
            weights = read(self.work / folder / FILES[0], name)
            parts = 3 if "c_attn" in name else 1
            for i, row in enumerate(self.rows(folder, name, shape)):
                size = 4 if kind == "2:4" else len(row) // parts
                wanted = 2 if kind == "2:4" else round(size * (1 - share))
                wrong += [f"{name} row {i}: {sum(row[at : at + size])} of {size}, not {wanted}" for at in range(0, len(row), size) if sum(row[at : at + size]) != wanted]
                wrong += [f"{name} row {i}: a weight" for m, w in zip(row, weights[i * len(row) :]) if m not in (0, 1) or (m == 0) != (w == 0)]
        self.check(title, masks and not wrong, "\n".join(wrong[:5]), f"{len(masks)} tensors")

    def first(self, kind):
        """One step: what remains are the largest magnitudes of the weights that a step without pruning makes."""
        settings = KINDS[kind].partition(",")[0]  # at once
        self.needs(*self.compile("plain", "1", ""), "--steps", 1, "--save", "plain-after")
        self.needs(*self.compile("once", "1", settings), "--steps", 1, "--save", "once-after")
        wrong = []
        for name, (shape, _) in self.masks("once-after").items():
            weights, found = (read(self.work / folder / FILES[0], name) for folder in ("plain-after", "once-after"))
            size = 4 if kind == "2:4" else shape[-1]
            for at in range(0, len(weights), size):
                order = sorted(range(size), key=lambda i: -abs(weights[at + i]))
                kept = set(order[: 2 if kind == "2:4" else round(size * (1 - float(kind)))])
                if any(found[at + i] != (weights[at + i] if i in kept else 0) for i in range(size)):
                    wrong.append(f"{name} at {at}")
        self.check(f"{self.name_of_model} {kind}: the largest magnitudes remain", not wrong, wrong[:5])

    def schedule(self):
        """Shares at steps of the schedule: the cubic curve of Zhu and Gupta 2017, in 5 choices at steps 0, 8, .. 32."""
        run = self.compile("one", "1", KINDS["0.75"])
        for steps in (1, 8, 9, 25, 40) if sys.argv[1] == "all" else (9, 40):
            self.needs(*run, "--steps", steps, "--save", f"after{steps}")
            rest = 1 - min((steps - 1) // 8, 4) / 4
            self.zeros(f"{self.name_of_model} 0.75: zeros after {steps} steps", f"after{steps}", "0.75", 0.75 * (1 - rest**3))

    def plan(self, model, kind, plan, *flags):
        self.run_once(model, kind, "1", "one")
        self.run_once(model, kind, plan, "other", *flags)
        self.same_as_one(f"{model} {kind} {plan} {' '.join(flags)}".strip())

    def run_once(self, model, kind, plan, out, *flags):
        if out == "one":
            self.begin(model)
        self.needs(*self.compile(out, plan, KINDS[kind], *flags, f"--report={out}.json"), "--steps", 100, "--save", f"{out}-after", "--metrics", f"{out}.jsonl", "--summary",
                   f"{out}.summary", "--check-replicas", 20, seconds=900)
        self.zeros(f"{model} {kind} {plan}: zeros after 100 steps", f"{out}-after", kind, float(kind) if kind != "2:4" else 0)

    def same_as_one(self, name):
        self.check(f"{name}: masks", self.masks("one-after") == self.masks("other-after"))
        self.compare(f"{name}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-4)
        self.compare(f"{name}: report and summary", "reports", "other.json", "other.summary")

    def moves(self):
        self.begin("llama")
        settings = KINDS["0.75"]
        run = self.compile("first", "dp=2 --zero=1", settings)
        self.needs(*run, "--steps", 20, "--save", "whole")
        self.needs(*run, "--steps", 13, "--save", "part")
        self.needs(*run, "--load", "part", "--steps", 20, "--save", "resumed")
        for file in FILES:
            self.check(f"a run that continues: {file}", self.tensors(f"whole/{file}") == self.tensors(f"resumed/{file}"))
        for plan in ["1", "tp=2", "dp=2 --zero=3", "pp=2 --microbatches=2"] if sys.argv[1] == "all" else ["tp=2"]:
            other = self.compile("other", plan, settings)
            self.needs(*other, "--load", "whole", "--steps", 20, "--save", "again")
            for file in FILES:
                self.check(f"{plan} keeps {file}", self.tensors(f"whole/{file}") == self.tensors(f"again/{file}"))
        info = self.needs("./first", "--info").said
        self.check("--info names the sparsity", "*_proj.weight with sparsity 0.75 every 8 until 32 (14 tensors" in info, info)
        other = self.compile("other", "1", KINDS["2:4"])
        self.holds("another sparsity is refused", *other, "--load", "whole", "--steps", 21, code=2, words="groups: .*sparsity 0.75 .*there.*sparsity 2:4")
        other = self.compile("other", "1", "")
        self.holds("masks are not dropped silently", *other, "--load", "whole", "--steps", 21, code=2, words="groups: .*sparsity 0.75")

    def skipped(self):
        """A step without finite gradients changes no weight and no mask, also if it is the first one."""
        self.begin("llama")
        run = self.compile("one", "1", KINDS["2:4"])
        wild = [word if word != 1e-3 else "1e30" for word in run]
        done = self.call(*wild, "--steps", 8, "--save", "bad")
        found = re.search(r"error: .*?step (\d+)", done.said)
        if self.check("the run ends at a skipped step", done.code == 10 and found, done.why()):
            self.needs(*wild, "--steps", found[1], "--save", "good")
            for file in FILES:
                self.check(f"a skipped step keeps {file}", self.tensors(f"good/{file}") == self.tensors(f"bad/{file}"))

    def proved(self):
        self.begin("llama")
        group = ["--group", "*_proj.weight:sparsity=2:4,every=2,until=6", "--group", "lm_head.weight:sparsity=0.5,every=2,until=6"]
        for plan in ["--mesh dp=2,tp=2 --zero=3", "--mesh pp=2,dp=2 --zero=1 --microbatches=2"][: 2 if sys.argv[1] == "all" else 1]:
            same = [word for word in plan.split() if "microbatches" in word]
            self.needs("pc-compile", "model.mlir", *group, *same, "--to=step", "-o", "step.mlir")
            self.needs("pc-compile", "model.mlir", *group, *plan.split(), "--to=planned", "-o", "planned.mlir")
            self.holds(f"{plan} in double precision", "pc-equal", "step.mlir", "planned.mlir", "--steps=9", "--tolerance=1e-9")
        plan = ["--mesh", "dp=2", "--zero=1", *group]
        for phase in ("step", "placed"):
            self.needs("pc-compile", "model.mlir", *plan, f"--to={phase}", "-o", f"{phase}.mlir")
        text = (self.work / "placed.mlir").read_text()
        masks = re.findall(r'pc\.update "mask" of "[^"]*gate_proj[^"]*" (%\w+)', text)
        for what, pattern, new in [("number of ones", r"(pc\.top_k \S+ k )2", r"\g<1>3"), ("last step", r"pc\.constant 6\.50*e\+00", "pc.constant 7.5e+00"),
                                   ("number that remains", r"pc\.constant 1\.60*e\+01", "pc.constant 1.7e+01"), ("mask", rf'(pc\.update "mask" .*){masks[1]}\b', rf"\g<1>{masks[0]}"),
                                   ("masked weight", r"pc\.select less (%\w+), (%\w+), (%\w+), (%\w+)( : \(tensor<48x32)", r"pc.select less \1, \2, \4, \4\5")]:
            changed = re.sub(pattern, new, text, count=1)
            self.check(f"{what}: the program has it", changed != text)
            (self.work / "mutant.mlir").write_text(changed)
            self.holds(f"another {what} is refused", "pc-compile", "mutant.mlir", "-o", "no", "--reference=step.mlir", "--verify=full", "--to=planned", code=5)

    def refused(self):
        self.begin("llama")
        for settings, code, words in [("*_proj.weight:sparsity=1", 2, "needs a share of zeros above 0 and below 1"), ("*_proj.weight:sparsity=4:2", 2, "needs a pattern such as 2:4"),
                                      ("*_proj.weight:every=4", 2, "'every' and 'until' need sparsity"), ("*_proj.weight:sparsity=0.5,every=1,until=100", 2, "more than 64 times"),
                                      ("*_proj.weight:sparsity=0.5,every=0.5", 2, "need whole numbers"), ("*norm.weight:sparsity=0.5", 4, "'model.layers.0.input_layernorm.weight', which is not a matrix"),
                                      ("*_proj.weight:sparsity=2:5", 4, "5 does not divide its last dim of"), ("*_proj.weight:sparsity=0.999", 4, "no element of its rows of")]:
            self.holds(f"{settings} is refused", "pc-compile", "model.mlir", "--group", settings, "-o", "no", code=code, words=words)
        self.holds("local SGD is refused", "pc-compile", "model.mlir", "--group", "*_proj.weight:sparsity=2:4", "--mesh", "outer=2", "--local-sgd=outer:4", "-o", "no", code=4, words="leave out sparsity")

    def body(self):
        if len(sys.argv) > 2:
            return self.plan(*sys.argv[1:4])
        if sys.argv[1] == "all":
            for model, glob in GLOBS.items():
                for kind in KINDS:
                    self.run_once(model, kind, "1", "one")
                    for plan in PLANS + ["ep=2"] * (model == "qwen3_moe"):
                        if (model, kind, plan) == ("gpt2", "0.75", "1 --pack-products"):
                            self.holds("packed rows are refused", "pc-compile", "model.mlir", "--group", f"{glob}:sparsity=0.75", "--pack-products", "-o", "no", code=4,
                                       words="'transformer.h.0.attn.c_attn.weight:{q,k,v}', whose rows .*; try --pack-products=false")
                            continue
                        self.run_once(model, kind, plan, "other")
                        self.same_as_one(f"{model} {kind} {plan}")
        else:
            for plan in QUICK:
                self.plan(*plan)
        self.begin("llama")
        for kind in KINDS:
            self.first(kind)
        self.schedule()
        self.moves()
        self.proved()
        self.refused()
        if sys.argv[1] == "all":
            self.skipped()
            self.environment |= STAND_IN
            for kind, plan in [("2:4", "dp=2 --zero=3"), ("0.75", "tp=2")]:
                self.plan("llama", kind, plan, "--target=cuda", "--arch=sm_90a", "--stand-in")


if __name__ == "__main__":
    case = Sparsity("sparsity " + " ".join(sys.argv[1:]))
    case.run(case.body)
