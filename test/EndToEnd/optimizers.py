#!/usr/bin/env python3
"""usage: test/EndToEnd/optimizers.py quick|all|OPTIMIZER|MODEL OPTIMIZER PLAN

Optimizers as text, and groups of parameters, compared with golden/optimizers.json, which make_optimizers.py computes with PyTorch: 20 losses, and each tensor after them, of golden models on
many plans. Checkpoints move between plans bit for bit. Owners of matrices make the steps of one rank. A step that is skipped leaves every tensor and state as it was. The proof refuses mutants of each
optimizer. Unknown settings, definitions that read more than their own parameter, and checkpoints of other optimizers are refused."""
import json
import math
import re
import sys

from cases import GOLDEN, LONG, STAND_IN, Case, mesh_flags, ranks_of
from key_biases import KEY_BIASES
from masks import read

GROUPS = ["--group", "*mlp*.weight:lr=0.5x,decay=0.5x", "--group", "dim=1:lr=2x,decay=0,beta1=0.8"]
WANTED = json.loads((GOLDEN / "optimizers.json").read_text())
PLANS = ["1", "dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2", "dp=2,tp=2 --zero=1", "pp=2 --microbatches=2",
         "pp=2,dp=2 --zero=1 --microbatches=2", "pp=2 --microbatches=4 --pipeline=zb-v"]
EXPERTS = PLANS + ["ep=2", "dp=2,ep=2 --zero=3"]
QUICK = [("llama", "muon", "1"), ("llama", "muon", "dp=2 --zero=1"), ("llama", "muon", "tp=2"), ("llama", "lion", "dp=2 --zero=3"), ("gpt2-odd", "muon", "dp=2 --zero=3"),
         ("llama-tied", "muon", "pp=2 --microbatches=2"), ("llama-tied", "lion", "pp=2 --microbatches=2"), ("gpt2", "amsgrad", "dp=2"), ("qwen3_moe", "muon", "ep=2"),
         ("gpt2-odd", "adafactor", "dp=2 --zero=3"), ("llama-tied", "adafactor", "pp=2,dp=2 --zero=1 --microbatches=2"), ("qwen3_moe", "adafactor", "dp=2,ep=2 --zero=3"),
         ("llama", "adafactor", "tp=2"), ("gpt2", "adamw-groups", "dp=2 --zero=3"), ("qwen3_moe", "sgd-groups", "ep=2")]
STEPS = ["--lr", 1e-3, "--weight-decay", 0.1, "--clip", 1]


def flags_of(optimizer):
    return [f"--optimizer={optimizer.removesuffix('-groups')}", *(GROUPS if optimizer.endswith("-groups") else [])]


