#!/usr/bin/env python3
"""usage: test/EndToEnd/frozen.py quick|all|PLAN

A Llama some of whose parameters are frozen: those below or above what is trained, all but the norms, and all but the products for values. On one rank the first step
has the loss and the gradients of the same model with nothing frozen, and a norm of what is trained alone. Every other plan makes the steps of one rank; the saved
tensors that are frozen have the bits they began with, whatever decays, and there is no state of them, nor any bytes of one."""
import json
import math
import re
import sys

from cases import SMALL_LLAMA, STAND_IN, Case, mesh_flags, ranks_of
from masks import read

FROZEN = {"below": r"embed_tokens|layers\.0\.", "above": r"layers\.1\.|model\.norm|lm_head", "all but norms": r"embed_tokens|_proj|lm_head",
          "all but values": r"embed_tokens|norm|[qko]_proj|mlp|lm_head"}
PLANS = ["dp=2", "dp=2 --data-parallel=naive", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "dp=2 --zero=3 --microbatches=2", "tp=2", "tp=2 --sequence-parallel",
         "row=2,col=2 --tensor-parallel=2d", "dp=2,tp=2 --zero=3", "cp=2 --context-parallel=ring", "1 --microbatches=2", "1 --recompute=full", "pp=2 --microbatches=2",
         "pp=2 --microbatches=4 --pipeline=gpipe", "pp=2 --microbatches=4 --pipeline=zb-h1", "pp=2 --microbatches=4 --pipeline=zb-v",
         "pp=2 --microbatches=4 --pipeline=interleaved:2", "pp=2 --microbatches=2 --stages=1,1", "pp=2,dp=2 --microbatches=2 --zero=1", "pp=2 --microbatches=2 --recompute=full"]
QUICK = ["dp=2 --zero=3 --microbatches=2", "tp=2", "cp=2 --context-parallel=ring", "dp=2 --zero=1", "pp=2 --microbatches=4 --pipeline=zb-h1", "pp=2 --microbatches=4 --pipeline=zb-v"]
STEPS = ["--steps", 5, "--lr", 0.01, "--weight-decay", 0.1, "--clip", 0.5, "--seed", 3]


def tensors(path):
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return {name: (entry["dtype"], entry["shape"], content[end + entry["data_offsets"][0]:end + entry["data_offsets"][1]])
            for name, entry in json.loads(content[8:end]).items() if name != "__metadata__"}


