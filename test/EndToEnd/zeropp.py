#!/usr/bin/env python3
"""usage: test/EndToEnd/zeropp.py quick|all|refused|METHOD [cuda]

Less communication of ZeRO (ZeRO++). An outer axis of ZeRO-3 (--zero-outer) gives the bits of the plan that gathers over both axes at each use, and sends the bytes of one
gather per step over it. Matrices in 8 bits (--weight-precision=int8) are those that Python rounds: a program without codes that starts from them computes the same
gradients. Plans that add the same addends have the same bits, and their gathers send the bytes of codes and scales. Steps that round in another way are refused.
"cuda": matrices in 8 bits on the stand-in of a GPU."""
import hashlib
import json
import math
import re
import sys
from array import array

from cases import mesh_flags, ranks_of
from states import CONFIG, MATRICES, SIDE, States, single

FREE = ["--clip", "1e9"]  # norms of gradients are added in another order, so they must not change updates
NODES = "node=2,gpu=2"
HPZ = f"{NODES} --zero=3:gpu --zero-outer=node"
ELEMENTS = 64 * 192 + 64 * 64 + 2 * 64 * 256  # of the matrices of a layer


class ZeroPlus(States):
    def program(self, out, plan="1", *flags):
        mesh, *own = plan.split()
        self.said = self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *own, *flags, *self.target, f"--report={out}.json", "-o", out).said
        return [*self.runs(out, mesh), *(["--scratch", "."] if "offload" in plan else [])]

    def runs(self, out, mesh):
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *"--lr 3e-3 --weight-decay 0.1 --clip 1 --seed 1 --data tokens.bin".split()]

    def sums(self, folder):
        """The tensors of a checkpoint, without metadata, which names the plan."""
        def sum_of(content):
            end = 8 + int.from_bytes(content[:8], "little")
            header = json.loads(content[8:end])
            return hashlib.sha256(b"".join(name.encode() + content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
                                           for name, entry in sorted(header.items()) if name != "__metadata__")).hexdigest()
        return [sum_of((self.work / folder / file).read_bytes()) for file in ("model.safetensors", "training_state.safetensors")]

    def traffic(self, summary, move, axis):
        """Payload bytes of rank 0 per step in moves of a kind over an axis."""
        rows = json.loads((self.work / summary).read_text())["per_rank"][0]["traffic"]
        return sum(row["payload_bytes"] for row in rows if row.get("axis") == axis and row["move"] == move)

    def outer(self, plans):
        """With and without --zero-outer. The plan without it is in a file, which differs only in how often parameters are gathered over the outer axis."""
        for flags in plans:
            hpz = self.program("outer", HPZ, *flags.split(), "--emit-plan=outer.plan")
            plan = (self.work / "outer.plan").read_text()
            self.check(f"hpZ {flags}: the plan", '"pc-zero{axis=gpu stage=3}", "pc-zero{axis=node stage=3 keep=*}"' in plan, plan)
            (self.work / "each.plan").write_text(plan.replace(" keep=*", ""))
            self.needs("pc-compile", "model.mlir", "--plan=each.plan", *(flag for flag in flags.split() if "weight" in flag), "-o", "each", "--report=each.json")
            each = self.runs("each", NODES)
            for name, command in (("outer", hpz), ("each", each)):
                self.needs(*command, *FREE, "--steps", 5, "--save", f"{name}-after", "--summary", f"{name}.summary", "--check-replicas", 5)
                self.compare(f"hpZ {flags}: report and summary of {name}", "reports", f"{name}.json", f"{name}.summary")
            self.check(f"hpZ {flags}: the bits of gathers at each use", self.sums("outer-after") == self.sums("each-after"))
            sent = {name: self.traffic(f"{name}.summary", "all_gather", "node") for name in ("outer", "each")}
            self.check(f"hpZ {flags}: fewer bytes over the outer axis", 0 < sent["outer"] < 0.7 * sent["each"], sent, sent)
            self.needs(*hpz, *FREE, "--steps", 2, "--save", "part")
            self.needs(*hpz, *FREE, "--load", "part", "--steps", 5, "--save", "resumed")
            self.check(f"hpZ {flags}: a run that continues has the same bits", self.sums("resumed") == self.sums("outer-after"))


    def content(self, path):
        """Header and data of a file of tensors."""
        content = bytearray((self.work / path).read_bytes())
        end = 8 + int.from_bytes(content[:8], "little")
        return json.loads(content[8:end]), content, end

    def rounded(self, shape, values):
        """The numbers that codes of a matrix stand for, with a scale for each square."""
        rows, columns = shape
        out = array("f", values)
        for top in range(0, rows, SIDE):
            for left in range(0, columns, SIDE):
                block = [(top + r) * columns + left + c for r in range(SIDE) for c in range(SIDE)]
                scale = single(max(abs(values[i]) for i in block) / 127)
                for i in block if scale else ():
                    x = single(values[i] / scale)
                    out[i] = math.copysign(math.floor(abs(x) + 0.5), x) * scale
        return out

    def weights(self):
        """A program without codes that starts from rounded matrices computes the gradients of one with codes."""
        plain, coded = self.program("plain"), self.program("coded", "1", "--weight-precision=int8")
        count = 8 if self.target else 12  # queries, keys and values are one parameter of a device
        self.check("a remark says that matrices are rounded", f"{count} matrices are read in 8 bits; every step rounds them" in self.said, self.said)
        self.needs(*[word if word != "3e-3" else "0" for word in plain], "--steps", 1, "--save", "first")
        header, content, end = self.content("first/model.safetensors")
        for name in MATRICES:
            begin, stop = (end + at for at in header[name]["data_offsets"])
            content[begin:stop] = self.rounded(header[name]["shape"], array("f", bytes(content[begin:stop]))).tobytes()
        (self.work / "rounded").mkdir()
        (self.work / "rounded/config.json").write_bytes((self.work / "first/config.json").read_bytes())
        (self.work / "rounded/model.safetensors").write_bytes(content)
        for name, command, start in (("plain", plain, "rounded/model.safetensors"), ("coded", coded, "first/model.safetensors")):
            self.needs(*command, "--init", start, "--steps", 1, "--dump-grads", f"{name}.grads", "--metrics", f"{name}.jsonl")
        self.compare("gradients are those of rounded matrices", "tensors", "plain.grads", "coded.grads", "--tolerance", 1e-6)
        self.compare("and the loss", "losses", "plain.jsonl", "coded.jsonl", "--tolerance", 1e-6)

    def same_bits(self, ranks=(2, 4, 8)):
        """Data parallelism with and without ZeRO adds the same gradients in the same order, and rounds the same blocks."""
        for n in ranks:
            self.needs(*self.program("whole", f"dp={n}", "--weight-precision=int8"), *FREE, "--steps", 5, "--save", "whole-after")
            for flags in ("--zero=1", "--zero=2", "--zero=3", "--zero=3 --microbatches=1 --prefetch=0"):
                command = self.program("split", f"dp={n} {flags}", "--weight-precision=int8")
                self.needs(*command, *FREE, "--steps", 5, "--save", "split-after", "--summary", "split.summary", "--check-replicas", 5)
                self.check(f"qwZ dp={n} {flags}: the bits of whole matrices", self.sums("split-after") == self.sums("whole-after"))
                self.compare(f"qwZ dp={n} {flags}: report and summary", "reports", "split.json", "split.summary")

    def bytes(self):
        """ZeRO-3 on two ranks gathers, per step, each matrix for the forward and the backward pass: a byte per element and a scale per 256."""
        counted = {}
        for name, flags in (("coded", ["--weight-precision=int8"]), ("plain", [])):
            self.needs(*self.program(name, "dp=2 --zero=3", *flags), "--steps", 1, "--summary", f"{name}.summary")
            counted[name] = self.traffic(f"{name}.summary", "all_gather", "dp")
        fewer = 2 * 2 * ELEMENTS * (4 - 1 - 4 / 256)  # layers, passes
        self.check("bytes of gathers", counted["plain"] - counted["coded"] == fewer, counted, f"{fewer:.0f} fewer of {counted['plain']}")

    def plans(self, plans):
        """Other plans lose as one rank does, and continue with the same bits."""
        coded = ["--weight-precision=int8"]
        self.needs(*self.program("one", "1", *coded), "--steps", 20, "--metrics", "one.jsonl")
        for plan in plans:
            command = self.program("other", plan, *coded)
            self.needs(*command, "--steps", 20, "--save", "other-after", "--metrics", "other.jsonl", "--summary", "other.summary", "--check-replicas", 5)
            self.compare(f"qwZ {plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 3e-2 if "bf16" in plan else 2e-3)
            self.compare(f"qwZ {plan}: report and summary", "reports", "other.json", "other.summary")
            self.needs(*command, "--steps", 9, "--save", "part")
            self.needs(*command, "--load", "part", "--steps", 20, "--save", "resumed")
            self.check(f"qwZ {plan}: a run that continues has the same bits", self.sums("resumed") == self.sums("other-after"))

    def loss(self):
        losses = {}
        for name, plan, flags in (("plain", "dp=2 --zero=3", []), ("all", "dp=2 --zero=3", ["--weight-precision=int8", "--states=8bit"])):
            self.needs(*self.program(name, plan, *flags), "--steps", 100, "--metrics", "m.jsonl", seconds=600)
            lines = [json.loads(line) for line in (self.work / "m.jsonl").read_text().splitlines()]
            last = [line["loss"] for line in lines if "loss" in line][-10:]
            losses[name] = sum(last) / len(last)
        self.check("the loss after 100 steps", abs(losses["all"] / losses["plain"] - 1) < 0.01, losses, losses)

    def proof(self):
        """In double precision the plan computes what the step does; steps that round in another way are refused."""
        flags = ["--mesh", "dp=2", "--zero=3", "--weight-precision=int8"]
        self.needs("pc-compile", "model.mlir", "--weight-precision=int8", "--to=step", "-o", "step.mlir")
        for to in ("placed", "local", "planned"):
            self.needs("pc-compile", "model.mlir", *flags, f"--to={to}", "-o", f"{to}.mlir")
            self.holds(f"the step and phase {to}", "pc-equal", "step.mlir", f"{to}.mlir", words="(?m)^equal$")
        text = (self.work / "local.mlir").read_text()
        decode = r"(pc.decode linear %\S+), (%\S+)( : \(tensor<64x256xi8>, tensor<4x16xf32>\))"
        first, other = re.findall(decode, text)[0], re.findall(decode, text)[1]
        mutants = [("another code", text.replace("pc.decode linear", "pc.decode dynamic", 1)),
                   ("codes of another kind", text.replace("pc.encode linear", "pc.encode dynamic", 1)),
                   ("scales of another matrix", text.replace(f"{first[0]}, {first[1]}{first[2]}", f"{first[0]}, {other[1]}{first[2]}", 1))]
        for name, changed in mutants:
            (self.work / "mutant.mlir").write_text(changed)
            self.check(f"{name} is refused", changed != text and self.call("pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}").code != 0)

    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("unknown weights", *compile, "--weight-precision=int4", code=2, words="--weight-precision=int4 is not a way to read matrices")
        self.holds("no training", *compile, "--weight-precision=int8", "--mode=eval", code=2, words="--weight-precision is for training; leave out --mode=eval")
        self.holds("an outer axis without ZeRO-3", *compile, "--mesh", NODES, "--zero=1:gpu", "--zero-outer=node", code=2, words="--zero-outer needs --zero=3")
        self.holds("the same axis", *compile, "--mesh", NODES, "--zero=3:gpu", "--zero-outer=gpu", code=2, words="is the axis of --zero already")
        self.holds("no such axis", *compile, "--mesh", "gpu=2", "--zero=3:gpu", "--zero-outer=node", code=2, words="--zero-outer needs the mesh axis 'node'; add node=N")
        (self.work / "config.json").write_text(json.dumps(CONFIG | dict(n_embd=24, n_inner=24)))
        self.model(self.work, 8, 32)
        self.holds("a small model", *compile, "--weight-precision=int8", code=4, words="so none would be rounded; leave out --weight-precision")


def main():
    which, *more = sys.argv[1:]
    case = ZeroPlus("zeropp/" + " ".join(sys.argv[1:]))
    if cuda := more[:1] == ["cuda"]:
        case.on_cuda()
        more = more[1:]

    def body():
        case.begin()
        quick = which == "quick"
        if which not in ("quick", "all"):
            return getattr(case, which)(*([more] if more else []))
        if cuda:
            case.weights()
            return case.plans(["dp=2 --zero=3 --precision=bf16"])
        case.outer(["--microbatches=2"] if quick else ["", "--microbatches=2", "--precision=bf16 --microbatches=2"])
        case.weights()
        case.bytes()
        case.same_bits([2] if quick else (2, 4, 8))
        case.loss()
        case.proof()
        case.plans(["tp=2"] if quick else ["tp=2", "dp=2,tp=2 --zero=3", "pp=2,dp=2 --zero=1 --microbatches=2", "dp=2 --zero=3 --precision=bf16", "1 --recompute=full",
                                           "dp=2 --zero=3 --microbatches=2", HPZ, "1 --offload=states,masters", "1 --pack-products"])

    case.run(body)


if __name__ == "__main__":
    main()
