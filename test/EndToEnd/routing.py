#!/usr/bin/env python3
"""usage: test/EndToEnd/routing.py

Tests files of choices of experts. Any plan (the quick run: some) writes the bytes that one rank writes. A run that
reads its own choices has the same numbers. A run that reads others has the numbers of one rank that reads them; in bf16
it has the choices of f32. Files of other models, of fewer steps, or without choices are refused."""
import json

from cases import LONG, STAND_IN, Case, data_flags, mesh_flags, ranks_of
from choices import read, written

STEPS, BATCH, SEQUENCE, EXPERTS, PER_TOKEN, LAYERS = 4, 4, 16, 4, 2, 2
PLANS = ["ep=2", "pp=2,ep=2 --microbatches=2", "cp=2 --context-parallel=ring", "dp=2,ep=2 --zero=3", "ep=4", "dp=2", "tp=2 --sequence-parallel", "dp=2,tp=2", "tp=2 --sequence-parallel --window=tp",
         "cp=2 --context-parallel=heads", "dp=2,cp=2 --context-parallel=ring", "1 --microbatches=4", "dp=2 --microbatches=2", "ep=2 --recompute=full", "ep=2 --recompute=selective",
         "pp=2 --microbatches=4 --pipeline=interleaved:1 --recompute=full", "pp=2 --microbatches=4 --pipeline=zb-h1", "pp=2 --microbatches=2 --inline-tasks=0", "row=2,col=2 --tensor-parallel=2d"]
ON_DEVICES = ["1 --microbatches=2", "ep=2"]


def microbatches_of(plan):
    return next((word.split("=")[1] for word in plan.split() if word.startswith("--microbatches")), "1")


