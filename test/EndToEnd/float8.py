#!/usr/bin/env python3
"""usage: test/EndToEnd/float8.py quick|all|refused|METHOD [cuda]

Training in fp8 (--precision=fp8). Rounding is that of torch's float8 types. The operands of layers' products, and no others, are codes. In double precision, each plan computes
what the step does, and steps that round in another way are refused. Plans that add the same addends have the same bits; others lose as one rank does. Checkpoints hold f32, so
they continue in any precision. Losses are close to those of bf16.
"cuda": on the stand-in of a GPU of sm_90a, where products multiply codes. Losses are also compared with those of a CPU, kernels are also read from their PTX, and
programs with other scales, orders or formats of a product are refused."""
import json
import os
import random
import re
import statistics
import subprocess
import sys

from cases import BIN, CHECKED, ROOT, Failed, mesh_flags, ranks_of
from states import CONFIG
from zeropp import FREE, ZeroPlus

SIZES = CONFIG | dict(n_embd=128, n_inner=256, n_head=2, n_positions=128)
WIDE = SIZES | dict(n_embd=256, n_inner=512, n_head=4, n_positions=256)  # two ranks can split its heads and sequences
FP8 = ["--precision=fp8"]
DEVICE = ["--target=cuda", "--arch=sm_90a"]
NO_RESOURCE = 6  # the exit code
SAME = [("dp=2", ["dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3"]), ("dp=4", ["dp=4 --zero=1", "dp=4 --zero=2", "dp=4 --zero=3"]),
        ("1", ["1 --recompute=full", "1 --recompute=selective", "1 --offload=states,masters"])]
ROUND = r"""
#include "pcrt/float8.h"
#include <stdio.h>
int main(void) {
  float x;
  while (fread(&x, 4, 1, stdin) == 1) {
    double rounded[2] = {pcrt_round_to_float8(pcrt_e4m3(), x), pcrt_round_to_float8(pcrt_e5m2(), x)};
    fwrite(rounded, 8, 2, stdout);
  }
  for (int byte = 0; byte < 256; ++byte) {
    double number[2] = {pcrt_number_of_float8(pcrt_e4m3(), byte), pcrt_number_of_float8(pcrt_e5m2(), byte)};
    fwrite(number, 8, 2, stdout);
  }
}
"""


