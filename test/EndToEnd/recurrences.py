#!/usr/bin/env python3
"""usage: test/EndToEnd/recurrences.py quick|all|PLAN

A model of linear recurrences and one attention: states of several numbers per channel with a factor per token (Mamba-2), a factor for each channel and token in
both directions (Mamba, RG-LRU), and one for each channel (RetNet). Every plan makes the steps of one rank, or is refused by name."""
import struct
import sys

from cases import STAND_IN, Case, mesh_flags, ranks_of

SIZES = dict(batch=4, sequence=16, embed=16, ffn=8, state=4, kv_heads=4, group=1, head_dim=4, vocab=32)
PLANS = ["dp=2", "dp=2 --zero=1", "dp=2 --zero=3 --microbatches=2", "1 --microbatches=4", "tp=2", "tp=2 --sequence-parallel", "tp=2 --tensor-parallel=free",
         "dp=2,tp=2 --microbatches=2", "cp=2 --context-parallel=heads", "cp=4 --context-parallel=heads --microbatches=2", "dp=2,cp=2 --zero=3", "tp=2,cp=2",
         "tp=2,cp=2 --sequence-parallel", "cp=2 --recompute=full", "cp=2 --precision=bf16", "pp=2,cp=2 --microbatches=2", "pp=2 --microbatches=2",
         "pp=2 --microbatches=4 --pipeline=zb-h1", "pp=2,tp=2 --microbatches=2", "1 --recompute=full", "1 --recompute=selective", "1 --precision=bf16",
         "dp=2 --zero=3 --precision=bf16", "cuda:1", "cuda:dp=2 --zero=3 --microbatches=2", "cuda:tp=2", "cuda:tp=2,cp=2", "cuda:cp=2 --precision=bf16",
         "cuda:pp=2 --microbatches=2", "cuda:1 --precision=bf16"]
QUICK = ["dp=2 --zero=3 --microbatches=2", "tp=2", "tp=2,cp=2 --context-parallel=heads", "pp=2 --microbatches=2", "1 --recompute=full", "1 --precision=bf16",
         "cuda:dp=2 --microbatches=2", "cuda:cp=2"]
RUN = ["--data", "tokens.bin", "--steps", 5, "--lr", 0.01, "--weight-decay", 0.1, "--clip", 0.5, "--seed", 3]


