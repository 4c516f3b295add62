#!/usr/bin/env python3
"""usage: test/EndToEnd/float8_scales.py quick|all|refused|METHOD [cuda]

Training in fp8 with one scale per operand (--fp8-scaling=current|delayed), as float8.py tests scales per block. Scales and codes are those of a formula in torch. Histories
are the maxima of matrices in earlier checkpoints, and do not depend on the plan. Plans that add the same addends have the same bits. Checkpoints move between plans, and from
runs without histories. The proof refuses the maximum of a rank, a stale history and the history of another operand.
"cuda": on the stand-in of a GPU, whose losses are also compared with those of a CPU, and whose kernels are also read from their PTX."""
import json
import math
import random
import re
import struct
import subprocess

from cases import CHECKED, ROOT
from float8 import DEVICE, FP8, SIZES, Float8
from zeropp import FREE

CURRENT, DELAYED = [*FP8, "--fp8-scaling=current"], [*FP8, "--fp8-scaling=delayed"]
STEPS = 16  # of a history
SCALE = r"""
#include "pcrt/float8.h"
#include <stdio.h>
int main(void) {
  float x;
  while (fread(&x, 4, 1, stdin) == 1) {
    double scales[2] = {pcrt_float8_scale(pcrt_e4m3(), x), pcrt_float8_scale(pcrt_e5m2(), x)};
    double codes[2] = {pcrt_round_to_float8(pcrt_e4m3(), x / scales[0]), pcrt_round_to_float8(pcrt_e5m2(), x / scales[1])};
    fwrite(scales, 8, 2, stdout);
    fwrite(codes, 8, 2, stdout);
  }
}
"""


