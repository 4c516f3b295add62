#!/usr/bin/env python3
"""usage: test/EndToEnd/zeropp.py quick|all|refused|METHOD [cuda]

Less communication of ZeRO (ZeRO++). An outer axis of ZeRO-3 (--zero-outer) gives the bits of the plan that gathers over both axes at each use, and sends the bytes of one
gather per step over it. Matrices in 8 bits (--weight-precision=int8) are those that Python rounds: a program without codes that starts from them computes the same
gradients. Plans that add the same addends have the same bits, and their gathers send the bytes of codes and scales. Steps that round in another way are refused.

Gradients in 8 or 4 bits (--gradient-precision=int8) are the sums of the addends that Python rounds: a program of one device computes the addend of each rank from its
rows. No element is further from the exact sum than the bound, and some are nearly as far. Plans that add the same addends have the same bits.
"cuda": matrices and gradients in codes on the stand-in of a GPU."""
import json
import math
import re
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
        command = [*self.runs(out, mesh), *(["--scratch", "."] if "offload" in plan else [])]
        return self.build(out, command, *mesh_flags(mesh), *own, *flags, *self.target)

    def runs(self, out, mesh):
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *"--lr 3e-3 --weight-decay 0.1 --clip 1 --seed 1 --data tokens.bin".split()]

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
            self.check(f"hpZ {flags}: the bits of gathers at each use", self.checkpoint_sums("outer-after") == self.checkpoint_sums("each-after"))
            sent = {name: self.traffic(f"{name}.summary", "all_gather", "node") for name in ("outer", "each")}
            self.check(f"hpZ {flags}: fewer bytes over the outer axis", 0 < sent["outer"] < 0.7 * sent["each"], sent, sent)
            self.needs(*hpz, *FREE, "--steps", 2, "--save", "part")
            self.needs(*hpz, *FREE, "--load", "part", "--steps", 5, "--save", "resumed")
            self.check(f"hpZ {flags}: a run that continues has the same bits", self.checkpoint_sums("resumed") == self.checkpoint_sums("outer-after"))


    def content(self, path):
        """Header and data of a file of tensors."""
        content = bytearray((self.work / path).read_bytes())
        end = 8 + int.from_bytes(content[:8], "little")
        return json.loads(content[8:end]), content, end

    def rounded(self, shape, values, largest=127):
        """The numbers that codes of a matrix stand for, with a scale for each square."""
        out = array("f", values)
        for block in self.squares(shape):
            scale = single(max(abs(values[i]) for i in block) / largest)
            for i in block if scale else ():
                x = single(values[i] / scale)
                out[i] = math.copysign(math.floor(abs(x) + 0.5), x) * scale
        return out

    def squares(self, shape):
        """The elements of each block."""
        rows, columns = shape
        return [[(top + r) * columns + left + c for r in range(SIDE) for c in range(SIDE)] for top in range(0, rows, SIDE) for left in range(0, columns, SIDE)]

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
                self.check(f"qwZ dp={n} {flags}: the bits of whole matrices", self.checkpoint_sums("split-after") == self.checkpoint_sums("whole-after"))
                self.compare(f"qwZ dp={n} {flags}: report and summary", "reports", "split.json", "split.summary")

    def bytes(self):
        """ZeRO-3 on two ranks gathers, per step, each matrix for the forward and the backward pass: a byte per element and a scale per 256."""
        counted = {}
        for name, flags in (("coded", ["--weight-precision=int8"]), ("plain", [])):
            self.needs(*self.program(name, "dp=2 --zero=3", *flags), "--steps", 1, "--summary", f"{name}.summary")
            counted[name] = self.traffic(f"{name}.summary", "all_gather", "dp")
        fewer = 2 * 2 * ELEMENTS * (4 - 1 - 4 / 256)  # layers, passes
        self.check("bytes of gathers", counted["plain"] - counted["coded"] == fewer, counted, f"{fewer:.0f} fewer of {counted['plain']}")

    def plans(self, plans, coded=("--weight-precision=int8",)):
        """Other plans lose as one rank does, and continue with the same bits."""
        self.needs(*self.program("one", "1", *coded), "--steps", 20, "--metrics", "one.jsonl")
        for plan in plans:
            command = self.program("other", plan, *coded)
            self.needs(*command, "--steps", 20, "--save", "other-after", "--metrics", "other.jsonl", "--summary", "other.summary", "--check-replicas", 5)
            self.compare(f"{' '.join(coded)} {plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 3e-2 if "bf16" in plan else 2e-3)
            self.compare(f"{' '.join(coded)} {plan}: report and summary", "reports", "other.json", "other.summary")
            self.needs(*command, "--steps", 9, "--save", "part")
            self.needs(*command, "--load", "part", "--steps", 20, "--save", "resumed")
            self.check(f"{' '.join(coded)} {plan}: a run that continues has the same bits", self.checkpoint_sums("resumed") == self.checkpoint_sums("other-after"))

    def wide(self):
        """A model whose matrices have blocks for 8 ranks."""
        (self.work / "config.json").write_text(json.dumps(CONFIG | dict(n_embd=128, n_head=8)))
        self.model(self.work, 8, 32)

    def gradient_of(self, path):
        header, content, end = self.content(path)
        return {name: (entry["shape"], array("f", bytes(content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]])))
                for name, entry in header.items() if name != "__metadata__"}

    def gradients(self, ranks=(2, 4, 8), bits=(8, 4)):
        """The sums of gradients are those of addends that Python rounds."""
        self.environment["PCRT_THREADS"] = "1"  # the number of threads of a rank may change the bits of its products
        for n in map(int, ranks):
            self.model(self.work, 8 // n, 32, to=f"rows{n}.mlir")
            self.needs("pc-compile", f"rows{n}.mlir", *self.target, "-o", f"rows{n}.exe")
            addends = []
            tokens = (self.work / "tokens.bin").read_bytes()
            for rank in range(n):  # the rows of a rank are a batch of the small program; samples have 32 tokens of two bytes
                (self.work / "rows.bin").write_bytes(tokens[rank * 8 // n * 32 * 2:])
                command = ["rows.bin" if word == "tokens.bin" else word for word in self.runs(f"rows{n}.exe", "1")]
                if self.target and not rank:
                    self.check_accesses(command)
                self.needs(*command, "--steps", 1, "--dump-grads", f"rows{n}.{rank}")
                addends.append({name: (shape, array("f", (x / n for x in values))) for name, (shape, values) in self.gradient_of(f"rows{n}.{rank}").items()})
            self.needs(*self.program("plain", f"dp={n}"), "--steps", 1, "--dump-grads", "plain.grads")
            exact = self.gradient_of("plain.grads")
            off = max(abs(sum(addend[name][1][i] for addend in addends) - x) for name, (_, values) in exact.items() for i, x in enumerate(values))
            self.check(f"dp={n}: the addends of ranks are gradients of their rows", off < 1e-7, off)
            for b in bits:
                largest = 2 ** (int(b) - 1) - 1
                wanted = {}
                for name in MATRICES:
                    wanted[name] = array("f", bytes(4 * len(exact[name][1])))
                    for number, addend in enumerate(addends):
                        for i, x in enumerate(self.rounded(*addend[name], largest)):
                            wanted[name][i] = wanted[name][i] + x if number else x
                for flags in ["", "--zero=2"]:
                    self.needs(*self.program("coded", f"dp={n} {flags}", f"--gradient-precision=int{b}"), "--steps", 1, "--dump-grads", "coded.grads", "--check-replicas", 1)
                    coded = self.gradient_of("coded.grads")
                    what = f"qgZ dp={n} {flags} int{b}"
                    self.check(f"{what}: only matrices are rounded", all((name in MATRICES) == (values.tobytes() != coded[name][1].tobytes()) for name, (_, values) in exact.items()))
                    other = sum(x != y for name in MATRICES for x, y in zip(wanted[name], coded[name][1]))
                    self.check(f"{what}: sums are those of rounded addends, bit for bit", other == 0, f"{other} of {sum(map(len, wanted.values()))} elements differ")
                    share = []
                    for name in MATRICES:
                        for block in self.squares(exact[name][0]):
                            bound = sum(max(abs(addend[name][1][i]) for i in block) for addend in addends) / (2 * largest)
                            share += [abs(coded[name][1][i] - sum(addend[name][1][i] for addend in addends)) / bound for i in block]
                    self.check(f"{what}: no error is above the bound, and some are near it", 0.7 < max(share) <= 1 + 1e-5, f"largest error / bound = {max(share):.6f}")

    def same_sums(self, ranks=(2, 4, 8), bits=(8, 4)):
        """Plans that add the same addends have the same bits, reports have the bytes that runs count, and a run that continues has the bits of one that did not stop."""
        for n in map(int, ranks):
            for b in bits:
                whole = self.program("whole", f"dp={n}", f"--gradient-precision=int{b}")
                self.needs(*whole, *FREE, "--steps", 5, "--save", "whole-after", "--summary", "whole.summary", "--check-replicas", 5)
                self.compare(f"qgZ dp={n} int{b}: report and summary", "reports", "whole.json", "whole.summary")
                for flags in ("--zero=1", "--zero=2", "--zero=3", "--zero=3 --microbatches=1 --prefetch=0 --bucket-bytes=4096"):
                    command = self.program("split", f"dp={n} {flags}", f"--gradient-precision=int{b}")
                    self.needs(*command, *FREE, "--steps", 5, "--save", "split-after", "--summary", "split.summary", "--check-replicas", 5)
                    self.check(f"qgZ dp={n} int{b} {flags}: the bits of whole sums", self.checkpoint_sums("split-after") == self.checkpoint_sums("whole-after"))
                    self.compare(f"qgZ dp={n} int{b} {flags}: report and summary", "reports", "split.json", "split.summary")

    def code_bytes(self):
        """A matrix takes a byte per element, or half a byte, and 4 bytes per 256 elements."""
        elements = 2 * ELEMENTS  # layers
        for bits, bytes in ((8, 1 + 4 / 256), (4, 0.5 + 4 / 256)):
            for flags, move, n in (("--zero=2", "all_to_all", 4), ("", "all_gather", 2)):
                self.needs(*self.program("coded", f"dp={n} {flags}", f"--gradient-precision=int{bits}", "--verify-kernels"), "--steps", 1, "--summary", "coded.summary")
                codes = elements * bytes  # of one addend; a rank sends each other rank its block, or all of it
                sent = codes * (n - 1) / (n if move == "all_to_all" else 1)
                counted = self.traffic("coded.summary", move, "dp")
                self.check(f"qgZ dp={n} {flags} int{bits}: bytes of codes", counted == n * codes, counted, f"{codes:.0f} of {4 * elements}")
                lossy = json.loads((self.work / "coded.json").read_text())["per_rank"][0]["lossy"]
                said = [tuple(row[key] for key in ("what", "axis", "move", "bits", "count", "payload_bytes", "wire_bytes")) for row in lossy]
                self.check("the row 'lossy'", said == [("gradients", "dp", move, bits, 12, n * codes, sent)], said)
        self.check("a remark says that gradients are rounded", re.search("12 sums of gradients per step are sent in 4 bits, [0-9]+ bytes from each rank", self.said), self.said)

    def loss(self):
        losses = {}
        for name, plan, flags in (("plain", "dp=2 --zero=3", []), ("all", "dp=2 --zero=3", ["--weight-precision=int8", "--gradient-precision=int8", "--states=8bit"])):
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

    def proof_of_sums(self, plans=("--mesh dp=2 --zero=3", "--mesh dp=8", "--mesh dp=2 --zero=2 --microbatches=2")):
        """In exact arithmetic the plan computes what the step does. A phase that rounds other sums than the one before it is refused."""
        for flags in map(str.split, plans):
            step = [flag for flag in flags if "microbatches" in flag]
            self.needs("pc-compile", "model.mlir", *step, "--to=step", "-o", "step.mlir")
            for to in ("placed", "local", "planned"):
                self.needs("pc-compile", "model.mlir", *flags, "--gradient-precision=int4", f"--to={to}", "-o", f"{to}.mlir")
                self.holds(f"the step and phase {to} of {' '.join(flags)}", "pc-equal", "step.mlir", f"{to}.mlir", words="(?m)^equal$")
        placed, local = (self.work / "placed.mlir").read_text(), (self.work / "local.mlir").read_text()
        wire = next(re.finditer(r" wire <int4, \[[0-9, ]*\]>", placed)).group()
        encode = r"(pc.encode_addend )(%\S+)( <int4, \[16, 1, 1, 16\]> on \[\"dp\"\] : tensor<64x4x1x16xf32>)"
        one, other = [match[1] for match in re.findall(encode, local)[:2]]
        files = {"placed": placed, "local": local, "fewer": placed.replace(wire, "", 1), "other bits": placed.replace(wire, wire.replace("int4", "int8"), 1),
                 "another addend": re.sub(encode, lambda match: match[1] + (one if match[2] == other else match[2]) + match[3], local)}
        for name, text in files.items():
            (self.work / f"{name}.mlir").write_text(text)
        for name, before, why in (("local", "placed", None), ("fewer", "placed", "rounds the addends of 11 sums to codes, and phase 'before' those of 12"),
                                  ("local", "fewer", "rounds the addends of 12 sums to codes, and phase 'before' those of 11"), ("other bits", "placed", "a pass dropped, added or changed 'wire'"),
                                  ("another addend", "placed", "does not compute the same as the one-device program")):
            command = ["pc-opt", self.work / f"{name}.mlir", f"--pc-prove=reference={self.work / 'step.mlir'} before={self.work / before}.mlir", "-o", "none"]
            self.holds(f"{name} after {before} is {'refused' if why else 'proved'}", *command, code=3 if why else 0, **({"words": why} if why else {}))

    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("unknown weights", *compile, "--weight-precision=int4", code=2, words="--weight-precision=int4 is not a way to read matrices")
        self.holds("no training", *compile, "--weight-precision=int8", "--mode=eval", code=2, words="--weight-precision is for training; leave out --mode=eval")
        self.holds("unknown codes", *compile, "--gradient-precision=int2", code=2, words="--gradient-precision=int2 is not a precision .f32, bf16, int8, int4")
        self.holds("gradients without training", *compile, "--gradient-precision=int8", "--mode=eval", code=2, words="--gradient-precision=int8 is for training; leave out --mode=eval")
        self.holds("one rank", *compile, "--gradient-precision=int4", words="--gradient-precision=int4 changes nothing, because ranks add no gradients")
        self.holds("an outer axis without ZeRO-3", *compile, "--mesh", NODES, "--zero=1:gpu", "--zero-outer=node", code=2, words="--zero-outer needs --zero=3")
        self.holds("the same axis", *compile, "--mesh", NODES, "--zero=3:gpu", "--zero-outer=gpu", code=2, words="is the axis of --zero already")
        self.holds("no such axis", *compile, "--mesh", "gpu=2", "--zero=3:gpu", "--zero-outer=node", code=2, words="--zero-outer needs the mesh axis 'node'; add node=N")
        (self.work / "config.json").write_text(json.dumps(CONFIG | dict(n_embd=24, n_inner=24)))
        self.model(self.work, 8, 32)
        self.holds("a small model", *compile, "--weight-precision=int8", code=4, words="so none would be rounded; leave out --weight-precision")


def suite(case, quick, cuda):
    if cuda:
        case.weights()
        case.gradients([2])
        case.same_sums([2], [8] if quick else [8, 4])
        return case.plans(["dp=2 --zero=3 --precision=bf16"])
    case.outer(["--microbatches=2"] if quick else ["", "--microbatches=2", "--precision=bf16 --microbatches=2"])
    case.weights()
    case.bytes()
    case.same_bits([2] if quick else (2, 4, 8))
    case.gradients([2] if quick else (2, 4))
    case.same_sums(*([2], [8]) if quick else ((2, 4), (8, 4)))
    case.code_bytes()
    case.loss()
    case.proof()
    case.proof_of_sums(*([["--mesh dp=2 --zero=2 --microbatches=2"]] if quick else ()))
    case.plans(["tp=2"] if quick else ["tp=2", "dp=2,tp=2 --zero=3", "pp=2,dp=2 --zero=1 --microbatches=2", "dp=2 --zero=3 --precision=bf16", "1 --recompute=full",
                                       "dp=2 --zero=3 --microbatches=2", HPZ, "1 --offload=states,masters", "1 --pack-products"])
    sums = ["--gradient-precision=int8"]
    case.plans(["dp=2,tp=2 --zero=2"] if quick else ["dp=2,tp=2 --zero=3", "dp=2 --zero=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2", HPZ,
                "pp=2,dp=2 --zero=2 --microbatches=4", "dp=2 --zero=3 --precision=bf16", "dp=2 --offload=states", "dp=2,cp=2", "dp=2 --recompute=full", "dp=8"], sums)
    if not quick:
        case.wide()
        case.gradients([8])
        case.same_sums([8])


if __name__ == "__main__":
    ZeroPlus.main(suite)
