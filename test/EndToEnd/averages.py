#!/usr/bin/env python3
"""usage: test/EndToEnd/averages.py quick|all|MODEL OPTIMIZER PLAN

Averages of the parameters over steps (--ema). Runs of 1 to 4 steps save the weights of each step, from which the average is computed here in double precision. The
file ema.safetensors has it, and each weight that is not trained; it moves between plans bit for bit, programs read it by --init, and damage to it is detected. A step
that is skipped keeps it. The proof refuses another decay. Values and programs for which there is no average are refused."""
import json
import re
import sys

from cases import GOLDEN, STAND_IN, Case, mesh_flags, ranks_of
from masks import read

DECAY, COUNT = 0.75, 4
ALL = [(model, optimizer, plan) for model, optimizer in [("llama-tied", "adamw"), ("gpt2-odd", "adafactor"), ("qwen3_moe", "sgd")]
       for plan in ["1", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "dp=2,tp=2", "pp=2 --microbatches=2"] + ["ep=2"] * (model == "qwen3_moe")
       if not ("pp=" in plan and model == "gpt2-odd")]
QUICK = [("llama-tied", "adamw", "pp=2 --microbatches=2"), ("gpt2-odd", "adafactor", "dp=2 --zero=1"), ("qwen3_moe", "sgd", "ep=2"), ("llama", "adamw", "dp=2,tp=2 --zero=3")]
FILES = ["model.safetensors", "training_state.safetensors", "ema.safetensors"]


