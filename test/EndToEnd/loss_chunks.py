#!/usr/bin/env python3
"""usage: test/EndToEnd/loss_chunks.py quick|all|MODEL [PLAN]

Logits and loss in chunks of tokens (--loss-chunks). Every plan makes the steps of the same plan without chunks, and the
arena falls by the logits that are not in memory."""
import json
import sys

from cases import GOLDEN, STAND_IN, Case, data_flags, mesh_flags, ranks_of
from key_biases import KEY_BIASES

PLANS = ["1", "dp=2", "dp=2 --microbatches=2", "dp=2 --zero=3", "tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2 --zero=3 --sequence-parallel", "pp=2 --microbatches=2",
         "pp=2 --microbatches=4 --pipeline=zb-h1", "cp=2 --context-parallel=ring", "cp=2 --context-parallel=heads", "row=2,col=2 --tensor-parallel=2d", "1 --recompute=full"]
FAMILIES = ["gpt2", "gpt2-odd", "gpt2-dropout", "gpt2-targets", "llama", "llama-tied", "gemma2", "bert", "t5", "bloom", "opt", "qwen3_moe", "deepseek_v3", "gpt_oss", "olmo2"]
QUICK = {"gpt2": ["dp=2 --zero=3", "pp=2 --microbatches=2", "tp=2 --sequence-parallel"], "llama": ["cp=2 --context-parallel=ring"], "gemma2": ["tp=2"]}
# Attention with biases or windows keeps its order, and experts and stacks of two kinds have other plans.
SHORT = ["1", "dp=2 --zero=3", "tp=2", "pp=2 --microbatches=2"]


class LossChunks(Case):
    def train(self, program, ranks, out):
        self.needs("pc-run", "-n", ranks, f"./{program}", "--", *data_flags(self.of), "--init", GOLDEN / self.of, "--steps", 3, "--lr", 0.01, "--clip", 1, "--seed", 3, "--save", out,
                   "--metrics", f"{out}.jsonl", "--summary", f"{out}.summary", "--check-replicas", 2)

    def plan(self, plan, target=()):
        mesh, *own = plan.split()
        name = f"{self.name_of} {plan}{' cuda' if target else ''}"
        for program, chunks in (("whole", 1), ("chunked", 4)):
            self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, f"--loss-chunks={chunks}", *target, "-o", program, f"--report={program}.json")
            self.train(program, ranks_of(mesh), f"{program}-out")
        self.compare(f"{name}: losses", "losses", "whole-out.jsonl", "chunked-out.jsonl", "--tolerance", 1e-5)
        self.compare(f"{name}: parameters", "tensors", "whole-out/model.safetensors", "chunked-out/model.safetensors", "--tolerance", 2e-4,
                     *[word for entries in KEY_BIASES.get(self.of, []) for word in ("--skip", entries)])
        self.compare(f"{name}: report and summary", "reports", "chunked.json", "chunked-out.summary")

    def family(self, of, plans, *flags):
        self.of, self.name_of = of, " ".join(map(str, [of, *flags]))
        self.model(of, 4, 16, *flags)
        for plan in plans:
            self.plan(plan)

    def evaluation(self):
        """The loss alone, without gradients."""
        self.model("gpt2", 4, 16)
        for chunks in (1, 4):
            self.needs("pc-compile", "model.mlir", "--mode=eval", f"--loss-chunks={chunks}", "--mesh", "tp=2", "-o", "evaluate")
            self.needs("pc-run", "-n", 2, "./evaluate", "--", *data_flags("gpt2"), "--init", GOLDEN / "gpt2", "--eval", "--steps", 2, "--metrics", f"eval-{chunks}.jsonl")
        self.compare("evaluation", "losses", "eval-1.jsonl", "eval-4.jsonl", "--tolerance", 1e-6)

    def memory(self):
        """With a vocabulary that is large compared with the rest, the arena falls by all logits but a chunk of them."""
        batch, sequence, vocabulary = 2, 64, 8192
        config = json.loads((GOLDEN / "llama/config.json").read_text()) | {"vocab_size": vocabulary, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
        (self.work / "config.json").write_text(json.dumps(config))
        self.model(self.work, batch, sequence, to="wide.mlir")
        arena = {}
        for chunks in (1, 8):
            self.needs("pc-compile", "wide.mlir", f"--loss-chunks={chunks}", "-o", "wide", "--report=wide.json")
            arena[chunks] = json.loads((self.work / "wide.json").read_text())["per_rank"][0]["arena_bytes"]["device"]
        logits = 4 * batch * sequence * vocabulary
        saved = arena[1] - arena[8]
        self.check("memory", 0.85 * logits < saved < logits, f"{saved} bytes less, logits have {logits}", f"{saved} bytes less, logits have {logits}")

    def refused(self):
        self.model("gpt2", 4, 16)
        for flag, words in (("--loss-chunks=3", "--loss-chunks=3 does not divide the 16 tokens of a sequence; the nearest numbers that do are 2 and 4"), ("--loss-chunks=0", "must be at least 1")):
            self.holds(flag, "pc-compile", "model.mlir", flag, "-o", "refused", code=2, words=words)
        self.holds("generation", "pc-compile", "model.mlir", "--mode=generate", "--loss-chunks=2", "-o", "refused", code=2, words="--loss-chunks is for")
        self.needs("pc-compile", "model.mlir", "--loss-chunks=2", "-o", "chunked")
        self.holds("no logits to write", "./chunked", *data_flags("gpt2"), "--steps", 1, "--dump-logits", "logits", code=2, words="has no output logits")

    def body(self):
        names = sys.argv[1:]
        if names == ["quick"]:
            for of, plans in QUICK.items():
                self.family(of, plans)
            self.refused()
        elif names == ["all"]:
            for of in FAMILIES:
                self.family(of, PLANS if of in ("gpt2", "llama") else SHORT)
            for flags in (["--label-smoothing", 0.1, "--z-loss", 0.01],):
                self.family("gpt2", SHORT, *flags)
        else:
            return self.family(names[0], names[1:] or PLANS)
        self.family("gpt2", [])
        self.environment |= STAND_IN
        self.plan("dp=2", ["--target=cuda", "--arch=sm_90a", "--stand-in"])
        self.environment = {}
        self.evaluation()
        self.memory()


case = LossChunks("loss_chunks " + " ".join(sys.argv[1:]))
case.run(case.body)
