#!/usr/bin/env python3
"""usage: test/EndToEnd/inputs.py quick|all|refused|PLAN

A program without tokens: an MLP-Mixer of images, which have a label and a value. The first loss is computed here once more, from the weights and from the rows that
the order of samples says; every plan makes the steps of one rank, from .npy files or safetensors, in order or shuffled, and a run with a break has the bits of one
without. Files whose names, shapes, types, numbers or rows do not fit are refused with both."""
import json
import math
import random
import re
import struct
import sys

from cases import STAND_IN, Case, mesh_flags, ranks_of
from masks import read, safetensors

B, S, C, E, F, T, V, N = 8, 4, 6, 8, 16, 12, 10, 44  # N samples: no multiple of the batch
PLANS = ["dp=2", "dp=2 --data-parallel=naive", "dp=2 --zero=1", "dp=2 --zero=3", "dp=2 --zero=3 --microbatches=2", "1 --microbatches=4", "tp=2", "dp=2,tp=2 --microbatches=2",
         "row=2,col=2 --tensor-parallel=2d", "tp=2 --tensor-parallel=free", "1 --recompute=full", "pp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=zb-h1",
         "pp=2,dp=2 --microbatches=2", "pp=2,tp=2 --microbatches=2 --pipeline=gpipe", "1 --precision=bf16", "dp=2 --zero=3 --precision=bf16", "cuda:1",
         "cuda:dp=2 --zero=3 --microbatches=2", "cuda:pp=2 --microbatches=2"]
QUICK = ["dp=2 --zero=3 --microbatches=2", "tp=2", "pp=2 --microbatches=2", "cuda:dp=2 --microbatches=2"]
STEPS = ["--lr", 0.01, "--weight-decay", 0.1, "--clip", 0.5, "--seed", 3]
DATA = ["--data", "image=image-*.npy,label=label.npy,value=value-0.npy,value-1.npy"]


