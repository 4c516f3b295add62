#!/usr/bin/env python3
"""usage: test/EndToEnd/offload.py quick|all|faults|MODEL OPTIMIZER PLAN

Optimizer states on disk change no bit: 10 steps of any plan leave the tensors of the same plan without offload. Checkpoints move between both. What the compiler
reports of arenas and links is what a run counts. A full or broken disk, and a missing or doubtful directory, end the run or are reported."""
import hashlib
import json
import sys

from cases import BUILD, GOLDEN, Case, mesh_flags, ranks_of

PLANS = ["1", "1 --microbatches=2", "dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "dp=2,tp=2 --zero=1", "cp=2 --context-parallel=ring",
         "dp=2 --zero=3 --precision=bf16", "pp=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2"]
EXPERTS = PLANS + ["ep=2", "dp=2,ep=2 --zero=3"]
OPTIMIZERS = ["adamw", "momentum", "muon", "lion", "adafactor"]
QUICK = [("gpt2", "adamw", "1"), ("llama", "adamw", "dp=2 --zero=3 --precision=bf16"), ("llama-tied", "muon", "pp=2,dp=2 --zero=1 --microbatches=2"),
         ("gpt2", "momentum", "dp=2,tp=2 --zero=1"), ("llama", "lion", "cp=2 --context-parallel=ring"), ("gpt2", "adafactor", "dp=2 --zero=3"), ("qwen3_moe", "adamw", "ep=2"),
         ("gpt2", "muon", "dp=2 --zero=2"), ("gpt2", "adamw", "tp=2 --group=*.bias:decay=0,lr=0.5x")]
MOMENTUM = """pc.optimizer "momentum" dims ["all"] states ["momentum_buffer"] scalars ["lr", "momentum"] settings {momentum = 0.9} {
^bb0(%w: tensor<?xf32>, %g: tensor<?xf32>, %old: tensor<?xf32>, %lr: tensor<f32>, %momentum: tensor<f32>):
  %kept = pc.einsum ", all -> all" %momentum, %old : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %buffer = pc.add %kept, %g : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %step = pc.einsum ", all -> all" %lr, %buffer : (tensor<f32>, tensor<?xf32>) -> tensor<?xf32>
  %new = pc.sub %w, %step : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  pc.yield %new, %buffer : tensor<?xf32>, tensor<?xf32>
}
"""
RUN = "--lr 1e-3 --weight-decay 0.1 --clip 1 --seed 1 --lr-steps 10".split()
FILES = ["model.safetensors", "training_state.safetensors"]
FAULTS = BUILD / "test/Runtime/core/libcore-failing-writes.so"


