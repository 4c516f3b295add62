#!/usr/bin/env python3
"""usage: test/EndToEnd/experts.py ROUTING

Runs mixtures of experts with an extreme routing on many plans (the quick run: on a few), in poisoned memory. Logits,
gradients and losses must be those of one rank; in the long run also the losses of 20 steps with its choices. ROUTING:
* tied: routers of zeros make all logits equal: all tokens take the first experts, which are on one rank;
* one, all: each token takes one expert, or all of them;
* peaked: logits so far apart that the scores of most experts are small;
* capacity: experts take at most five tokens of a sequence;
* eight: eight experts on up to eight ranks, of which each token takes two.
All also run in rounds of few rows (--experts-limit). If tokens take the first experts, or all, the number of rows that
each rank sends must be the one that follows from these choices."""
import json
import shutil
import struct
import sys

from cases import GOLDEN, LONG, STAND_IN, Case, data_flags, mesh_flags, ranks_of

PER_TOKEN = {"one": 1, "all": 4}
SCALE = {"tied": 0, "peaked": 10}
FLAGS = {"capacity": ["--expert-capacity=5"]}
ROWS = "--expert-exchange=rows"
PLANS = ["ep=2,tp=2", f"ep=2 {ROWS}", "ep=2", "ep=4", f"ep=4 {ROWS}", "ep=4 --expert-exchange=gather", f"dp=2,ep=2 {ROWS}", f"ep=2,dp=2 {ROWS}", f"ep=2,tp=2 {ROWS}",
         f"ep=2,tp=2 --sequence-parallel {ROWS}", f"dp=2,ep=2 --zero=3 {ROWS}", f"ep=2,cp=2 --context-parallel=heads {ROWS}",
         f"ep=2 --recompute=full {ROWS}", f"ep=2 --recompute=selective {ROWS}", "dp=2,ep=2", "ep=2,dp=2", "tp=2", "tp=2 --sequence-parallel", "dp=2 --zero=3", "dp=2,ep=2 --zero=3", "pp=2,ep=2", "ep=2 --recompute=full",
         "row=2,col=2 --tensor-parallel=2d", "cp=2 --expert-parallel=cp", f"cp=2 --expert-parallel=cp {ROWS}", f"dp=2,cp=2 --expert-parallel=cp {ROWS}",
         "cp=2 --context-parallel=ring --expert-parallel=cp", f"cp=4 --context-parallel=ring --expert-parallel=cp {ROWS}", "tp=2 --expert-parallel=tp",
         "tp=4 --expert-parallel=tp", "tp=2 --sequence-parallel --expert-parallel=tp", f"tp=2 --sequence-parallel --expert-parallel=tp {ROWS}",
         f"dp=2 --expert-parallel=dp {ROWS}", "dp=2 --zero=1 --expert-parallel=dp", f"dp=2 --zero=3 --expert-parallel=dp {ROWS}", f"pp=2,ep=2 {ROWS}",
         f"pp=2,ep=2 --microbatches=2 {ROWS}", f"pp=2,ep=2 --microbatches=2 --inline-tasks=0 {ROWS}", f"pp=2,ep=2 --microbatches=2 --pipeline=zb-h1 {ROWS}",
         "pp=2 --microbatches=2 --inline-tasks=0"]
# Experts compute in rounds of one row, of numbers of rows that do not divide the largest possible number, and of more
# rows than there are.
IN_ROUNDS = ["ep=2 --experts-limit=23", "ep=2,tp=2 --experts-limit=23", "1 --experts-limit=5", "1 --experts-limit=1", "1 --experts-limit=1000", "ep=4 --experts-limit=7", "dp=2 --experts-limit=9", "tp=2 --experts-limit=50",
             "dp=2 --zero=3 --experts-limit=23", "dp=2,ep=2 --zero=3 --experts-limit=23", "ep=2 --recompute=full --experts-limit=23", "ep=2 --recompute=selective --experts-limit=23",
             "ep=2 --microbatches=2 --experts-limit=23", "pp=2,ep=2 --experts-limit=23", "pp=2 --microbatches=2 --experts-limit=23", "pp=2 --microbatches=2 --recompute=full --experts-limit=23",
             "pp=2,ep=2 --microbatches=2 --pipeline=zb-h1 --experts-limit=23", "cp=2 --expert-parallel=cp --experts-limit=23", "tp=2 --expert-parallel=tp --experts-limit=23",
             "tp=2 --sequence-parallel --expert-parallel=tp --experts-limit=23", "row=2,col=2 --tensor-parallel=2d --experts-limit=23"]
ON_EIGHT = [f"ep=8 {ROWS}", "cp=8 --context-parallel=ring --expert-parallel=cp --expert-exchange=gather", "ep=8 --expert-exchange=gather", f"dp=2,ep=4 {ROWS}", "ep=4,tp=2",
            f"ep=4,tp=2 --sequence-parallel {ROWS}", "ep=2,tp=2,dp=2", f"dp=2,ep=4 --zero=3 {ROWS}", f"pp=2,ep=4 --microbatches=2 {ROWS}",
            f"cp=8 --context-parallel=ring --expert-parallel=cp {ROWS}", f"dp=8 --zero=3 --expert-parallel=dp {ROWS}", f"dp=2,cp=4 --context-parallel=ring --expert-parallel=cp {ROWS}"]
ON_DEVICES = [f"ep=2 {ROWS}", "ep=2", "1", "dp=2,ep=2", f"ep=4 {ROWS}", f"dp=2,ep=2 --zero=3 {ROWS}", f"tp=2 --sequence-parallel --expert-parallel=tp {ROWS}", f"ep=2 --recompute=full {ROWS}",
              f"pp=2,ep=2 --microbatches=2 {ROWS}", f"cp=2 --expert-parallel=cp {ROWS}"]