class Float8Scales(Float8):
    fp8 = CURRENT

    def histories(self, folder):
        """The histories in a checkpoint, by kind and tensor: the values of all parts of the tensor that have one."""
        content = (self.work / folder / "training_state.safetensors").read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        found = {}
        for name, entry in json.loads(content[8:end]).items():
            kind, _, tensor = name.partition(".")
            if kind.endswith("_history"):
                first, last = (end + offset for offset in entry["data_offsets"])
                values = struct.unpack(f"{(last - first) // 4}f", content[first:last])
                rows = [values[i : i + STEPS] for i in range(0, len(values), STEPS)]
                found[kind, tensor] = [row for row in rows if any(row)]
        return found

    def largest(self, folder):
        """The largest magnitudes of the matrices in a checkpoint. Those of q, k and v are separate parameters."""
        content = (self.work / folder / "model.safetensors").read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        found = {}
        for name, entry in json.loads(content[8:end]).items():
            if name == "__metadata__" or len(entry["shape"]) != 2 or "wte" in name or "wpe" in name:
                continue
            first, last = (end + offset for offset in entry["data_offsets"])
            values, columns = struct.unpack(f"{(last - first) // 4}f", content[first:last]), entry["shape"][1]
            width = columns // 3 if "c_attn" in name else columns
            found[name] = [max(abs(x) for r in range(0, len(values), columns) for x in values[r + c : r + c + width]) for c in range(0, columns, width)]
        return found

    def scales(self):
        """The smallest power of two with which the largest magnitude fits, and the code of this magnitude, against torch."""
        try:
            import torch
        except ImportError:
            return self.check("torch is missing, so scales are not compared", True)
        (self.work / "scale.c").write_text(SCALE)
        self.needs("/usr/bin/env", "cc", "-O1", "-I", ROOT / "runtime/include", self.work / "scale.c", "-o", self.work / "scale", "-lm")
        draw = random.Random(2)
        tried = [2.0**e * m for e in range(-60, 60) for m in (1, 1.5, 1.75, 1.7500001, 1.9999999)] + [2 ** draw.uniform(-60, 60) for _ in range(10000)]
        values = torch.tensor(tried, dtype=torch.float32)
        out = subprocess.run([self.work / "scale"], input=values.numpy().tobytes(), capture_output=True, check=True).stdout
        ours = torch.frombuffer(bytearray(out), dtype=torch.float64).view(-1, 4)
        for column, format in enumerate((torch.float8_e4m3fn, torch.float8_e5m2)):
            largest = torch.finfo(format).max
            wanted = torch.tensor([2.0 ** math.ceil(math.log2(x / largest)) if math.log2(x / largest) % 1 else x / largest for x in values.double().tolist()], dtype=torch.float64)
            self.check(f"{len(tried)} scales of {format}", torch.equal(ours[:, column], wanted))
            codes = (values / wanted).to(torch.float32).to(format).double()
            self.check(f"codes of the largest magnitudes in {format}", torch.equal(ours[:, 2 + column], codes) and codes.max() <= largest)

    def products(self):
        """An operand is encoded once. For the six matrices of a layer: four inputs, and six gradients."""
        for flags in CURRENT, DELAYED, [*CURRENT, "--fp8-gradients=e5m2"]:
            self.needs("pc-compile", "model.mlir", *flags, "--to=step", "-o", "step.mlir")
            text = (self.work / "step.mlir").read_text()
            counts = [len(re.findall(pattern, text)) for pattern in (r"pc.encode_scaled %\S+, %\S+ : \(tensor<\S+xf32>", r"pc.encode_scaled %\S+, %\S+ : \(tensor<\S+xbf16>",
                                                                      r"pc.encode_scaled .*xf8E5M2", r"pc.state \"fp8_\w+_history\"", r"pc.encode float8")]
            wanted = [12, 20, 12 * (len(flags) > 2), 36 * (flags == DELAYED), 0]
            self.check(f"codes with {' '.join(flags)}", counts == wanted, counts, counts)

    def history(self, plans):
        """After step n, entry i of a matrix's history is the largest magnitude of the matrix after step n - 1 - i."""
        for plan in ["1", *plans]:
            command = self.program("kept", plan, *DELAYED)
            for step in 1, 2, 3:
                self.needs(*command, *FREE, "--steps", step, "--save", f"kept-{step}")
            after = {step: self.histories(f"kept-{step}") for step in (1, 2, 3)}
            largest = {step: self.largest(f"kept-{step}") for step in (1, 2)}
            kinds = {kind for kind, _ in after[3]}
            self.check(f"{plan}: kinds of histories", kinds == {"fp8_matrix_history", "fp8_input_history", "fp8_gradient_history"}, kinds)
            matrices = {tensor: rows for (kind, tensor), rows in after[3].items() if kind == "fp8_matrix_history"}
            self.check(f"{plan}: the magnitudes of matrices", set(matrices) == set(largest[1]) and
                       all([row[0] for row in rows] == largest[2][tensor] and [row[1] for row in rows] == largest[1][tensor] for tensor, rows in matrices.items()),
                       {tensor: [row[:3] for row in rows] for tensor, rows in matrices.items()})
            self.check(f"{plan}: an entry per step", all(row[:step] == row[:step] and all(x > 0 for x in row[:step]) and not any(row[step:])
                                                         for step in (1, 2, 3) for rows in after[step].values() for row in rows))
            self.check(f"{plan}: older entries move on", all(new[1:] == old[:-1] for step in (2, 3) for key, rows in after[step].items() for new, old in zip(rows, after[step - 1][key])))
            if plan == "1":
                one = after[1]
            # The first gradients are rounded with scale 1, so most of them are near 0 and depend on the order of sums.
            wrong = {key: (after[1].get(key), rows) for key, rows in one.items() if key[0] != "fp8_gradient_history" and not all(
                abs(x[0] / y[0] - 1) < (1e-6 if key[0] == "fp8_matrix_history" else 0.05) for x, y in zip(after[1][key], rows))}
            self.check(f"{plan}: the first step has the maxima of one rank", not wrong and set(after[1]) == set(one), wrong)

    def codes(self):
        """Products of codes with one scale per operand: mutants of formats, scales and orders are refused, also in tables."""
        self.equal(["1", "dp=2 --zero=3"], ("scheduled", "planned"), DEVICE)
        self.needs("pc-compile", "model.mlir", *self.fp8, *DEVICE, "--to=scheduled", "-o", "scheduled.mlir")
        text = (self.work / "scheduled.mlir").read_text()
        self.holds("the program is proved", "pc-opt", "scheduled.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}", "-o", "/dev/null")
        products = re.findall(r"(?: *%\S+ = pc.decode float8 .*\n){2} *%\S+ = pc.einsum ", text)
        self.check("all products multiply codes", len(products) == text.count("pc.decode float8") / 2 == 24, (len(products), text.count("pc.decode float8")))
        # A fusion that encodes has the value and its scale; one that multiplies has the codes and scales of both operands.
        given = re.findall(r"= (%\S+) : tensor<f32> -> tensor<f32>\) {\n *%\S+ = pc.encode_scaled", text)
        read = re.search(r"= (%\S+) : tensor<f32> -> tensor<f32>, [^\n]*= (%\S+) : tensor<f32> -> tensor<f32>\) {\n *%\S+ = pc.decode float8", text)
        mutants = [("another format", text.replace("f8E4M3FN", "f8E5M2")),
                   ("the scale of another encoding", text.replace(f"= {given[1]} : tensor<f32> -> tensor<f32>) {{\n", f"= {given[0]} : tensor<f32> -> tensor<f32>) {{\n", 1)),
                   ("the scale of the other operand", text.replace(read[0], read[0].replace(f"= {read[1]} :", f"= {read[2]} :", 1), 1))]
        self.refuse(mutants, text)
        # Both orders of tokens of a square: 128 sequences of 4 tokens instead of 4 sequences of 128.
        turn = re.search(r'pc.einsum "x0 x1 x2 -> x2 x0 x1" \S+ : \(tensor<4x128x128xf8E4M3FN>\) -> tensor<128x4x128xf8E4M3FN>', text)
        (self.work / "mutant.mlir").write_text(text.replace(turn[0], turn[0].replace("x2 x0 x1", "x1 x0 x2"), 1))
        self.holds("codes in another order are refused", "pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}", code=3,
                   words="does not compute the same as the one-device program")
        self.tables()

    def microbatches(self):
        """The maximum over microbatches is that of one batch: forward values of a row do not depend on the microbatch."""
        for name, flags in (("whole", []), ("parts", ["--microbatches=2"])):
            self.needs("pc-compile", "model.mlir", *DELAYED, *flags, *self.target, "-o", name)
            self.needs(*self.runs(name, "1"), *FREE, "--steps", 1, "--save", f"{name}-after")
        whole, parts = self.histories("whole-after"), self.histories("parts-after")
        first = [key for key in whole if key[0] != "fp8_gradient_history" and ".0." in key[1]]
        self.check("maxima over microbatches", first and all(whole[key] == parts[key] for key in first), [(key, whole[key], parts[key]) for key in first])

    def moved(self, plans):
        """Checkpoints keep all bits of histories on other plans. A checkpoint without them starts with scale 1, and one with them continues without them."""
        self.needs(*self.program("bf16", "1", "--precision=bf16"), "--steps", 10, "--save", "bf16-after")
        self.needs(*self.program("one", "1", *DELAYED), "--load", "bf16-after", "--steps", 20, "--metrics", "late.jsonl", "--save", "late")
        self.needs(*self.program("bf16", "1", "--precision=bf16"), "--load", "bf16-after", "--steps", 20, "--metrics", "bf16.jsonl")
        self.check("a checkpoint without histories", abs(self.last("late.jsonl") / self.last("bf16.jsonl") - 1) < 2e-2)
        self.check("its histories begin", all(sum(map(bool, row)) == 10 for rows in self.histories("late").values() for row in rows))
        self.needs(*self.program("bf16", "1", "--precision=bf16"), "--load", "late", "--steps", 21)
        self.needs(*self.program("one", "1", *FP8), "--load", "late", "--steps", 21)
        one = self.program("one", "1", *DELAYED)
        for plan in plans:
            other = self.program("other", plan, *DELAYED)
            self.needs(*other, "--steps", 3, "--save", "there")
            self.needs(*one, "--load", "there", "--steps", 3, "--save", "here")
            self.needs(*other, "--load", "here", "--steps", 3, "--save", "back")
            sums = [self.checkpoint_sums(folder) for folder in ("there", "here", "back")]
            self.check(f"{plan}: histories move to one rank and back", sums[0] == sums[1] == sums[2], sums)

    def loss(self, steps=100):
        """The loss stays within 2 % of that in bf16. An empty history has scale 1, with which the first gradients are too small for E4M3."""
        variants = {"bf16": ["--precision=bf16"], "current": CURRENT, "delayed": DELAYED, "delayed-e5m2": [*DELAYED, "--fp8-gradients=e5m2"]}
        for name, flags in variants.items():
            self.needs(*self.program(name, "1", *flags), "--steps", steps, "--metrics", f"{name}.jsonl", seconds=600)
        mean = {name: self.mean(f"{name}.jsonl") for name in variants}
        for name in list(variants)[1:]:
            self.check(f"the loss after {steps} steps, {name}", abs(mean[name] / mean["bf16"] - 1) < 2e-2, mean, mean)

    def skipped(self):
        """A step without finite gradients keeps the histories: NaN does not become a finite code."""
        for flags in CURRENT, DELAYED:
            wild = [word if word != "1e-3" else "1e30" for word in self.program("one", "1", *flags)]
            done = self.call(*wild, "--lr-warmup", 0, "--steps", 8, "--save", "bad")
            found = re.search(r"error: .*?step (\d+)", done.said)
            if self.check(f"{flags[1]}: the run ends at a skipped step", done.code == 10 and found, done.why()):
                self.needs(*wild, "--lr-warmup", 0, "--steps", found[1], "--save", "good")
                self.check(f"{flags[1]}: a skipped step keeps histories", self.histories("good") == self.histories("bad"))

    def proof(self):
        """Steps with other scales are refused."""
        self.fp8 = CURRENT
        self.equal(["dp=2 --zero=3"], ("placed", "local", "planned"))
        text = (self.work / "local.mlir").read_text()
        reduced = re.search(r"( *)(%\S+) = pc.all_reduce max (%\S+) on.*\n", text)
        scales = re.findall(r"pc.encode_scaled %\S+, (%\S+) :", text)
        mutants = [("the maximum of a rank", text.replace(reduced[0], "").replace(reduced[2] + " ", reduced[3] + " ").replace(reduced[2] + ",", reduced[3] + ",")),
                   ("the scale of another operand", re.sub(rf"(pc.encode_scaled %\S+, ){scales[1]} :", rf"\g<1>{scales[0]} :", text, count=1)),
                   ("the scale of another format", text.replace("pc.float8_scale f8E4M3FN", "pc.float8_scale f8E5M2", 1))]
        self.refuse(mutants, text)
        self.fp8 = DELAYED
        self.equal(["dp=2 --zero=1"], ("placed", "local", "planned"))
        text = (self.work / "local.mlir").read_text()
        states = re.findall(r"(%\S+) = pc.state \"fp8_matrix_history\"", text)
        update = re.search(r"pc.update \"fp8_matrix_history\" of \S+ (%\S+) :", text)
        shifted = re.search(r"(pc.columns %\S+ from) -1 :", text)
        mutants = [("a stale history", text.replace(f" {update[1]} :", f" {states[0]} :", 1)),
                   ("a history that does not move", text.replace(shifted[0], shifted[1] + " 0 :", 1)),
                   ("the history of another matrix", re.sub(rf"(pc.reduce_max \"h ->\" ){states[1]} ", rf"\g<1>{states[0]} ", text, count=1)),
                   ("the maximum of a rank", re.sub(r"%(\S+) = pc.all_reduce max (%\S+) on(.*) : \(tensor<f32>\) -> tensor<f32>", r"%\1 = pc.copy \2 : (tensor<f32>) -> tensor<f32>", text, count=1))]
        self.refuse(mutants, text)

    def refuse(self, mutants, text):
        for name, changed in mutants:
            (self.work / "mutant.mlir").write_text(changed)
            done = self.call("pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}")
            self.check(f"{name} is refused", changed != text and done.code and "does not compute the same as the one-device program" in done.said, done.why())

    def narrow(self, quick=False):
        """Dims need not be multiples of 128. A GPU multiplies codes if they are multiples of 16."""
        for width in 80, 72:
            self.begin(SIZES | dict(n_embd=width, n_inner=208, n_head=1, n_positions=80))
            for flags in CURRENT, DELAYED:
                command = self.program("narrow", "1", *flags)
                self.needs(*command, "--steps", 3, "--metrics", "narrow.jsonl")
                if not self.target:
                    continue
                self.needs("pc-compile", "model.mlir", *flags, "-o", "host")
                self.needs(*self.runs("host", "1"), "--steps", 3, "--metrics", "host.jsonl")
                self.compare(f"{width}, {flags[1]}: losses of both targets", "losses", "host.jsonl", "narrow.jsonl", "--tolerance", 5e-3)
                operands = self.operands("narrow.json")
                self.check(f"{width}, {flags[1]}: products that decode", (operands["decoded"] == 0) == (width % 16 == 0), operands, operands)
                self.needs("pc-compile", "model.mlir", *flags, *DEVICE, "--stand-in", "--check-kernels", "-o", "check")
                done = self.needs("./check", "--check-kernels", **CHECKED)
                self.check(f"{width}, {flags[1]}: kernels", '"ok":false' not in done.said, done.why(), f"{done.said.count('true')} cases")
            if self.target and width % 16 == 0 and not quick:
                # With ZeRO-3, codes of matrices come from other ranks, and are transposed where they are read.
                self.fp8 = CURRENT
                self.same_bits(quick=True)
        self.check("a narrow model", True)

    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("unknown scales", *compile, *FP8, "--fp8-scaling=tensor", code=2, words=r"--fp8-scaling=tensor is not a way to choose scales \(blocks, current, delayed\)")
        self.holds("scales without fp8", *compile, "--fp8-scaling=current", code=2, words="--fp8-scaling needs --precision=fp8")
        self.holds("histories of an evaluation", *compile, *DELAYED, "--mode=eval", code=4, words="has no history of magnitudes, because no step changes it; use --fp8-scaling=current")
        self.holds("histories of frozen matrices", *compile, *DELAYED, "--freeze=h.0.*", code=4, words="has no history of magnitudes")
        self.holds("an evaluation", *compile, *CURRENT, "--mode=eval")