class Float8(ZeroPlus):
    fp8 = FP8  # the flags of the programs

    def begin(self, sizes=SIZES):
        super().begin()
        (self.work / "config.json").write_text(json.dumps(sizes))
        self.model(self.work, 4, sizes["n_positions"])

    def runs(self, out, mesh):
        return ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *"--lr 1e-3 --lr-warmup 10 --weight-decay 0.1 --clip 1 --seed 1 --data tokens.bin".split()]

    def rounding(self):
        """All numbers of both formats, the middles between them, values near these, subnormal ones, ones beyond the largest number, and random ones."""
        try:
            import torch
        except ImportError:
            return self.check("torch is missing, so rounding is not compared", True)
        (self.work / "round.c").write_text(ROUND)
        self.needs("/usr/bin/env", "cc", "-O1", "-I", ROOT / "runtime/include", self.work / "round.c", "-o", self.work / "round", "-lm")
        formats = torch.float8_e4m3fn, torch.float8_e5m2
        draw = random.Random(1)
        tried = [0.0, -0.0, float("nan"), 1e-30, -1e-30, 3e38]
        for format in formats:
            numbers = sorted({float(x) for x in torch.arange(256, dtype=torch.uint8).view(format).float() if abs(x) < 1e9})
            ties = [(a + b) / 2 for a, b in zip(numbers, numbers[1:])]
            tried += numbers + [x * (1 + e) for x in ties + [numbers[-1]] for e in (0, 1e-6, -1e-6, 0.01)]
        tried += [draw.choice((-1, 1)) * 2 ** draw.uniform(-20, 18) for _ in range(100000)]
        values = torch.tensor(tried, dtype=torch.float32)
        out = subprocess.run([self.work / "round"], input=values.numpy().tobytes(), capture_output=True, check=True).stdout
        ours = torch.frombuffer(bytearray(out), dtype=torch.float64).view(-1, 2)
        for column, format in enumerate(formats):
            largest = torch.finfo(format).max
            wanted = values.clamp(-largest, largest).to(format).double()
            found = ours[: len(tried), column]
            self.check(f"{len(tried)} values as {format}", torch.equal(found.nan_to_num(nan=1e9), wanted.nan_to_num(nan=1e9)),
                       [(values[i].item(), found[i].item(), wanted[i].item()) for i in range(len(tried)) if not (found[i] == wanted[i] or found[i] != found[i])][:3])
            codes = torch.arange(256, dtype=torch.uint8).view(format).double()
            codes[codes.isinf()] = float("nan")  # no code here is an infinity
            self.check(f"the codes of {format}", torch.equal(ours[len(tried):, column].nan_to_num(nan=1e9), codes.nan_to_num(nan=1e9)))

    def products(self):
        """For the six matrices of a layer, the product and both gradients have codes. The head, which is the table, has none."""
        for flags, gradients in ((FP8, "f8E4M3FN"), ([*FP8, "--fp8-gradients=e5m2"], "f8E5M2")):
            self.needs("pc-compile", "model.mlir", *flags, "--to=step", "-o", "step.mlir")
            text = (self.work / "step.mlir").read_text()
            found = {name: len(re.findall(pattern, text)) for name, pattern in (
                ("matrices", r"pc.encode float8 %\S+ : \(tensor<\S+xf32>\) -> \(tensor<\S+xf8E4M3FN>"),
                ("others", r"pc.encode float8 %\S+ : \(tensor<\S+xbf16>\) -> \(tensor<\S+xf8E4M3FN>"),
                ("gradients", r"pc.encode float8 %\S+ : \(tensor<\S+xbf16>\) -> \(tensor<\S+xf8E5M2>"))}
            # Four activations of a layer and the gradients of six products are encoded along two dims.
            wanted = dict(matrices=12, others=40 if gradients == "f8E4M3FN" else 16, gradients=0 if gradients == "f8E4M3FN" else 24)
            self.check(f"codes with gradients in {gradients}", found == wanted, found, found)

    def same_bits(self, quick=False):
        """Plans that add the same gradients in the same order round the same blocks."""
        for whole, plans in SAME[:1] if quick else SAME:
            self.needs(*self.program("whole", whole, *self.fp8), *FREE, "--steps", 5, "--save", "whole-after")
            for plan in plans:
                command = self.program("other", plan, *self.fp8)
                self.needs(*command, *FREE, "--steps", 5, "--save", "other-after", "--summary", "other.summary", "--check-replicas", 5)
                self.compare(f"{plan}: report and summary", "reports", "other.json", "other.summary")
                same = self.checkpoint_sums("other-after") == self.checkpoint_sums("whole-after")
                if same or not self.target:
                    self.check(f"{plan}: the bits of {whole}", same)
                    continue
                # A product whose operand is computed again does not also sum a bias's gradient, so a library sums it in another order, in any precision.
                self.compare(f"{plan}: the tensors of {whole}", "tensors", "whole-after/model.safetensors", "other-after/model.safetensors", "--tolerance", 1e-4)
                for out, of in (("whole", whole), ("other", plan)):
                    self.needs(*self.program(f"bf16-{out}", of, "--precision=bf16"), *FREE, "--steps", 5, "--save", f"bf16-{out}-after")
                self.check(f"{plan}: in bf16 it does not have the bits of {whole} either", self.checkpoint_sums("bf16-other-after") != self.checkpoint_sums("bf16-whole-after"))

    def plans(self, plans):
        """Other plans lose as one rank does, and continue with the same bits, also from the checkpoint of another plan."""
        self.needs(*self.program("one", "1", *self.fp8), "--steps", 20, "--metrics", "one.jsonl", "--save", "one-after")
        self.needs(*self.program("one", "1", *self.fp8), "--steps", 9, "--save", "half")
        for plan in plans:
            command = self.program("other", plan, *self.fp8)
            self.needs(*command, "--steps", 20, "--save", "other-after", "--metrics", "other.jsonl", "--summary", "other.summary", "--check-replicas", 5)
            self.compare(f"{plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 5e-3)
            self.compare(f"{plan}: report and summary", "reports", "other.json", "other.summary")
            self.needs(*command, "--steps", 9, "--save", "part")
            self.needs(*command, "--load", "part", "--steps", 20, "--save", "resumed")
            self.check(f"{plan}: a run that continues has the same bits", self.checkpoint_sums("resumed") == self.checkpoint_sums("other-after"))
            self.needs(*command, "--load", "half", "--steps", 20, "--metrics", "moved.jsonl")
            self.check(f"{plan}: it continues from one rank", abs(self.last("moved.jsonl") / self.last("one.jsonl") - 1) < 5e-3)

    def losses(self, metrics):
        lines = [json.loads(line) for line in (self.work / metrics).read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def last(self, metrics):
        return self.losses(metrics)[-1]

    def mean(self, metrics):
        return statistics.fmean(self.losses(metrics)[-10:])

    def loss(self, steps=100):
        """The loss stays within 1 % of that in bf16, and a checkpoint continues in bf16."""
        for name, flags in (("bf16", ["--precision=bf16"]), ("fp8", FP8), ("e5m2", [*FP8, "--fp8-gradients=e5m2"])):
            self.needs(*self.program(name, "1", *flags), "--steps", steps, "--metrics", f"{name}.jsonl", "--save", f"{name}-after", seconds=600)
        mean = {name: self.mean(f"{name}.jsonl") for name in ("bf16", "fp8", "e5m2")}
        for name in ("fp8", "e5m2"):
            self.check(f"the loss after {steps} steps, {name}", abs(mean[name] / mean["bf16"] - 1) < (1e-2 if steps >= 100 else 2e-2), mean, mean)
            self.check(f"{name} rounds", (self.work / "bf16.jsonl").read_text() != (self.work / f"{name}.jsonl").read_text())
        self.needs(*self.program("bf16", "1", "--precision=bf16"), "--load", "fp8-after", "--steps", steps + 1, "--metrics", "continued.jsonl")
        self.check("a checkpoint continues in bf16", abs(self.last("continued.jsonl") / self.last("fp8.jsonl") - 1) < 0.3)

    def both_targets(self):
        """A GPU loses as a CPU does, and its kernels equal those of a CPU."""
        self.needs(*self.program("device", "1", *self.fp8), "--steps", 20, "--metrics", "device.jsonl")
        self.needs("pc-compile", "model.mlir", *self.fp8, "-o", "host")
        self.needs(*self.runs("host", "1"), "--steps", 20, "--metrics", "host.jsonl")
        self.compare("losses of both targets", "losses", "host.jsonl", "device.jsonl", "--tolerance", 5e-3)
        operands = self.operands("device.json")
        self.check("products multiply codes", operands["decoded"] == 0, operands, operands)
        for arch in "sm_80", "sm_90a":
            self.needs("pc-compile", "model.mlir", *self.fp8, "--target=cuda", f"--arch={arch}", "--attention=generated", "--stand-in", "--check-kernels", "-o", "check")
            done = self.needs("./check", "--check-kernels", **CHECKED)
            wanted = ['"kind":"cast"', '"product":"einsum h.0.mlp.c_fc"'] if arch == "sm_90a" else ['"kernel":"encode']
            self.check(f"kernels of {arch}", '"ok":false' not in done.said and all(word in done.said for word in wanted), done.why(), f"{done.said.count('true')} cases")
            self.holds(f"the PTX of {arch}", sys.executable, ROOT / "test/tools/ptx-reader/read.py", "./check", words="kernels read, 0 findings", **CHECKED)

    def operands(self, report):
        """The row of the report about operands of products."""
        rows = json.loads((self.work / report).read_text())["per_rank"][0]["lossy"]
        return next(row for row in rows if row["what"] == "operands")

    def codes(self):
        """Programs that multiply other codes than the step's products, or in another order, are refused."""
        self.equal(["1", "1 --microbatches=2", "dp=2 --zero=3"], ("scheduled", "planned"), DEVICE)
        self.needs("pc-compile", "model.mlir", *FP8, *DEVICE, "--to=scheduled", "-o", "scheduled.mlir")
        text = (self.work / "scheduled.mlir").read_text()
        self.holds("the program is proved", "pc-opt", "scheduled.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}", "-o", "/dev/null")
        turns = self.turned(text)
        first, other, *_ = dict.fromkeys(re.findall(r"= (%\S+ : tensor<2x1xf32>) ->", text))  # of one matrix in both layers
        mutants = [("another format", text.replace("f8E4M3FN", "f8E5M2")),
                   ("scales of another matrix", text.replace(f"= {first}", f"= {other}", 1)),
                   ("codes in another order", text.replace('"x0 x1 x2 -> x2 x0 x1"', '"x0 x1 x2 -> x2 x1 x0"').replace("x2 x0 x1", "x2 x1 x0"))]
        for name, changed in mutants:
            (self.work / "mutant.mlir").write_text(changed)
            self.check(f"{name} is refused", turns and changed != text and self.call("pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}").code != 0)
        self.tables()

    def turned(self, text):
        """Codes that are transposed."""
        return re.findall(r"pc.einsum \"x0 x1 x2 -> x2 x0 x1\" (%\S+) : \((tensor<\S+xf8E4M3FN>)\)", text)

    def tables(self):
        for to in "planned", "kernels":
            self.needs("pc-compile", "model.mlir", *self.fp8, *DEVICE, f"--to={to}", "-o", f"{to}.mlir")
        # Two of these edits change the stride of a dim that has one element.
        self.holds("tables with other numbers are refused", sys.executable, ROOT / "test/Codegen/verify-tables.py", "planned.mlir", "kernels.mlir", 24, "step|gemms",
                   words="pc_gemms: [1-9][0-9]* refused, [0-2] accepted", PATH=f"{BIN}:{os.environ['PATH']}")

    def no_codes(self):
        """If the library has no product of codes, the run ends with the product's name and what to do."""
        command = self.program("device", "1", *self.fp8)
        self.holds("a library without products of codes", *command, "--steps", 1, code=NO_RESOURCE, PC_STANDIN_NO_FLOAT8="1",
                   words=r"matrix product 'einsum h\.\S+' \(\d+ x \d+, sums of \d+ products of E4M3 and E4M3, .* has no algorithm for this product of floats of 8 bits.*--arch=sm_90,")

    def equal(self, plans, phases=("local",), target=(), step=()):
        """In double precision a plan computes what the step does. `step` has its flags."""
        self.needs("pc-compile", "model.mlir", *self.fp8, *target, *step, "--to=step", "-o", "step.mlir")
        for plan in plans:
            mesh, *flags = plan.split()
            for to in phases:
                self.needs("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, *self.fp8, *target, f"--to={to}", "-o", f"{to}.mlir")
                self.holds(f"{plan}: the step and phase {to}", "pc-equal", "step.mlir", f"{to}.mlir", words="(?m)^equal$")

    def proof(self):
        """Steps that round in another way are refused."""
        self.equal(["dp=2 --zero=3"], ("placed", "local", "planned"))
        text = (self.work / "local.mlir").read_text()
        decodes = re.findall(r"(pc.decode float8 %\S+), (%\S+)( : \(tensor<128x256xf8E4M3FN>, tensor<1x2xf32>\))", text)
        first = decodes[0]
        other = next(decode for decode in decodes if decode[1] != first[1])
        wider = text.replace("f8E4M3FN", "f8E5M2")
        mutants = [("another format", wider),
                   ("scales of another matrix", text.replace(f"{first[0]}, {first[1]}{first[2]}", f"{first[0]}, {other[1]}{first[2]}", 1)),
                   ("other blocks", re.sub(r"tensor<(\d)x1x128xf32>", r"tensor<\1x128x128xf32>", text))]
        for name, changed in mutants:
            (self.work / "mutant.mlir").write_text(changed)
            self.check(f"{name} is refused", changed != text and self.call("pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}").code != 0)

    def priced(self, flags, name):
        """Returns the result of a search, or None if no plan is legal. The seconds of a plan are those that a search compares, without the count of kernels."""
        done = self.call("pc-compile", "model.mlir", *DEVICE, *flags, "--to=planned", "--verify=none", "-o", "/dev/null", f"--report={name}.json")
        if done.code == 4:
            return None
        if not self.check(name, done.code == 0, done.why(), done.command.split(" model.mlir ")[1].split(" --to=")[0]):
            raise Failed
        return json.loads((self.work / f"{name}.json").read_text())

    def searched(self):
        """The plan of --auto is as fast as all plans by hand that fit, compiles by hand to the same program, and has the same predictions. Plans that fp8 refuses are skipped."""
        self.begin(WIDE)
        plans = {}
        splits = {"dp=2,tp=2": ["--zero=0", "--zero=1", "--zero=3", "--sequence-parallel"], "dp=4": ["--zero=0", "--zero=1", "--zero=3"], "tp=4": ["", "--sequence-parallel"],
                  "pp=2,dp=2": ["--pipeline=1f1b", "--pipeline=zb-h1", "--zero=1"], "cp=2,tp=2": ["", "--context-parallel=ring"]}
        for mesh, forms in splits.items():
            for form in forms:
                for recompute in ("none", "full"):
                    for microbatches in (1, 2) if "pp=2" in mesh else (1,):
                        flags = ["--mesh", mesh, *filter(None, [form]), f"--recompute={recompute}", f"--microbatches={microbatches}"]
                        plans[" ".join(flags)] = self.priced([*self.fp8, *flags, "--auto=recompute"], "by-hand")
        refused = [flags for flags, plan in plans.items() if not plan]
        self.check("fp8 refuses plans whose ranks would share a block", refused and all("tp=4" in flags or "ring" in flags for flags in refused), refused, len(refused))
        legal = {flags: plan["search"]["candidates"][0] for flags, plan in plans.items() if plan}
        fastest, least = min(plan["step_seconds"] for plan in legal.values()), min(plan["arena_bytes"] for plan in legal.values())
        most = next(plan["arena_bytes"] for plan in legal.values() if plan["step_seconds"] == fastest)
        for limit in (most, (least + most) // 2):
            found = self.priced([*self.fp8, "--auto", "--ranks=4", f"--memory-limit={limit}", "--emit-plan=found.mlir"], "searched")
            chosen = found["search"]["candidates"][0]
            best = min(plan["step_seconds"] for plan in legal.values() if plan["arena_bytes"] <= limit)
            self.check(f"{limit} bytes: as fast as {len(legal)} plans by hand", chosen["step_seconds"] <= best and chosen["arena_bytes"] <= limit, chosen, f"{chosen['step_seconds']:.6g} s, {best:.6g} s")
            again = self.priced(["--plan=found.mlir"], "again")
            self.check("the same predictions by hand", again["predicted"] == found["predicted"] and again["per_rank"] == found["per_rank"])
        self.holds("only refused plans", "pc-compile", "model.mlir", *self.fp8, "--auto", "--mesh", "tp=4", "-o", "none", code=4, words="no plan is legal: .* failed with: .*block")

    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("an unknown precision", *compile, "--precision=fp4", code=2, words=r"--precision=fp4 is not a precision \(f32, bf16, fp8\)")
        self.holds("an unknown format", *compile, *FP8, "--fp8-gradients=e3m4", code=2, words="--fp8-gradients=e3m4 is not a float of 8 bits")
        self.holds("a format without fp8", *compile, "--precision=bf16", "--fp8-gradients=e5m2", code=2, words="--fp8-gradients needs --precision=fp8")
        self.holds("gradients in fp8", *compile, "--gradient-precision=fp8", code=2, words=r"--gradient-precision=fp8 is not a precision \(f32, bf16, int8, int4\)")
        self.holds("text", *compile, *FP8, "--mode=generate", code=2, words="--precision=fp8 is for training and evaluation")
        self.holds("matrices rounded twice", *compile, *FP8, "--weight-precision=int8", code=2, words="round the same matrices")
        self.begin(SIZES | dict(n_embd=64))
        self.holds("a narrow model", *compile, *FP8, code=4, words="blocks of 128 divide the dims of no product")


def suite(case, quick, cuda):
    if cuda:
        case.both_targets()
        case.codes()
        case.no_codes()
        return case.same_bits(quick)
    case.rounding()
    case.products()
    case.same_bits(quick)
    case.loss(20 if quick else 100)
    case.proof()
    case.begin(WIDE)
    if not quick:
        case.equal(["tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2 --zero=1"])
        case.begin(SIZES | dict(n_positions=512))  # chunks of zigzag order are whole blocks
        case.equal(["cp=2 --context-parallel=ring"])
        case.begin(WIDE)
    case.plans(["tp=2"] if quick else ["tp=2", "tp=2 --sequence-parallel", "dp=2,tp=2 --zero=3", "pp=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2",
                                       "1 --recompute=full", "1 --recompute=selective", "dp=2 --zero=3 --microbatches=2", "1 --states=8bit", "1 --offload=states,masters",
                                       "1 --pack-products", "dp=2 --zero=1 --gradient-precision=bf16"])


if __name__ == "__main__":
    Float8.main(suite)