ROUNDS_ON_DEVICES = ["ep=2 --experts-limit=23"]


def microbatches_of(plan):
    return next((word.split("=")[1] for word in plan.split() if word.startswith("--microbatches")), "1")


def scale_routers(path, factor):
    """Multiplies all weights of routers."""
    content = bytearray(path.read_bytes())
    end = 8 + struct.unpack("<Q", content[:8])[0]
    for name, entry in json.loads(content[8:end]).items():
        if name.endswith("block_sparse_moe.gate.weight"):
            begin, last = (end + at for at in entry["data_offsets"])
            numbers = struct.unpack(f"<{(last - begin) // 4}f", content[begin:last])
            content[begin:last] = struct.pack(f"<{len(numbers)}f", *(factor * number for number in numbers))
    path.write_bytes(content)


class Experts(Case):
    def results(self, plan, target, name, told=None):
        """What a plan computes: files NAME.grads, NAME.logits and NAME.jsonl; NAME.long.jsonl of 20 steps, in the long run, with the choices `told`, or NAME.routing."""
        mesh, *flags = plan.split()
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "--target", target, *(["--arch=sm_90a", "--stand-in"] if target == "cuda" else []), "-o", "train")
        run = ["pc-run", "-n", ranks_of(mesh), "./train", "--", *data_flags("mixtral"), "--lr", 1e-3, "--clip", 1, "--seed", 1]
        where = dict(PCRT_POISON="1") | (STAND_IN if target == "cuda" else {})
        self.needs(*run, "--steps", 4, "--dump-grads", f"{name}.grads", "--dump-logits", f"{name}.logits", "--metrics", f"{name}.jsonl", "--check-replicas", 2, **where)
        if LONG and target == "cpu":
            choices = ["--routing", told] if told else ["--dump-routing", f"{name}.routing"]
            self.needs(*run, "--steps", 20, "--metrics", f"{name}.long.jsonl", *choices, **where)

    def alone(self, plan):
        """The results of one rank with as many microbatches as the plan has."""
        count = microbatches_of(plan)
        if not (self.work / f"alone-{count}.jsonl").exists():
            self.results(f"1 --microbatches={count}", "cpu", f"alone-{count}")
        return f"alone-{count}"

    def sent(self, plan, config):
        """Rows that ranks of ep send to others: to the experts that all tokens take, which are the first ones, and back, forward and backward."""
        ranks, experts, taken, tokens = int(plan.split()[0].removeprefix("ep=")), config["num_local_experts"], config["num_experts_per_tok"], 4 * 16
        own = [sum(expert * ranks // experts == rank for expert in range(taken)) for rank in range(ranks)]
        return [4 * config["hidden_size"] * config["num_hidden_layers"] * 2 * tokens // ranks * (taken - own[rank] + (ranks - 1) * own[rank]) for rank in range(ranks)]

    def traffic(self, plan, config, target):
        where = STAND_IN if target == "cuda" else {}
        self.needs("pc-run", "-n", ranks_of(plan.split()[0]), "./train", "--", *data_flags("mixtral"), "--steps", 1, "--summary", "summary.json", **where)
        counted = {rank: sum(row["wire_bytes"] for row in group["traffic"] if row["move"] == "all_to_all_rows")
                   for group in json.loads((self.work / "summary.json").read_text())["per_rank"] for rank in group["ranks"]}
        wanted = self.sent(plan, config)
        self.check(f"{plan} on {target}: rows sent", [counted[rank] for rank in range(len(wanted))] == wanted, f"{counted}, not {wanted}")

    def body(self):
        routing = sys.argv[1]
        folder = self.work / "folder"
        shutil.copytree(GOLDEN / "mixtral", folder)
        config = json.loads((folder / "config.json").read_text())
        config["num_experts_per_tok"] = PER_TOKEN.get(routing, 2)
        if routing == "eight":
            config["num_local_experts"] = 8
            for file in folder.glob("*.safetensors"): # weights are drawn
                file.unlink()
        else:
            scale_routers(folder / "model.safetensors", SCALE.get(routing, 1))
        (folder / "config.json").write_text(json.dumps(config))
        self.model(folder, 8 if routing == "eight" else 4, 16, *FLAGS.get(routing, []))
        for target, plans, more in (("cpu", ON_EIGHT, []), ("cuda", [], [])) if routing == "eight" else (("cpu", PLANS, IN_ROUNDS), ("cuda", ON_DEVICES, ROUNDS_ON_DEVICES)):
            for plan in plans + more if LONG else plans[:2] + more[:1]:
                alone = self.alone(plan)
                self.results(plan, target, "other", f"{alone}.routing")
                for what in ("grads", "logits"):
                    self.compare(f"{plan} on {target}: {what}", "tensors", f"{alone}.{what}", f"other.{what}", "--tolerance", 1e-5)
                self.compare(f"{plan} on {target}: losses", "losses", f"{alone}.jsonl", "other.jsonl", "--tolerance", 1e-5)
                if LONG and target == "cpu":
                    self.compare(f"{plan}: losses of 20 steps", "losses", f"{alone}.long.jsonl", "other.long.jsonl", "--tolerance", 1e-5)
                if routing in ("tied", "all") and plan in (f"ep=2 {ROWS}", f"ep=4 {ROWS}"):
                    self.traffic(plan, config, target)


case = Experts("experts " + " ".join(sys.argv[1:]))
case.run(case.body)