class Routing(Case):
    def program(self, plan, target="cpu", *flags, model="model.mlir"):
        mesh, *more = plan.split()
        self.needs("pc-compile", model, *mesh_flags(mesh), *more, *flags, "--target", target, *(["--arch=sm_90a", "--stand-in"] if target == "cuda" else []), "-o", "train")
        self.ranks, self.where = ranks_of(mesh), STAND_IN if target == "cuda" else {}

    def train(self, name, *flags, steps=STEPS, dump=True):
        """Files NAME.grads, NAME.jsonl and NAME.routing."""
        self.needs("pc-run", "-n", self.ranks, "./train", "--", *data_flags("mixtral"), "--steps", steps, "--lr", 1e-3, "--clip", 1, "--dump-grads", f"{name}.grads",
                   "--metrics", f"{name}.jsonl", *(["--dump-routing", f"{name}.routing"] if dump else []), *flags, **self.where)

    def figures(self, name):
        lines = map(json.loads, (self.work / f"{name}.jsonl").read_text().splitlines())
        return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]

    def near(self, what, one, other):
        self.compare(f"{what}: gradients", "tensors", f"{one}.grads", f"{other}.grads", "--tolerance", 1e-5)
        self.compare(f"{what}: losses", "losses", f"{one}.jsonl", f"{other}.jsonl", "--tolerance", 1e-5)

    def one_rank(self):
        header, own = read(self.work / "own-1.routing")
        says = header["__metadata__"] | dict(model_sum="")
        self.check("what a file says", says == dict(format="pc-routing", first_step="0", layers="0,1", experts=str(EXPERTS), model="mixtral", model_sum=""), header)
        shape = [STEPS, LAYERS, BATCH, SEQUENCE, PER_TOKEN]
        self.check("its tensor", header["routing"]["shape"] == shape and header["routing"]["dtype"] == "U8", header)
        self.check("its experts ascend", all(a < b < EXPERTS for a, b in zip(own[::2], own[1::2])) and len(set(own)) == EXPERTS, own)
        self.program("1")
        self.train("again", "--routing", "own-1.routing")
        self.check("a run that is told its own choices", self.figures("again") == self.figures("own-1"), self.figures("again"))
        self.same("and its file", "again.routing", "own-1.routing")
        self.train("again", dump=False)
        self.check("a run that writes none", self.figures("again") == self.figures("own-1"), self.figures("again"))
        (self.work / "by-hand").write_bytes(written(own, shape, "I64"))
        self.train("again", "--routing", "by-hand")
        self.same("a file of wider numbers, made by hand", "again.routing", "own-1.routing")
        # A run that continues from a checkpoint.
        self.train("part", "--save", "half", steps=2)
        self.train("part", "--load", "half")
        self.same("a run that goes on writes on", "part.routing", "own-1.routing")
        self.train("rest", "--load", "half", "--routing", "own-1.routing", "--change", "data")
        header, rest = read(self.work / "rest.routing")
        self.check("a file that begins later", header["__metadata__"]["first_step"] == "2" and rest == own[len(own) // 2:], header)
        self.train("again", "--load", "half", "--routing", "rest.routing", "--change", "data")
        self.check("a run that is told it", self.figures("again")[2:] == self.figures("rest"), self.figures("again"))
        return own, shape

    def on_plans(self, target, plans):
        for plan in plans:
            count = microbatches_of(plan)
            self.program(plan, target)
            self.train("there")
            self.same(f"{plan} on {target}: choices", "there.routing", f"own-{count}.routing")
            self.train("there", "--routing", "others", "--check-replicas", 2)
            self.same(f"{plan} on {target}: others", "there.routing", f"others-{count}.routing")
            self.near(f"{plan} on {target} by others", "there", f"others-{count}")

    def hostile(self, own, shape):
        good = dict(numbers=own, shape=shape)

        def refused(what, words, code=9, file="bad", **changes):
            if changes:
                (self.work / "bad").write_bytes(written(**(good | changes)))
            self.holds(what, "./train", *data_flags("mixtral"), "--steps", STEPS, "--routing", file, code=code, words=words)

        def changed(at, expert):
            return dict(numbers=own[:at] + [expert] + own[at + 1:])

        self.program("1")
        of_step = len(own) // STEPS
        place = of_step + of_step // LAYERS + SEQUENCE * PER_TOKEN + 3 * PER_TOKEN + 1
        where = r"bad: step 1, layer 1, sequence 1, token 3: expert "
        refused("no such expert", where + "4, but the layer has 4 experts", **changed(place, EXPERTS))
        refused("a number below zero", where + "-1, but the layer has 4 experts", **changed(place, -1))
        refused("an expert twice", where + rf"{own[place - 1]} is listed twice", **changed(place, own[place - 1]))
        refused("too few steps", "it has 3 steps, starting at step 0, but the run needs steps 0 to 3", numbers=own[: 3 * of_step], shape=[3, *shape[1:]])
        refused("steps after", "it has 4 steps, starting at step 1, but the run needs steps 0 to 3", first_step="1")
        refused("a step that is none", "its first_step is 'one'", first_step="one")
        refused("other experts", "it is for experts 8, but this program has 4", experts="8")
        refused("other layers", "it is for layers 1,3, but this program has 0,1", layers="1,3")
        refused("another model", "it is for a model with checksum 12", model_sum="12")
        for dim, words in ((1, "for 1 layers with experts"), (2, "for 2 sequences in a batch"), (3, "for 8 tokens in a sequence"), (4, "for 1 experts of a token")):
            refused(words, f"it is {words}, but this program has", numbers=own[: len(own) // 2], shape=[size // 2 if i == dim else size for i, size in enumerate(shape)])
        refused("another rank", r"its tensor is \[512, 2\]", shape=[512, 2], numbers=own)
        refused("floats", "its tensor has type F32", dtype="F32")
        refused("another tensor", "it has no tensor 'routing'", name="logits")
        content = (self.work / "own-1.routing").read_bytes()
        (self.work / "bad").write_bytes(content[:-1])
        refused("a file that is cut off", "truncated")
        (self.work / "bad").write_bytes(b"{}")
        refused("no safetensors", "bad")
        refused("no file", "nowhere", file="nowhere")
        self.holds("the same file twice", "./train", *data_flags("mixtral"), "--routing", "bad", "--dump-routing", "bad", code=2, words="a file that this command reads")
        self.holds("a place that cannot be written", "./train", *data_flags("mixtral"), "--dump-routing", "no/where", code=6, words="no/where")
        self.model("llama", to="llama.mlir")
        self.program("1", model="llama.mlir")
        self.holds("no mixture", "./train", *data_flags("llama"), "--dump-routing", "none", code=2, words="this model has no mixture of experts")

    def body(self):
        self.model("mixtral", BATCH, SEQUENCE)
        counts = ("1", "2", "4") if LONG else ("1", "2")
        for count in counts:
            self.program(f"1 --microbatches={count}")
            self.train(f"own-{count}")
        own, shape = self.one_rank()
        others = [(expert + 1) % EXPERTS for expert in own]
        (self.work / "others").write_bytes(written(others, shape))
        for count in counts:
            self.program(f"1 --microbatches={count}")
            self.train(f"others-{count}", "--routing", "others")
            found = read(self.work / f"others-{count}.routing")[1]
            self.check("other choices, in order", found == [expert for pair in zip(others[::2], others[1::2]) for expert in sorted(pair)], found)
            self.check("make other losses", self.figures(f"others-{count}")[0][1] != self.figures(f"own-{count}")[0][1])
        self.on_plans("cpu", PLANS if LONG else PLANS[:3])
        if LONG:
            self.on_plans("cuda", ON_DEVICES)
        for mesh in ["1", "ep=2"] if LONG else ["ep=2"]:
            self.program(mesh, "cpu", "--precision=bf16")
            self.train("half", "--routing", "own-1.routing")
            self.same(f"{mesh} in bf16: choices of f32", "half.routing", "own-1.routing")
            self.compare(f"{mesh} in bf16: losses", "losses", "half.jsonl", "own-1.jsonl", "--tolerance", 5e-3)
        self.hostile(own, shape)


case = Routing("routing")
case.run(case.body)