class Averages(Case):
    def tensors(self, path):
        content = (self.work / path).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        return {name: (entry["shape"], content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]])
                for name, entry in json.loads(content[8:end]).items() if name != "__metadata__"}

    def compile(self, out, plan, *flags):
        mesh, *own = plan.split()
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, f"--ema={DECAY}", *flags, "-o", out)
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", "--lr", 0.01, "--weight-decay", 0.1, "--clip", 1]

    def average(self, model, optimizer, plan, *flags):
        """Compares the average with the weights of each step."""
        self.model(model, 4, 16)
        run = self.compile("train", plan, f"--optimizer={optimizer}", *flags) + ["--data", GOLDEN / model / "tokens.bin"]
        for steps in range(1, COUNT + 1):
            self.needs(*run, "--steps", steps, "--save", f"after{steps}", "--check-replicas", 1)
        last = self.work / f"after{COUNT}"
        weights, found = self.tensors(last / "model.safetensors"), self.tensors(last / "ema.safetensors")
        name = " ".join([model, optimizer, plan, *flags])
        self.check(f"{name}: names and shapes", {n: shape for n, (shape, _) in weights.items()} == {n: shape for n, (shape, _) in found.items()})
        worst = (0, "")
        for tensor in weights:
            values = [read(self.work / f"after{steps}/model.safetensors", tensor) for steps in range(1, COUNT + 1)]
            wanted = values[0]
            for new in values[1:]:
                wanted = [DECAY * a + (1 - DECAY) * b for a, b in zip(wanted, new)]
            scale = max(map(abs, wanted)) or 1
            worst = max(worst, (max(abs(a - b) for a, b in zip(wanted, read(last / "ema.safetensors", tensor))) / scale, tensor))
        self.check(f"{name}: averages", worst[0] <= 3e-7, worst, f"{worst[0]:.1e} in {worst[1]}")
        return run

    def moves(self):
        """Llama with frozen tables: through plans, into an evaluation, and after damage."""
        run = self.average("llama", "adamw", "tp=2", "--freeze=*embed_tokens*")
        last = f"after{COUNT}"
        self.check("a frozen weight is in the file", self.tensors(f"{last}/ema.safetensors")["model.embed_tokens.weight"] == self.tensors(f"{last}/model.safetensors")["model.embed_tokens.weight"])
        self.needs(*run, "--load", "after2", "--steps", COUNT, "--save", "resumed")
        for plan in ["dp=2 --zero=1", "pp=2 --microbatches=2"]:
            other = self.compile("other", plan, "--freeze=*embed_tokens*") + ["--data", GOLDEN / "llama/tokens.bin"]
            self.needs(*other, "--load", last, "--steps", COUNT, "--save", "again")
            for file in FILES:
                self.check(f"{plan} keeps {file}", self.tensors(f"{last}/{file}") == self.tensors(f"again/{file}"))
        for file in FILES:
            self.check(f"a run that continues: {file}", self.tensors(f"{last}/{file}") == self.tensors(f"resumed/{file}"))
        self.needs("pc-compile", "model.mlir", "--mode=eval", "-o", "eval")
        evaluate = ["./eval", "--data", GOLDEN / "llama/tokens.bin", "--steps", 1, "--init"]
        losses = [re.search(r"loss ([\d.]+)", self.needs(*evaluate, f"{last}/{file}").said)[1] for file in ("model.safetensors", "ema.safetensors")]
        self.check("an evaluation reads either", losses[0] != losses[1], losses, " and ".join(losses))
        path = self.work / last / "ema.safetensors"
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(content)
        self.holds("damage is detected when it is loaded", *run, "--load", last, "--steps", COUNT, code=9, words="ema.safetensors: tensor .* was changed")
        self.holds("damage is detected by --init", *evaluate, f"{last}/ema.safetensors", code=9, words="ema.safetensors: tensor .* was changed")
        self.holds("a checkpoint without averages is refused", *run, "--load", self.plain(), "--steps", 3, code=2, words=r"groups: frozen \(.* there, averaged: ema 0.75 \(")
        self.holds("also if groups may change", *run, "--load", "unaveraged", "--steps", 3, "--change", "groups", code=9, words="ema.safetensors")
        self.needs("pc-compile", "model.mlir", "--freeze=*embed_tokens*", "--ema=0.5", "-o", "faster")
        self.holds("another decay is reported", "./faster", *run[5:], "--load", "after2", "--steps", 3, code=2, words=r"averaged: ema 0.75 \(.*there, averaged: ema 0.5 \(.*--change groups")
        self.needs("./faster", *run[5:], "--load", "after2", "--steps", 3, "--change", "groups", "--save", "faster-after3")

    def plain(self):
        self.needs("pc-compile", "model.mlir", "--freeze=*embed_tokens*", "-o", "plain")
        self.needs("./plain", "--lr", 0.01, "--weight-decay", 0.1, "--clip", 1, "--data", GOLDEN / "llama/tokens.bin", "--steps", 2, "--save", "unaveraged")
        return "unaveraged"

    def skipped(self):
        self.model("llama", 4, 16)
        self.needs("pc-compile", "model.mlir", f"--ema={DECAY}", "-o", "one")
        run = ["./one", "--lr", "1e30", "--clip", 1, "--data", GOLDEN / "llama/tokens.bin"]
        done = self.call(*run, "--steps", 8, "--save", "bad")
        found = re.search(r"error: .*?step (\d+)", done.said)
        if self.check("the run ends at a skipped step", done.code == 10 and found, done.why()):
            self.needs(*run, "--steps", found[1], "--save", "good")
            self.check("a skipped step keeps the averages", self.tensors("good/ema.safetensors") == self.tensors("bad/ema.safetensors"))

    def refused(self):
        self.model("llama", 4, 16)
        for flags, code, words in [(["--ema=1"], 2, "expected a decay of at least 0 and below 1"), (["--ema=-0.5"], 2, "expected a decay"),
                                   (["--ema=0.9", "--lora=rank=2,alpha=4,targets=q_proj"], 2, "does not work with --lora"),
                                   (["--ema=0.9", "--mesh", "outer=2", "--local-sgd=outer:4"], 4, "leave out --ema")]:
            self.holds(f"{' '.join(flags)} is refused", "pc-compile", "model.mlir", *flags, "-o", "no", code=code, words=words)
        plan = ["--mesh", "dp=2", "--zero=1"]
        for phase in ("step", "placed"):
            self.needs("pc-compile", "model.mlir", *plan, f"--ema={DECAY}", f"--to={phase}", "-o", f"{phase}.mlir")
        text = (self.work / "placed.mlir").read_text()
        for what, old, new in [("decay", "pc.constant 2.500000e-01", "pc.constant 2.600000e-01"), ("first step", "pc.select less %", "pc.select equal %")]:
            self.check(f"{what}: the program has it", old in text)
            (self.work / "mutant.mlir").write_text(text.replace(old, new, 1))
            self.holds(f"another {what} is refused", "pc-compile", "mutant.mlir", "-o", "no", "--reference=step.mlir", "--verify=full", "--to=planned", code=5, words="")

    def body(self):
        if len(sys.argv) > 2:
            return self.average(*sys.argv[1:4])
        for plan in ALL if sys.argv[1] == "all" else QUICK:
            self.average(*plan)
        self.moves()
        self.skipped()
        self.refused()
        self.environment |= STAND_IN
        self.average("llama", "adamw", "dp=2 --zero=1 --target=cuda --arch=sm_90a --stand-in")


if __name__ == "__main__":
    case = Averages("averages " + " ".join(sys.argv[1:]))
    case.run(case.body)