def suite(case, quick, cuda):
    for flags in CURRENT, DELAYED:
        case.fp8 = flags
        if cuda:
            case.both_targets()
            if flags == CURRENT or not quick:
                case.codes()
        case.same_bits(quick)
    if cuda:
        case.no_codes()
        return case.narrow(quick)
    case.scales()
    case.products()
    case.history(["dp=2 --zero=1"] if quick else ["dp=2", "dp=2 --zero=1", "dp=4 --zero=3"])
    case.microbatches()
    case.moved(["dp=2 --zero=3"] if quick else ["dp=2 --zero=3", "dp=2,tp=2 --zero=1", "pp=2 --microbatches=2", "1 --pack-products"])
    case.skipped()
    case.loss(20 if quick else 100)
    case.proof()
    case.history(["tp=2"] if quick else ["tp=2", "tp=2 --sequence-parallel", "cp=2", "dp=2,tp=2 --zero=3"])
    for flags in CURRENT, DELAYED:
        case.fp8 = flags
        if not quick:
            case.equal(["tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2 --zero=1", "cp=2"])
            case.equal(["pp=2 --microbatches=2"], ("staged",), step=["--microbatches=2"])  # current scales are those of a microbatch
        case.plans(["tp=2"] if quick else ["tp=2", "tp=2 --sequence-parallel", "cp=2", "dp=2,tp=2 --zero=3", "pp=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2",
                                           "1 --recompute=full", "1 --recompute=selective", "dp=2 --zero=3 --microbatches=2", "1 --states=8bit", "1 --offload=states,masters",
                                           "1 --pack-products", "dp=2 --zero=1 --gradient-precision=bf16"])
    case.narrow()


if __name__ == "__main__":
    Float8Scales.main(suite)