class Model:
    """Writes the program op by op."""

    def __init__(self):
        self.lines, self.count = [], 0

    def op(self, text, *operands, to, at=""):
        """One op whose result has the dims `to`; operands are (name, dims)."""
        self.count += 1
        types = ", ".join(self.type(dims) for _, dims in operands)
        names = ", ".join(name for name, _ in operands)
        self.lines.append(f"  %{self.count} = {text.replace('@', names)} : ({types}) -> {self.type(to)}" + (f' loc("{at}")' if at else ""))
        return f"%{self.count}", to

    @staticmethod
    def type(dims, element="f32"):
        return f"tensor<{''.join(f'{size}x' for _, size in dims)}{element}>"

    def leaf(self, kind, name, dims, element="f32", more=""):
        self.count += 1
        names = ", ".join(f'"{dim}"' for dim, _ in dims)
        sizes = ", ".join(str(size) for _, size in dims)
        source = f' init <normal, 3.0e-01> source <"{name}", shape = [{sizes}], start = [{", ".join("0" * len(dims))}], size = [{sizes}]>' if kind == "parameter" else ""
        self.lines.append(f'  %{self.count} = pc.{kind} "{name}"{more} dims [{names}]{source} : {self.type(dims, element)}')
        return f"%{self.count}", dims

    def text(self):
        b, s, c, e, f, t, v = [("batch", B), ("tokens", S), ("pixels", C), ("embed", E), ("ffn", F), ("mixed", T), ("vocab", V)]
        image, value = self.leaf("input data", "image", [b, s, c]), self.leaf("input data", "value", [b])
        label = self.leaf("input data", "label", [b], "i32", f" below {V}")
        weight = lambda name, *dims, more="": self.leaf("parameter", name, list(dims), more=more)
        x = self.op('pc.einsum "b s c, c e -> b s e" @', image, weight("patch", c, e), to=[b, s, e], at="patch")
        x = self.add(x, weight("positions", s, e, more=" frozen"), "s e -> b s e")
        for i in range(2):
            name = f"blocks.{i}"
            y = self.norm(x, weight(f"{name}.norm1", e), f"{name}.norm1")
            y = self.op('pc.einsum "b s e, s t -> b t e" @', y, weight(f"{name}.mix.up", s, t), to=[b, t, e], at=f"{name}.mix")
            y = self.op("pc.activation gelu_tanh @", y, to=[b, t, e], at=f"{name}.mix")
            y = self.op('pc.einsum "b t e, t s -> b s e" @', y, weight(f"{name}.mix.down", t, s), to=[b, s, e], at=f"{name}.mix")
            x = self.op("pc.add @", x, y, to=[b, s, e], at=f"{name}.mix")
            y = self.norm(x, weight(f"{name}.norm2", e), f"{name}.norm2")
            y = self.op('pc.einsum "b s e, e f -> b s f" @', y, weight(f"{name}.mlp.up", e, f), to=[b, s, f], at=f"{name}.mlp")
            y = self.op("pc.activation gelu_tanh @", y, to=[b, s, f], at=f"{name}.mlp")
            y = self.op('pc.einsum "b s f, f e -> b s e" @', y, weight(f"{name}.mlp.down", f, e), to=[b, s, e], at=f"{name}.mlp")
            x = self.op("pc.add @", x, y, to=[b, s, e], at=f"{name}.mlp")
        x = self.op('pc.einsum "b s e -> b e" @', x, to=[b, e])
        logits = self.op('pc.einsum "b e, e v -> b v" @', x, weight("head", e, v), to=[b, v])
        self.lines.append(f'  pc.output logits "logits" {logits[0]} : {self.type(logits[1])}')
        self.count += 1
        self.lines.append(f"  %{self.count} = pc.cross_entropy {logits[0]}, {label[0]} : ({self.type([b, v])}, {self.type([b], 'i32')}) -> {self.type([b])}")
        nll = (f"%{self.count}", [b])
        off = self.op("pc.sub @", self.op('pc.einsum "b e, e -> b" @', x, weight("value", e), to=[b]), value, to=[b])
        square = self.op('pc.einsum "b, b -> b" @', off, off, to=[b])
        sum_of = self.op('pc.einsum "b ->" @', self.op("pc.add @", nll, square, to=[b]), to=[])
        loss = self.op(f"pc.scale @ by {1 / B:e}", sum_of, to=[])
        body = "\n".join(self.lines)
        return f'pc.program "mixer" batch {B} sequence 1 vocabulary {V} config "{{}}"\nfunc.func @model() {{\n{body}\n  pc.output loss "loss" {loss[0]} : tensor<f32>\n  return\n}}\n'

    def add(self, x, table, spec):
        return self.op("pc.add @", x, self.op(f'pc.einsum "{spec}" @', table, to=x[1], at="patch"), to=x[1], at="patch")

    def norm(self, x, gamma, at):
        self.count += 1
        rows = self.type(x[1][:-1])
        self.lines.append(f'  %{self.count}, %r{self.count} = pc.rms_norm {x[0]}, {gamma[0]} eps 1.0e-05 : ({self.type(x[1])}, {self.type(gamma[1])}) -> ({self.type(x[1])}, {rows}) loc("{at}")')
        return f"%{self.count}", x[1]