class Optimizers(Case):
    def compile(self, out, *flags):
        self.needs("pc-compile", "model.mlir", "-o", out, *flags)

    def plan(self, model, optimizer, plan, out="run"):
        mesh, *own = plan.split()
        self.compile(f"{out}-train", *mesh_flags(mesh), *own, *flags_of(optimizer), f"--report={out}.json")
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{out}-train", "--", *STEPS, "--data", GOLDEN / model / "tokens.bin", "--steps", 20, "--save", out,
                   "--metrics", f"{out}.jsonl", "--summary", f"{out}.summary", "--check-replicas", 5, seconds=900)

    def figures(self, name, model, optimizer, out="run"):
        wanted = WANTED[optimizer][model]
        losses = [json.loads(line)["loss"] for line in open(self.work / f"{out}.jsonl") if '"loss"' in line]
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, wanted["losses"], strict=True))
        self.check(f"{name}: losses", worst <= 1e-5, worst, f"{worst:.1e}")
        skipped = {text.split(":")[0] for text in KEY_BIASES.get(model, [])}
        worst = (0, "")
        for tensor, (norm, product) in wanted["tensors"].items():
            if any(text in tensor for text in skipped):
                continue
            values = read(self.work / out / "model.safetensors", tensor)
            found = [math.sqrt(math.fsum(v * v for v in values)), math.fsum(v * math.cos(i) for i, v in enumerate(values))]
            worst = max(worst, (max(abs(found[0] - norm), abs(found[1] - product)) / norm, tensor))
        self.check(f"{name}: tensors", worst[0] <= 1e-4, worst, f"{worst[0]:.1e} in {worst[1]}")
        self.compare(f"{name}: report and summary", "reports", f"{out}.json", f"{out}.summary")

    def run_plan(self, model, optimizer, plan):
        self.model(model, 4, 16)
        self.plan(model, optimizer, plan)
        self.figures(f"{model} {optimizer} {plan}", model, optimizer)

    def checkpoints(self, model, optimizer, *plans):
        """What one plan saves, and another loads and saves again, is the same bit for bit."""
        self.model(model, 4, 16)
        self.plan(model, optimizer, plans[0], "first")
        for plan in plans[1:]:
            mesh, *own = plan.split()
            self.compile("other", *mesh_flags(mesh), *own, *flags_of(optimizer))
            self.needs("pc-run", "-n", ranks_of(mesh), "./other", "--", *STEPS, "--data", GOLDEN / model / "tokens.bin", "--load", "first", "--steps", 20, "--save", "again")
            for file in ("model.safetensors", "training_state.safetensors"):
                self.same(f"{model} {optimizer}: {plan} keeps {file}", self.tensors("first", file), self.tensors("again", file))

    def tensors(self, folder, file):
        """The tensors of a file, without its metadata, which names the plan."""
        content = (self.work / folder / file).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        return b"".join(name.encode() + content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
                        for name, entry in sorted(header.items()) if name != "__metadata__")

    def skipped(self, optimizer):
        """With a rate far too large a step has no finite gradients. It changes no tensor and no state, and the run ends with exit code 10."""
        self.model("llama", 4, 16)
        self.compile("one", *flags_of(optimizer))
        run = ["./one", "--lr", "1e30", "--clip", 1, "--data", GOLDEN / "llama/tokens.bin"]
        done = self.call(*run, "--steps", 8, "--save", "bad")
        found = re.search(r"error: .*?step (\d+)", done.said)
        if self.check(f"{optimizer}: the run ends at a skipped step", done.code == 10 and found, done.why()):
            self.needs(*run, "--steps", found[1], "--save", "good")
            for file in ("model.safetensors", "training_state.safetensors"):
                self.same(f"{optimizer}: a skipped step keeps {file}", self.tensors("good", file), self.tensors("bad", file))

    def mutants(self, optimizer, most):
        """The proof refuses a placed program in which one op of the optimizer differs."""
        self.model("llama", 4, 16)
        flags = ["--mesh", "dp=2", "--zero=1", *flags_of(optimizer)]
        self.compile("step.mlir", "--to=step", *flags)
        self.compile("placed.mlir", "--to=placed", *flags)
        proof = ["-o", "no", "--reference=step.mlir", "--verify=full", "--to=planned"]
        self.needs("pc-compile", "placed.mlir", *proof)
        lines = (self.work / "placed.mlir").read_text().splitlines()
        first = next(i for i, line in enumerate(lines) if "pc.clip_coefficient" in line)
        hyper = next(re.search(r"(%\w+) = pc\.input hyper dims", line)[1] for line in lines if "pc.input hyper dims" in line)
        changes = [(r"(pc\.(?:adamw|sgd) .*, )%\w+( : )", rf"\1{hyper}\2"), (r"(lr_factor = )\S+", r"\g<1>3.0"),  # another group's settings
                   (r"(pc\.scale .* by )(\S+)", lambda m: f"{m[1]}{float(m[2]) * 1.001:.17e}"),  # a coefficient
                   (r"(pc\.columns .* from )(\d)", lambda m: m[1] + str((int(m[2]) + 1) % 7)),  # another hyper-parameter
                   (r"pc\.sub (%[\w#]+), (%[\w#]+)", r"pc.sub \2, \1"), (r"pc\.add (.*)", r"pc.sub \1"),
                   (r"(pc\.select less %[\w#]+, %[\w#]+, )(%[\w#]+), (%[\w#]+)", r"\1\3, \2"),  # the sign, the maximum
                   (r"(pc\.select equal .*, )%[\w#]+, (%[\w#]+)", r"\1\2, \2"),  # no update
                   (r"(pc\.select equal .*, )(%[\w#]+), %[\w#]+", r"\1\2, \2"),  # a skipped step changes the state
                   (r"(pc\.unstack .* at )(\d)", lambda m: m[1] + str(1 - int(m[2]))), (r"pc\.stack (%[\w#]+), (%[\w#]+)", r"pc.stack \1, \1"),
                   (r"pc\.sqrt", "pc.recip"), (r"pc\.log", "pc.sqrt"), (r"(pc\.einsum \".* -> )rows\"", r"\1columns\""), (r"(pc\.clamp .* from )(\S+)", lambda m: f"{m[1]}{float(m[2]) * 2:.17e}")]
        mutants = []
        for pattern, change in changes:
            found = [(i, text) for i in range(first, len(lines)) if (text := re.sub(pattern, change, lines[i], count=1)) != lines[i] and "tensor<9xf32>, tensor" not in text]
            mutants += found[:: max(1, len(found) // most)]
        survivors = []
        for at, text in mutants:
            (self.work / "mutant.mlir").write_text("\n".join(lines[:at] + [text] + lines[at + 1 :]))
            done = self.call("pc-compile", "mutant.mlir", *proof)
            if done.code not in (3, 5):
                survivors.append(f"exit {done.code}: {lines[at].strip()} -> {text.strip()}")
        self.check(f"{optimizer}: mutants are refused", mutants and not survivors, "\n".join(survivors), f"{len(mutants)} of {len(mutants)}")

    def refused(self):
        self.model("llama", 4, 16)
        data = ["--data", GOLDEN / "llama/tokens.bin"]
        for what, code, words in [("lamb", 2, "unknown optimizer 'lamb'; expected adamw, sgd, adafactor, adafactor_vectors, amsgrad, lion, muon"), ("muon:speed=1", 2, "'speed' is not a setting; expected momentum"),
                                  ("muon:momentum=x", 2, "needs a number"), ("adamw:beta1=0", 2, "there are none"), ("neighbour.mlir", 3, "sees only its own parameter"),
                                  ("none.mlir", 3, "none.mlir"), ("empty.mlir", 3, "has no pc.optimizer")]:
            (self.work / "neighbour.mlir").write_text('pc.optimizer "mine" dims ["all"] {\n^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>):\n'
                                                      '  %m = pc.state "exp_avg" of "lm_head.weight" dims ["all"] : tensor<?xf32>\n  pc.yield %m : tensor<?xf32>\n}\n')
            (self.work / "empty.mlir").write_text("")
            self.holds(f"--optimizer={what} is refused", "pc-compile", "model.mlir", "-o", "no", f"--optimizer={what}", code=code, words=words)
        # A file defines the optimizer, for all parameters or for a group.
        lion = (GOLDEN.parents[2] / "lib/Autodiff/Optimizers/lion.mlir").read_text()
        (self.work / "mine.mlir").write_text(lion.replace('"lion"', '"mine"'))
        self.plan("llama", "mine.mlir", "1", "mine")
        self.figures("Lion from a file", "llama", "lion", "mine")
        info = self.needs("./mine-train", "--info").said
        self.check("--info names it", "optimizer     mine@" in info, info)
        self.compile("group", "--group", "*norm.weight:optimizer=lion,decay=0")
        info = self.needs("./group", "--info").said
        self.check("--info shows the optimizer of a group", "optimizer     adamw+lion" in info and "*norm.weight by lion: decay 0 (5 tensors" in info, info)
        again = self.call("./group", *STEPS, *data, "--load", "mine", "--steps", 21)
        self.check("a checkpoint of another optimizer is refused", again.code == 2 and "mine@" in again.said, again.why())

    def owners(self):
        """Large matrices of a wider model have owners, on axes of all kinds and in stages of unequal lengths, and its steps are those of one rank."""
        folder = self.work / "wide"
        folder.mkdir()
        sizes = {"hidden_size": 160, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
        (folder / "config.json").write_text(json.dumps(json.loads((GOLDEN / "llama/config.json").read_text()) | sizes))
        self.model(folder, 4, 16)
        for plan, *flags in [("1",), ("dp=2",), ("dp=2", "--zero=3"), ("tp=2",), ("cp=2", "--context-parallel=ring"), ("dp=2,tp=2", "--zero=1"),
                             ("pp=2,dp=2", "--stages=1,2", "--microbatches=2"), ("pp=2,tp=2", "--pipeline=zb-v", "--microbatches=2")]:
            name, out = f"wide muon {' '.join([plan, *flags])}", "alone" if plan == "1" else "wide-other"
            self.compile(f"{out}-train", *mesh_flags(plan), *flags, "--optimizer=muon", f"--report={out}.json")
            self.needs("pc-run", "-n", ranks_of(plan), f"./{out}-train", "--", *STEPS, "--data", GOLDEN / "llama/tokens.bin", "--steps", 4, "--save", out, "--metrics", f"{out}.jsonl",
                       "--summary", f"{out}.summary", "--check-replicas", 2)
            self.compare(f"{name}: report and summary", "reports", f"{out}.json", f"{out}.summary")
            if plan == "1":
                continue
            chosen = [row["chosen"] for row in json.loads((self.work / f"{out}.json").read_text())["update_forms"]]
            self.check(f"{name}: owners", "owners" in chosen, chosen, f"{chosen.count('owners')} of {len(chosen)}")
            self.compare(f"{name}: losses", "losses", "alone.jsonl", "wide-other.jsonl", "--tolerance", 1e-5)
            self.compare(f"{name}: tensors", "tensors", "alone/model.safetensors", "wide-other/model.safetensors", "--tolerance", 1e-3)

    def exact(self):
        """In double precision, 20 steps of a plan with Lion are those of the step program, so what differs in f32 is rounding (docs/rationale/optimizers.md)."""
        self.model("gpt_neox", 4, 16)
        self.compile("step.mlir", "--to=step", "--optimizer=lion")
        self.compile("planned.mlir", "--to=planned", "--optimizer=lion", "--mesh", "dp=2,tp=2", "--zero=3")
        self.holds("lion in double precision: dp=2,tp=2 --zero=3", "pc-equal", "step.mlir", "planned.mlir", "--steps=20", "--tolerance=1e-12")

    def cuda(self):
        self.environment |= STAND_IN
        for model, optimizer, plan in [("llama", "muon", "1"), ("llama", "lion", "dp=2 --zero=3"), ("llama", "adafactor", "tp=2")]:
            self.run_plan(model, optimizer, f"{plan} --target=cuda --arch=sm_90a --stand-in")

    def body(self):
        if len(sys.argv) == 2 and sys.argv[1] in WANTED:
            return self.mutants(sys.argv[1], 12)
        if len(sys.argv) > 2:
            return self.run_plan(*sys.argv[1:4])
        if sys.argv[1] == "all":
            for optimizer, models in WANTED.items():
                for model in models:
                    for plan in EXPERTS if model == "qwen3_moe" else PLANS:
                        if not ("pp=" in plan and model == "gpt2-odd"):  # it has one layer
                            self.run_plan(model, optimizer, plan)
        else:
            for model, optimizer, plan in QUICK:
                self.run_plan(model, optimizer, plan)
        for optimizer in WANTED if sys.argv[1] == "all" else ["muon", "adafactor"]:
            self.checkpoints("llama", optimizer, "dp=2 --zero=1", "1", "tp=2", "dp=2 --zero=3", *(["pp=2 --microbatches=2"] if LONG else []))
        # States are boxes of one tensor (q, k and v), have no padding (an odd vocabulary), and are of experts.
        for model, *plans in [("gpt2-odd", "tp=2", "dp=2 --zero=3"), ("qwen3_moe", "ep=2", "1")]:
            self.checkpoints(model, "adafactor", *plans)
        for optimizer in WANTED:
            if sys.argv[1] == "all" or not optimizer.endswith("-groups"):
                self.skipped(optimizer)
            self.mutants(optimizer, 12 if sys.argv[1] == "all" else 1)
        self.refused()
        self.owners()
        self.exact()
        self.cuda()


if __name__ == "__main__":
    case = Optimizers("optimizers " + " ".join(sys.argv[1:]))
    case.run(case.body)
