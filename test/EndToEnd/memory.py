#!/usr/bin/env python3
"""usage: test/EndToEnd/memory.py BIN TABLE [--write]

Plans GPT-2 shapes under every stage of ZeRO and every form of tensor parallelism and puts the arena, as the compiler's report divides
it, beside the published formulas. TABLE is the committed table; it fails where that is not what comes out. --write makes it anew.
"""
import json, subprocess, tempfile

import pages


class Compiler:
    def __init__(self, bin):
        self.bin, self.folder = bin, tempfile.mkdtemp()

    def run(self, *command):
        subprocess.run(command, check=True, capture_output=True, text=True)

    def load(self, width, layers, heads, vocabulary, batch, sequence):
        config = dict(model_type="gpt2", vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads, n_positions=sequence)
        json.dump(config, open(f"{self.folder}/config.json", "w"))
        self.run(f"{self.bin}/pc-import", self.folder, "-o", f"{self.folder}/m.mlir", "--batch", str(batch), "--seq", str(sequence))

    def report(self, mesh, *flags):
        self.run(f"{self.bin}/pc-compile", f"{self.folder}/m.mlir", *(["--mesh", mesh] if mesh else []), *flags, "--to=planned",
                 "-o", "/dev/null", f"--report={self.folder}/r.json")
        report = json.load(open(f"{self.folder}/r.json"))
        return report["parameters"], report["per_rank"][0]["memory"]


def gigabytes(n):
    return f"{n / 1e9:.2f}"


def zero(compiler):
    """Stages on 64 ranks; bytes a parameter: 2 weights, 2 gradients, K = 12 master, exp_avg and exp_avg_sq, in f32."""
    compiler.load(4096, 36, 32, 50304, 128, 1024)
    n = 64
    for stage, formula in enumerate([lambda p: 16 * p, lambda p: 4 * p + 12 * p / n, lambda p: 2 * p + 14 * p / n, lambda p: 16 * p / n]):
        for microbatches, gradients in ((1, "bf16"), (1, "f32"), (2, "f32")):
            p, m = compiler.report(f"dp={n}", f"--zero={stage}", "--precision=bf16", f"--gradient-precision={gradients}",
                                   f"--microbatches={microbatches}")
            state = sum(m.values()) - m["activations"]
            yield (f"| {stage} | {microbatches} | {gradients} | {gigabytes(formula(p))} | {gigabytes(state)} | {gigabytes(m['parameters'])} | {gigabytes(m['optimizer'])} | "
                   f"{gigabytes(m['gradients'])} | {gigabytes(m['communication'])} | {gigabytes(m['workspace'])} | {gigabytes(m['activations'])} |")


def activations(compiler):
    compiler.load(2048, 8, 16, 2048, 8, 1024)
    _, whole = compiler.report("")
    forms = [("1 rank", "", [], "1"), ("1D", "tp=8", [], "(10 + 24/8)/34 = 0.382"), ("1D + SP", "tp=8", ["--sequence-parallel"], "1/8 = 0.125"),
             ("2D", "row=2,col=2", ["--tensor-parallel=2d"], "1/4 = 0.250"), ("2.5D", "depth=2,row=2,col=2", ["--tensor-parallel=2.5d"], "1/8 = 0.125"),
             ("3D", "i=2,j=2,l=2", ["--tensor-parallel=3d"], "1/8 = 0.125")]
    for form, mesh, flags, formula in forms:
        _, m = compiler.report(mesh, *flags)
        plan = f"`{' '.join([mesh, *flags])}`" if mesh else ""
        yield (f"| {form} | {plan} | {formula} | {m['activations'] / whole['activations']:.3f} | {gigabytes(m['activations'])} | "
               f"{gigabytes(m['communication'])} |")


def page(bin):
    compiler = Compiler(bin)
    return f"""# Memory: formulas and planned arenas

What a rank holds at the moment of the largest demand, in GB (10^9 bytes), as the compiler divides its own arena (`pc-compile --report`). Made by
`test/EndToEnd/memory.py`, which fails where this page is not what comes out. The arena is what a run allocates, exactly.

## ZeRO

7.5 billion parameters (GPT-2, 36 layers of width 4096) on 64 ranks, bf16 with f32 master weights and AdamW, two sequences of 1024 a rank. The formula
(S. Rajbhandari et al., SC 2020) has 2 bytes a parameter for weights, 2 for gradients and K = 12 for the master weight and Adam's two moments, and
divides by the ranks what a stage splits: 120, 31.4, 16.6 and 1.9 GB. *Counted* is the arena without activations; the columns behind it add
up to it, and to the arena with the last one.

| stage | microbatches | gradients in | formula | counted | parameters | optimizer | gradients | communication | workspace | activations |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(zero(compiler))}

Where they differ:
* *Gradients in bf16* (`--gradient-precision=bf16`) are the formula's: stage 0 then is what it says. They are f32 unless asked for, and where microbatches are
  summed in any case: 4 bytes a parameter in place of 2, 14.9 GB more where they are whole (stage 0, and stage 1 with several microbatches), 0.2 GB
  where they are split.
* *With several microbatches* the gradients of the one at work and the sums have buffers of their own, so whole gradients are there twice: 29.8 GB more in
  stages 0 and 1. The formula has one. (Adding to the sums in place would save that.)
* *Stage 1 with one microbatch needs less than the formula.* A gradient is scattered as soon as it is there, in the backward pass, so stages 1 and 2 are the
  same program and no rank ever holds all gradients.
* *Weights in bf16* are whole in stages 0 to 2. They are made of the master weights in every step and counted as communication where they are
  gathered, as workspace where they are only rounded; their 14.9 GB are in the formula.
* *Stage 3* has besides its shards the gathered weights of two units (the one at work and the next) and the gradients that are on their way.

## Activations

GPT-2's layers at width 2048 (8 layers, 8 sequences of 1024, f32) as a share of one rank's. The formula for 1D and SP is V. Korthikanti et al.'s, of
34 sbh a layer with the attention's scores left out (they never exist here either); the others split everything.

| form | plan | formula | counted | activations | communication |
|---|---|---|---|---|---|
{chr(10).join(activations(compiler))}

Full tensors that exist for a move only (what a gather makes) are communication. What is counted beyond the formula are small values that
are whole on every rank, and values of one layer at work.
"""


if __name__ == "__main__":
    pages.main(page)