class Offload(Case):
    def compile(self, program, optimizer, plan, *flags):
        mesh, *own = plan.split()
        (self.work / "momentum.mlir").write_text(MOMENTUM)
        name = "momentum.mlir" if optimizer == "momentum" else optimizer
        self.needs("pc-compile", "model.mlir", "-o", program, *mesh_flags(mesh), *own, f"--optimizer={name}", *flags)

    def train(self, program, model, plan, steps, out, *flags):
        self.needs("pc-run", "-n", ranks_of(plan.split()[0]), f"./{program}", "--", *RUN, "--data", GOLDEN / model / "tokens.bin", "--steps", steps, "--save", out,
                   "--check-replicas", 5, *flags, seconds=900)

    def sums(self, folder):
        """A sum for each file's tensors, without its metadata, which names the plan."""
        def sum_of(content):
            end = 8 + int.from_bytes(content[:8], "little")
            header = json.loads(content[8:end])
            return hashlib.sha256(b"".join(name.encode() + content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
                                           for name, entry in sorted(header.items()) if name != "__metadata__")).hexdigest()
        return [sum_of((self.work / folder / file).read_bytes()) for file in FILES]

    def run_plan(self, model, optimizer, plan):
        name = f"{model} {optimizer} {plan}"
        self.model(model, 4, 16)
        self.compile("plain-train", optimizer, plan)
        self.compile("disk-train", optimizer, plan, "--offload=states", "--report=disk.json")
        disk = ["--scratch", "."]
        self.train("plain-train", model, plan, 10, "plain")
        self.train("disk-train", model, plan, 10, "disk", *disk, "--summary", "disk.summary")
        self.check(f"{name}: the bits without offload", self.sums("disk") == self.sums("plain"), "model or state differs")
        if "moe" not in model:  # whose steps allocate memory, with and without offload
            self.compare(f"{name}: report and summary", "reports", "disk.json", "disk.summary")
        for counted in json.loads((self.work / "disk.summary").read_text())["per_rank"]:
            links = {row["link"]: row["payload_bytes"] for row in counted["traffic"] if "link" in row}
            ways = sorted(links) == ["device>disk", "disk>device"] and len(set(links.values())) == 1
            self.check(f"{name}: each state goes in and out", ways and 0 < max(links.values()) <= counted["arena_bytes"]["disk"], counted)
        self.train("disk-train", model, plan, 4, "half", *disk)
        self.train("plain-train", model, plan, 7, "more", "--load", "half")
        self.train("disk-train", model, plan, 10, "whole", "--load", "more", *disk)
        self.check(f"{name}: checkpoints move between both", self.sums("whole") == self.sums("plain"), "model or state differs")

    def faults(self):
        self.model("gpt2", 4, 16)
        self.compile("train", "adamw", "1", "--offload=states:disk")
        self.compile("plain", "adamw", "1")
        run = ["./train", *RUN, "--data", GOLDEN / "gpt2/tokens.bin", "--steps", 4]
        self.holds("no directory", *run, code=2, words="keeps optimizer states on disk, so it needs --scratch DIR")
        self.holds("a directory that is not there", *run, "--scratch", "none", code=6, words="--scratch none: cannot make a file there: No such file")
        self.holds("needless", "./plain", *run[1:], "--scratch", ".", code=2, words="--scratch needs a program compiled with --offload")
        self.holds("a file system in memory", *run, "--scratch", "/dev/shm", words="warning: --scratch /dev/shm is in memory")
        self.holds("a snapshot in memory", "pc-run", "-n", 1, "./train", "--", *run[1:], "--scratch", ".", "--snapshot", 1, code=2, words="keeps part of its state on disk")
        (self.work / "scratch").mkdir()
        for number, words in [(5, "Input/output error"), (28, "No space left on device")]:
            self.holds(f"a write fails: {words}", *run, "--scratch", "scratch", code=6, words=rf"carry .*cannot write the scratch file in scratch at byte \d+: {words}",
                       LD_PRELOAD=str(FAULTS), FAIL_FILE="/scratch/", FAIL_ERROR=str(number), FAIL_FROM="5")
        self.check("nothing is left", not list((self.work / "scratch").iterdir()), list((self.work / "scratch").iterdir()))
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("another space", *compile, "--offload=states:host", code=4, words="--offload=states:host is not supported; expected states or states:disk")
        self.holds("other values", *compile, "--offload=activations", code=4, words="--offload=activations is not supported")
        self.holds("a GPU", *compile, "--offload=states", "--target=cuda", "--arch=sm_90a", code=4, words="works on CPU ranks only for now")
        self.holds("no states", *compile, "--offload=states", "--optimizer=sgd", code=4, words="has no optimizer states")
        self.holds("local SGD", *compile, "--offload=states", "--mesh", "outer=2", "--local-sgd=outer:4", code=4, words="does not work with --local-sgd")


def main():
    which, *more = sys.argv[1:]
    case = Offload("offload/" + " ".join(sys.argv[1:]))
    rows = QUICK if which == "quick" else [(which, *more)] if more else \
        [(model, optimizer, plan) for model in ("gpt2", "llama-tied", "qwen3_moe") for optimizer in OPTIMIZERS for plan in (EXPERTS if model == "qwen3_moe" else PLANS)]

    def body():
        if which == "faults":
            return case.faults()
        for row in rows:
            case.run_plan(*row)
    case.run(body)


main()