def npy(dtype, shape, numbers, order="False", version=1):
    code = {"<f4": "f", "<i4": "i", "<i8": "q", "<u2": "H", "|u1": "B", "<f8": "d"}[dtype]
    header = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': ({''.join(f'{size}, ' for size in shape)}), }}".ljust(127 - 9) + "\n"
    length = struct.pack("<H", len(header)) if version == 1 else struct.pack("<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + struct.pack(f"<{len(numbers)}{code}", *numbers)


class Inputs(Case):
    def write(self):
        draw = random.Random(5)
        half = lambda: struct.unpack("<f", struct.pack("<f", draw.gauss(0, 1)))[0]
        self.images = [[[half() for _ in range(C)] for _ in range(S)] for _ in range(N)]
        self.labels = [draw.randrange(V) for _ in range(N)]
        self.values = [half() for _ in range(N)]
        flat = lambda rows: [x for image in rows for row in image for x in row]
        for i, (first, last) in enumerate([(0, 20), (20, 21), (21, N)]):
            (self.work / f"image-{i}.npy").write_bytes(npy("<f4", [last - first, S, C], flat(self.images[first:last]), version=1 + i % 2))
        (self.work / "label.npy").write_bytes(npy("<i8", [N], self.labels))
        for i, (first, last) in enumerate([(0, 30), (30, N)]):
            (self.work / f"value-{i}.npy").write_bytes(npy("<f4", [last - first], self.values[first:last]))
            rows = last - first
            (self.work / f"shard-{i}.safetensors").write_bytes(self.shard(rows, flat(self.images[first:last]), self.labels[first:last], self.values[first:last]))
        (self.work / "model.mlir").write_text(Model().text())

    @staticmethod
    def shard(rows, images, labels, values):
        """Labels are bytes here."""
        data = struct.pack(f"<{len(images)}f", *images), bytes(labels), struct.pack(f"<{rows}f", *values)
        shapes, header, at = [("image", "F32", [rows, S, C]), ("label", "U8", [rows]), ("value", "F32", [rows])], {}, 0
        for (name, dtype, shape), part in zip(shapes, data):
            header[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(part)])
            at += len(part)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + b"".join(data)

    def loss(self, weights, samples):
        """In double precision."""
        w = {}
        for name in re.findall(r'pc.parameter "([^"]*)"', (self.work / "model.mlir").read_text()):
            w[name] = read(weights, name)
        dot = lambda a, b: sum(x * y for x, y in zip(a, b))
        column = lambda name, j, width: w[name][j::width]
        gelu = lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        norm = lambda row, gamma: [x * g / math.sqrt(dot(row, row) / E + 1e-5) for x, g in zip(row, gamma)]
        total = 0
        for sample in samples:
            x = [[dot(row, column("patch", e, E)) + w["positions"][s * E + e] for e in range(E)] for s, row in enumerate(self.images[sample])]
            for i in range(2):
                y = [norm(row, w[f"blocks.{i}.norm1"]) for row in x]
                up = [[gelu(sum(y[s][e] * w[f"blocks.{i}.mix.up"][s * T + t] for s in range(S))) for e in range(E)] for t in range(T)]
                x = [[x[s][e] + sum(up[t][e] * w[f"blocks.{i}.mix.down"][t * S + s] for t in range(T)) for e in range(E)] for s in range(S)]
                y = [norm(row, w[f"blocks.{i}.norm2"]) for row in x]
                up = [[gelu(dot(row, column(f"blocks.{i}.mlp.up", f, F))) for f in range(F)] for row in y]
                x = [[x[s][e] + dot(up[s], column(f"blocks.{i}.mlp.down", e, E)) for e in range(E)] for s in range(S)]
            pooled = [sum(x[s][e] for s in range(S)) for e in range(E)]
            logits = [dot(pooled, column("head", v, V)) for v in range(V)]
            top = max(logits)
            total += math.log(sum(math.exp(logit - top) for logit in logits)) + top - logits[self.labels[sample]]
            total += (dot(pooled, w["value"]) - self.values[sample]) ** 2
        return total / len(samples)

    def compiles(self, plan, out, *flags):
        target, _, plan = plan.rpartition("cuda:")
        mesh, *own = plan.split()
        own += ["--target=cuda", "--arch=sm_90a", "--stand-in"] if "cuda:" in target + plan or out == "cuda" else []
        self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *flags, "-o", f"./{out}", f"--report={out}.json")
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--"]

    def losses(self, name):
        return [json.loads(line)["loss"] for line in open(self.work / name)]

    def equal(self, name, found, wanted):
        self.check(name, abs(found - wanted) < 2e-6 * abs(wanted), f"{found}, not {wanted}", f"{found:.6f}")

    def alone(self):
        run = self.compiles("1", "one")
        self.needs(*run, *DATA, *STEPS, "--steps", 7, "--save", "one.save", "--metrics", "one.jsonl", "--dump-grads", "one.grads")
        self.needs(*run, *DATA, *STEPS, "--lr", 0, "--weight-decay", 0, "--steps", 7, "--save", "start", "--metrics", "same.jsonl", "--dump-logits", "one.logits")
        weights = self.work / "start/model.safetensors"
        for step, loss in enumerate(self.losses("same.jsonl")):
            self.equal(f"the loss of step {step}, computed here", loss, self.loss(weights, [(step * B + i) % N for i in range(B)]))
        self.needs(*run, "--data", "shard-*.safetensors", *STEPS, "--steps", 7, "--save", "shards.save")
        self.same("safetensors: the same parameters", "one.save/model.safetensors", "shards.save/model.safetensors")
        # Each sample is read once per epoch, in a different order each time. An interrupted run continues with the next
        # sample.
        shuffled = [*DATA, *STEPS, "--shuffle", "--validation", "1/4", "--eval-every", 3]
        self.needs(*run, *shuffled, "--steps", 7, "--save", "whole", "--metrics", "whole.jsonl")
        self.needs(*run, *shuffled, "--steps", 4, "--lr-steps", 7, "--save", "part")
        self.needs(*run, *shuffled, "--steps", 7, "--load", "part", "--save", "part")
        for file in ("model.safetensors", "training_state.safetensors"):
            self.same(f"a run with a break: {file}", f"whole/{file}", f"part/{file}")
        found = [json.loads(line) for line in open(self.work / "whole.jsonl")]
        held_out = next(line for line in found if "validation_loss" in line)
        self.check("samples held out", held_out["validation_samples"] == N // 4, held_out)
        # An evaluation reads every sample once, also if the batch size does not divide their number.
        self.needs("pc-compile", "model.mlir", "--mode=eval", "-o", "eval")
        said = self.needs("./eval", *DATA, "--init", "start").out
        self.equal("an evaluation", float(re.search(rf"mean loss of {N} targets of {N} samples: (\S+)", said)[1]), self.loss(weights, range(N)))
        self.holds("--info", "./one", "--info", words=r"input +image: rows of \[4,6\], f32")

    def plan(self, plan):
        run, half = self.compiles(plan, "other" if "cuda:" not in plan else "cuda"), "bf16" in plan
        self.environment |= STAND_IN if "cuda:" in plan else {}
        self.needs(*run, *DATA, *STEPS, "--steps", 7, "--save", "other.save", "--metrics", "other.jsonl", "--dump-grads", "other.grads", "--summary", "other.summary", "--check-replicas", 3)
        self.compare(f"{plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 3e-2 if half else 1e-5)
        self.compare(f"{plan}: gradients", "tensors", "one.grads", "other.grads", "--tolerance", 6e-2 if half else 1e-5)
        if not half:
            self.compare(f"{plan}: parameters", "tensors", "one.save/model.safetensors", "other.save/model.safetensors", "--tolerance", 1e-4)
        self.compare(f"{plan}: report and summary", "reports", "cuda.json" if "cuda:" in plan else "other.json", "other.summary")
        if "cuda:" not in plan and not half:
            self.needs(*run, *DATA, *STEPS, "--steps", 4, "--lr-steps", 7, "--save", "part.save")
            self.needs(*run, *DATA, *STEPS, "--steps", 7, "--load", "part.save", "--save", "part.save")
            self.same(f"{plan}: a run with a break", "other.save/model.safetensors", "part.save/model.safetensors")

    def refused(self):
        run = self.compiles("1", "one")
        image = npy("<f4", [N, S, C], [0.0] * (N * S * C))
        label, value = npy("<i4", [N], [1] * N), npy("<f4", [N], [0.0] * N)
        many = {"image": image, "label": label, "value": value}

        def case(name, code, words, data=None, **files):
            for own, content in (many | files).items():
                (self.work / f"{own}.npy").write_bytes(content)
            self.holds(name, *run, "--data", data or "image=image.npy,label=label.npy,value=value.npy", "--steps", 1, code=code, words=words)

        case("good files", 0, "")
        case("rows of another shape", 9, r"image.npy: 'image' has the shape \[44, 6, 4\], and the program reads rows of \[4, 6\]", image=npy("<f4", [N, C, S], [0.0] * (N * S * C)))
        case("one dim less", 9, r"'image' has the shape \[44\]", image=value)
        case("wide floats", 9, r"'value' has elements of '<f8', and the program reads f32; save it after .astype\('<f4'\)", value=npy("<f8", [N], [0.0] * N))
        case("floats as indices", 9, r"'label' has elements of '<f4', and the program reads integers", label=value)
        case("integers as numbers", 9, r"'value' has elements of '<i4', and the program reads f32", value=label)
        case("other numbers of rows", 9, r"'image' has 44 rows but 'label' has 43; a sample takes one row of every input", label=npy("<i4", [N - 1], [1] * (N - 1)))
        case("an index too large", 9, r"label.npy: 'label' has 10 in row 3, and the program reads numbers from 0 to 9", label=npy("<u2", [N], [1, 1, 1, 10] + [1] * (N - 4)))
        case("a negative index", 9, r"'label' has -100 in row 0, and", label=npy("<i8", [N], [-100] * N))
        case("an index beyond 32 bits", 9, r"'label' has 4294967296 in row 0, and", label=npy("<i8", [N], [1 << 32] * N))
        case("no rows", 9, r"has no rows of the input 'value'", value=npy("<f4", [0], []))
        case("a file cut off", 9, r"image.npy: the header says 1056 elements of 4 bytes, but the file has 4220 bytes of them", image=image[:-4])
        case("Fortran's order", 9, r"Fortran order; save numpy.ascontiguousarray of it", image=npy("<f4", [N, S, C], [0.0] * (N * S * C), "True"))
        case("no array", 9, r"label.npy: .*safetensors", label=b"\x93NUMPX" + label[6:])
        case("a missing input", 9, r"has no rows of the input 'value'; give them as value=FILE \(inputs: image, label, value\)", "image=image.npy,label=label.npy")
        case("an unknown input", 2, r"this program has no input 'weight'; it has image, label, value", "weight=image.npy")
        case("an array without a name", 2, r"an array needs the name of its input in front: NAME=image.npy", "image.npy")
        case("a missing file", 9, r"none.npy", "image=none.npy")
        case("a pattern that fits none", 9, r"--data none-\*.npy: no file matches the pattern", "image=none-*.npy")
        self.holds("--targets", *run, *DATA, "--targets", "label.npy", code=2, words="--targets needs a program that reads tokens")
        (self.work / "few.safetensors").write_bytes(safetensors({"image": ([1, S, C], [0.0] * (S * C))}))
        self.holds("safetensors without an input", *run, "--data", "few.safetensors", code=9, words="few.safetensors: has no tensor 'label'; there is 'image'")
        self.holds("few samples", *run, "--data", "shard-1.safetensors", "--steps", 1, words="") if N - 30 >= B else None
        self.holds("ring attention", "pc-compile", "model.mlir", "--mesh", "cp=2", "--context-parallel=ring", "-o", "ring", code=4, words="")

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        self.write()
        what = sys.argv[1]
        if what == "refused":
            return self.refused()
        self.alone()
        for plan in {"quick": QUICK, "all": PLANS}.get(what, sys.argv[1:]):
            self.plan(plan)


case = Inputs("inputs " + " ".join(sys.argv[1:]))
case.run(case.body)
