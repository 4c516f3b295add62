#!/usr/bin/env python3
"""usage: test/EndToEnd/memory.py [--write]

Plans GPT-2 shapes under every stage of ZeRO and every form of tensor parallelism, and compares the arena, as the
compiler's report divides it, with the published formulas. The table is in docs/rationale/memory.md; --write makes it
anew.
"""
import json

from pages import Page, table


class Memory(Page):
    def gpt2(self, width, layers, heads, vocabulary, batch, sequence):
        self.load(batch, sequence, model_type="gpt2", vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads, n_positions=sequence)

    def rank(self, *flags):
        report = self.report(*flags)
        return report["parameters"], report["per_rank"][0]

    def planned(self, mesh, *tactics, microbatches):
        """The report of a plan file."""
        (self.work / "plan").write_text(f"pc.plan {mesh} {json.dumps(tactics)} microbatches {microbatches}\n")
        return self.rank("--plan=plan")


def gigabytes(n):
    return f"{n / 1e9:.2f}"


def zero(test):
    """Stages on 64 ranks; bytes a parameter: 2 weights, 2 gradients, K = 12 master, exp_avg and exp_avg_sq, in f32."""
    width, vocabulary, sequence, n = 4096, 50304, 1024, 64
    test.gpt2(width, 36, 32, vocabulary, 128, sequence)
    in_tables = (vocabulary + sequence) * width
    for stage in range(4):
        for microbatches, tables, gradients in ((1, "bf16", "bf16"), (1, "f32", "f32"), (2, "f32", "f32")):
            p, rank = test.planned(
                f"<dp = {n}>", f"pc-mixed-precision{{compute=bf16 tables={tables} gradients={gradients}}}",
                f"pc-zero{{axis=dp stage={stage}}}" if stage else "pc-data-parallel{axis=dp}", microbatches=microbatches)
            part = lambda split: p / n if split else p
            formula = 2 * part(stage == 3) + 2 * part(stage >= 2) + 12 * part(stage >= 1)
            here = (2 * part(stage == 3) + (4 * in_tables * (1 - 1 / n) if tables == "f32" and stage in (1, 2) else 0) +
                    (2 if gradients == "bf16" else 4) * part(stage >= 2 or stage == 1 and microbatches == 1) + 12 * part(stage >= 1))
            most, peak = rank["memory_at_most"], rank["memory"]
            states = [most[kind] for kind in ("parameters", "optimizer", "gradients")]
            test.check(f"states of stage {stage}, {microbatches} microbatches, {gradients}",
                       abs(sum(states) / here - 1) < (0.001 if microbatches == 1 else 0.03), f"{gigabytes(sum(states))} GB, not {gigabytes(here)}")
            row = [formula, here, sum(states), *states, peak["communication"], peak["workspace"], peak["activations"], rank["arena_bytes"]["device"]]
            yield f"| {stage} | {microbatches} | {tables} | {gradients} | {' | '.join(map(gigabytes, row))} |"


def activations(test):
    test.gpt2(2048, 8, 16, 2048, 8, 1024)
    whole = test.rank()[1]["memory"]
    forms = [("1 rank", "", [], "1"), ("1D", "tp=8", [], "(10 + 24/8)/34 = 0.382"), ("1D + SP", "tp=8", ["--sequence-parallel"], "1/8 = 0.125"),
             ("2D", "row=2,col=2", ["--tensor-parallel=2d"], "1/4 = 0.250"), ("2.5D", "depth=2,row=2,col=2", ["--tensor-parallel=2.5d"], "1/8 = 0.125"),
             ("3D", "i=2,j=2,l=2", ["--tensor-parallel=3d"], "1/8 = 0.125")]
    for form, mesh, flags, formula in forms:
        m = test.rank(*(["--mesh", mesh] if mesh else []), *flags)[1]["memory"]
        plan = f"`{' '.join([mesh, *flags])}`" if mesh else ""
        yield (f"| {form} | {plan} | {formula} | {m['activations'] / whole['activations']:.3f} | {gigabytes(m['activations'])} | "
               f"{gigabytes(m['communication'])} |")


def tables():
    yield table("stage | microbatches | tables | gradients | formula | here | states | parameters | optimizer | gradients | communication | "
                "workspace | activations | arena", zero(test))
    yield table("form | plan | formula | counted | activations | communication", activations(test))


test = Memory()
test.make(tables)