class Frozen(Case):
    def trained(self, what, name):
        return not re.search(FROZEN[what], name)

    def freeze(self, what):
        """The program with what fits the pattern frozen."""
        text = (self.work / "model.mlir").read_text()
        frozen, count = re.subn(r'(pc\.parameter "[^"]*)"( dims)', lambda m: f'{m[1]}"{"" if self.trained(what, m[1]) else " frozen"}{m[2]}', text)
        name = f"{what.split()[0]}.mlir"
        (self.work / name).write_text(frozen)
        return name

    def run_plan(self, model, plan, out, *flags):
        mesh, *own = plan.split()
        self.needs("pc-compile", model, *mesh_flags(mesh), *own, *flags, "-o", f"{out}-train", f"--report={out}.json")
        run = ["pc-run", "-n", ranks_of(mesh), f"./{out}-train", "--", "--data", "text:tokens"]
        self.needs(*run, *STEPS, "--save", out, "--metrics", f"{out}.jsonl", "--dump-grads", f"{out}.grads", "--summary", f"{out}.summary", "--check-replicas", 2)

    def first(self, name):
        return json.loads(next(open(self.work / f"{name}.jsonl")))

    def alone(self, what, model):
        """One rank, beside the model with nothing frozen."""
        self.run_plan(model, "1", "one")
        found, free = tensors(self.work / "one.grads"), tensors(self.work / "free.grads")
        wanted = [name for name in free if self.trained(what, name)]
        self.check(f"{what}: gradients of what is trained", sorted(found) == sorted(wanted), f"{sorted(found)}, wanted {sorted(wanted)}")
        for name in wanted:
            one, other = (read(self.work / f"{model}.grads", name) for model in ("one", "free"))
            worst, largest = max(abs(x - y) for x, y in zip(one, other)), max(map(abs, other))
            if not worst <= 1e-5 * largest:
                self.check(f"{what}: the gradient of {name} in the free model", False, f"{worst} of {largest}")
        self.check(f"{what}: its loss", self.first("one")["loss"] == self.first("free")["loss"])
        norm = math.sqrt(sum(x * x for name in wanted for x in read(self.work / "one.grads", name)))
        self.check(f"{what}: the norm of what is trained", abs(self.first("one")["grad_norm"] - norm) < 1e-5 * norm, f"{self.first('one')['grad_norm']}, not {norm}")
        memory = json.load(open(self.work / "one.json"))["per_rank"][0]["memory_at_most"]
        sizes = {name: len(data) for name, (_, _, data) in self.drawn.items()}
        self.check(f"{what}: bytes of parameters", memory["parameters"] == sum(sizes.values()), f"{memory}, not {sum(sizes.values())}")
        state = 2 * sum(size for name, size in sizes.items() if self.trained(what, name))
        self.check(f"{what}: bytes of states", memory["optimizer"] == state, f"{memory}, not {state}")

    def saved(self, name, what, out):
        found, state = tensors(self.work / out / "model.safetensors"), tensors(self.work / out / "training_state.safetensors")
        for tensor, before in self.drawn.items():
            if (found[tensor] == before) == self.trained(what, tensor):
                self.check(f"{name}: {tensor}", False, "has changed" if found[tensor] != before else "was not trained")
        self.check(f"{name}: all tensors are saved", found.keys() == self.drawn.keys())
        of = {tensor.partition(".")[2] for tensor in state}
        self.check(f"{name}: states of what is trained alone", of == {tensor for tensor in self.drawn if self.trained(what, tensor)}, of)

    def plan(self, what, model, plan, *flags):
        name, exact = f"{what}: {plan}", "bf16" not in plan
        self.run_plan(model, plan, "other", *flags)
        tolerance = 1e-5 if exact else 2e-2
        self.compare(f"{name}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", tolerance)
        self.compare(f"{name}: gradients", "tensors", "one.grads", "other.grads", "--tolerance", tolerance if exact else 0.1)
        self.compare(f"{name}: parameters", "tensors", "one/model.safetensors", "other/model.safetensors", "--tolerance", 1e-4 if exact else 5e-2)
        self.saved(name, what, "other")
        self.compare(f"{name}: report and summary", "reports", "other.json", "other.summary")

    def rounds(self, what, model):
        """Local SGD: replicas send nothing of what is frozen, and go on from a checkpoint."""
        self.needs("pc-compile", model, "--mesh", "outer=2", "--local-sgd=outer:2", "-o", "rounds", "--report=rounds.json")
        run = ["pc-run", "-n", 2, "./rounds", "--", "--data", "text:tokens", *STEPS[2:]]
        self.needs(*run, "--steps", 5, "--save", "whole", "--summary", "rounds.summary", "--check-replicas", 1)
        self.compare(f"{what}: rounds: report and summary", "reports", "rounds.json", "rounds.summary")
        self.needs(*run, "--steps", 3, "--save", "part")
        self.needs(*run, "--steps", 5, "--load", "part", "--save", "part")
        for file in ("model.safetensors", "training_state.safetensors"):
            self.same(f"{what}: rounds: {file} of a run with a break", f"whole/{file}", f"part/{file}")
        found = tensors(self.work / "whole/model.safetensors")
        self.check(f"{what}: rounds: what is frozen", all((found[name] == self.drawn[name]) != self.trained(what, name) for name in self.drawn))

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        (self.work / "config.json").write_text(json.dumps(SMALL_LLAMA))
        (self.work / "tokens").write_bytes(bytes((i * i // 3 + i) % 32 for i in range(2000)))
        self.model(self.work, 8, 16)
        self.run_plan("model.mlir", "1", "free")
        self.needs("./free-train", "--data", "text:tokens", *STEPS, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--save", "start")
        self.drawn = tensors(self.work / "start/model.safetensors")
        quick = sys.argv[1] == "quick"
        for what in FROZEN:
            model = self.freeze(what)
            self.alone(what, model)
            self.saved(f"{what}: 1", what, "one")
            for plan in QUICK if quick else PLANS if sys.argv[1] == "all" else sys.argv[1:]:
                self.plan(what, model, plan)
            if what == "all but norms":
                self.rounds(what, model)
                self.plan(what, model, "dp=2 --zero=3 --precision=bf16")
            self.environment |= STAND_IN
            self.plan(what, model, "dp=2 --zero=3 --microbatches=2", "--target=cuda", "--arch=sm_90a", "--stand-in")


if __name__ == "__main__":
    case = Frozen("frozen " + " ".join(sys.argv[1:]))
    case.run(case.body)