class Model:
    """Writes the program; a value is its name and dims."""

    def __init__(self):
        self.lines, self.place = [], "wte"

    @staticmethod
    def type(dims, element="f32"):
        return f"tensor<{''.join(f'{SIZES[dim]}x' for dim in dims)}{element}>"

    def line(self, text, dims):
        self.lines.append(f'  %{len(self.lines)} = pc.{text} loc("{self.place}")')
        return f"%{len(self.lines) - 1}", dims.split()

    def op(self, text, *operands, to=None):
        to = " ".join(operands[0][1]) if to is None else to
        types = ", ".join(self.type(dims) for _, dims in operands)
        return self.line(f"{text.replace('@', ', '.join(name for name, _ in operands))} : ({types}) -> {self.type(to.split())}", to)

    def weight(self, name, dims):
        sizes = ", ".join(str(SIZES[dim]) for dim in dims.split())
        names = ", ".join(f'"{dim}"' for dim in dims.split())
        name = f"{self.place}.{name}"
        zeros = ", ".join("0" for _ in dims.split())
        return self.line(f'parameter "{name}" dims [{names}] init <normal, 3.0e-01> source <"{name}", shape = [{sizes}], start = [{zeros}], size = [{sizes}]> : {self.type(dims.split())}', dims)

    def einsum(self, *operands, to):
        return self.op(f'einsum "{", ".join(" ".join(dims) for _, dims in operands)} -> {to}" @', *operands, to=to)

    def linear(self, x, name, to):
        return self.einsum(x, self.weight(name, f"embed {to}"), to=f"batch sequence {to}")

    def recurrence(self, a, b, more=""):
        return self.op(f'recurrence "{" ".join(a[1])}, {" ".join(b[1])} -> {" ".join(b[1])}" along "sequence"{more} @', a, b, to=" ".join(b[1]))

    def factor(self, x):
        return self.op("activation sigmoid @", x)

    def block(self, x, name, body):
        self.place = name
        out = self.einsum(body(x), self.weight("out", "ffn embed"), to="batch sequence embed")
        return self.op("add @", x, out)

    def several_numbers(self, x):
        """A state of several numbers per channel. Its factor depends on the token alone."""
        a = self.factor(self.einsum(x, self.weight("decay", "embed"), to="batch sequence"))
        b = self.einsum(self.linear(x, "value", "ffn"), self.linear(x, "write", "state"), to="batch sequence ffn state")
        return self.einsum(self.recurrence(a, b), self.linear(x, "read", "state"), to="batch sequence ffn")

    def both_directions(self, x):
        b = self.linear(x, "value", "ffn")
        there = self.recurrence(self.factor(self.linear(x, "decay", "ffn")), b)
        back = self.recurrence(self.factor(self.linear(x, "decay_back", "ffn")), b, " reverse")
        return self.op("add @", there, back)

    def constant(self, x):
        return self.recurrence(self.factor(self.weight("decay", "ffn")), self.op("activation silu @", self.linear(x, "value", "ffn")))

    def attention(self, x):
        q, k, v = (self.linear(x, name, dims) for name, dims in (("q", "kv_heads group head_dim"), ("k", "kv_heads head_dim"), ("v", "kv_heads head_dim")))
        o = self.op("attention causal @ scale 0.5", q, k, v, to=" ".join(q[1]))
        lse = self.type("batch kv_heads group sequence".split())
        self.lines[-1] = self.lines[-1].replace(" = ", ":2 = ", 1).replace(f"-> {self.type(o[1])}", f"-> ({self.type(o[1])}, {lse})")
        o = (o[0] + "#0", o[1])
        return self.einsum(o, self.weight("o", "kv_heads group head_dim ffn"), to="batch sequence ffn")

    def text(self):
        tokens, targets = (self.line(f'input {kind} dims ["batch", "sequence"] : {self.type(["batch", "sequence"], "i32")}', "batch sequence")[0] for kind in ("tokens", "targets"))
        table = self.weight("weight", "vocab embed")
        ids, logits_type = self.type(["batch", "sequence"], "i32"), self.type(["batch", "sequence", "vocab"])
        x = self.line(f"embedding {table[0]}, {tokens} : ({self.type(table[1])}, {ids}) -> {self.type(['batch', 'sequence', 'embed'])}", "batch sequence embed")
        for i, body in enumerate((self.several_numbers, self.both_directions, self.attention, self.constant)):
            x = self.block(x, f"h.{i}.mix", body)
        self.place = "head"
        logits = self.linear(x, "weight", "vocab")
        nll = self.line(f"cross_entropy {logits[0]}, {targets} : ({logits_type}, {ids}) -> {self.type(['batch', 'sequence'])}", "batch sequence")
        loss = self.op(f"scale @ by {1 / SIZES['batch'] / SIZES['sequence']:e}", self.einsum(nll, to=""))
        body = "\n".join(self.lines)
        return (f'pc.program "recurrences" batch {SIZES["batch"]} sequence {SIZES["sequence"]} vocabulary {SIZES["vocab"]} config "{{}}"\nfunc.func @model() {{\n{body}\n'
                f'  pc.output logits "logits" {logits[0]} : {logits_type}\n  pc.output loss "loss" {loss[0]} : tensor<f32>\n  return\n}}\n')


class Recurrences(Case):
    def train(self, plan, out):
        on_device, _, plan = plan.rpartition("cuda:") if "cuda:" in plan else (None, "", plan)
        mesh, *flags = plan.split()
        if on_device is not None:
            flags += ["--target=cuda", "--arch=sm_90a", "--stand-in"]
            self.environment |= STAND_IN
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, "--verify=full", "-o", out, f"--report={out}.json")
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *RUN, "--save", f"{out}.save", "--metrics", f"{out}.jsonl", "--dump-grads", f"{out}.grads",
                   "--summary", f"{out}.summary", "--check-replicas", 2)

    def plan(self, plan):
        half = "bf16" in plan
        self.train(plan, "other")
        self.compare(f"{plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 3e-2 if half else 1e-5)
        self.compare(f"{plan}: gradients", "tensors", "one.grads", "other.grads", "--tolerance", 6e-2 if half else 1e-5)
        if not half:
            self.compare(f"{plan}: parameters", "tensors", "one.save/model.safetensors", "other.save/model.safetensors", "--tolerance", 1e-4)
        self.compare(f"{plan}: report and summary", "reports", "other.json", "other.summary")

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        (self.work / "model.mlir").write_text(Model().text())
        count = 5 * SIZES["batch"] * SIZES["sequence"] + 1
        (self.work / "tokens.bin").write_bytes(struct.pack(f"<{count}H", *((7 * i * i + 13 * i + i // 5) % SIZES["vocab"] for i in range(count))))
        self.train("1", "one")
        self.holds("a sequence in another order is refused", "pc-compile", "model.mlir", "--mesh", "cp=2", "--context-parallel=ring", "-o", "ring", code=4,
                   words="'pc.recurrence' op depends on the order of the sequence")
        for plan in {"quick": QUICK, "all": PLANS}.get(sys.argv[1], sys.argv[1:]):
            self.plan(plan)


if __name__ == "__main__":
    case = Recurrences("recurrences " + " ".join(sys.argv[1:]))
    case.run(case.body)
