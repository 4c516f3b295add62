#!/usr/bin/env python3
"""usage: test/EndToEnd/compile-limits.py [--all] [--time] MODEL...       of gpt3-175b llama-3.1-405b mt-nlg-530b demo

Models of published sizes to the planned phase in at most 2 GiB each: on dp=8,tp=8; Llama-3.1-405B with ZeRO-3, tensor and sequence parallelism on 1024
ranks and (--all) with 3D tensor parallelism on 512; MT-NLG 530B with pp=35,tp=8, dp=8 and a batch of 320 sequences (--all: dp=8, 10 and 12, 1920
sequences); the demo model to an executable. With --time (a quiet machine; bench/compile_time.sh) also in at most 10 s each, and 5 s."""
import json
import os
import sys
import time

from cases import BIN, ROOT, Case

LIMIT = 2 << 30


class Limits(Case):
    def measured(self, name, *command, seconds=10):
        """A check: the command ends well, and within its limits."""
        start = time.monotonic()
        with open(self.work / "log", "w+") as log:
            process = self.start(*command, stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            log.seek(0)
            said = log.read()
        took, peak = time.monotonic() - start, usage.ru_maxrss * 1024
        figures = f"{took * 1000:.0f} ms, {peak >> 20} MiB"
        return self.check(name, code == 0 and peak <= LIMIT and (took <= seconds or "--time" not in sys.argv),
                          f"$ {process.text}\nexit {code}, {figures} (limits {seconds} s, 2048 MiB)\n{said}", figures)

    def imported(self, model, batch, sequence=2048):
        self.measured(f"{model} import", "pc-import", ROOT / "examples" / model, "-o", "model.mlir", "--batch", batch, "--seq", sequence)

    def planned(self, name, *flags):
        return self.measured(f"{name} to planned", "pc-compile", "model.mlir", *flags, "--to=planned", "-o", "planned.mlir")

    def gpt3_175b(self, model):
        self.imported(model, 64)
        self.planned(f"{model} dp=8,tp=8", "--mesh", "dp=8,tp=8")

    def llama_3_1_405b(self, model):
        self.gpt3_175b(model)
        self.imported(model, 512)
        self.planned(f"{model} ZeRO-3, tp=8 and SP on 1024 ranks", "--mesh", "dp=128,tp=8", "--zero=3", "--sequence-parallel")
        if "--all" in sys.argv:
            self.planned(f"{model} 3D on 512 ranks", "--mesh", "i=8,j=8,l=8", "--tensor-parallel=3d")

    def mt_nlg_530b(self, model):
        replicas, batch = ((8, 10, 12), 1920) if "--all" in sys.argv else ((8,), 320)
        self.imported(model, batch)
        for dp in replicas:
            flags = f"--mesh pp=35,dp={dp},tp=8 --microbatches={batch // dp} --stages=layers --precision=bf16 --recompute=full --machine=a100"
            if self.planned(f"{model} pp=35,dp={dp},tp=8", *flags.split(), "--report=report.json"):
                self.figures(dp, batch)

    def figures(self, dp, batch):
        """The pipeline of 280 GPUs a replica: what a rank holds and sends, how long the stages wait, and the predicted step, which stands in
        the table of docs/rationale/machines.md beside the paper's."""
        report = json.loads((self.work / "report.json").read_text())
        ranks, pipeline, seconds = report["per_rank"], report["pipeline"], report["predicted"]["step_seconds"]
        memory = max(rank["arena_bytes"]["device"] for rank in ranks)
        self.check("the arena is the sum of its contents", memory > 0 and all(sum(rank["memory"].values()) == rank["arena_bytes"]["device"]
                                                                              for rank in ranks), ranks)
        self.check("no kind has more than its maximum", all(rank["memory_at_most"][kind] >= n for rank in ranks
                                                            for kind, n in rank["memory"].items() if kind != "workspace"), ranks)
        self.check("every axis has traffic", {row["axis"] for rank in ranks for row in rank["traffic"]} >= {"dp", "pp", "tp"}, ranks)
        self.check("stages and microbatches", (pipeline["stages"], pipeline["microbatches"]) == (35, batch // dp), pipeline)
        ideal = 34 / pipeline["microbatches"]
        self.check("the stages wait as long as they must", 0.75 * ideal < pipeline["idle_over_ideal"] < 1.25 * ideal,
                   (ideal, pipeline["idle_over_ideal"]))
        s, layers, h, words = 2048, 105, 20480, 51200
        rate = 96 * batch * s * layers * h * h * (1 + s / (6 * h) + words / (16 * layers * h)) / seconds / (280 * dp) / 1e12
        if batch == 1920:
            paper = {8: (60.1, 126), 10: (50.2, 121), 12: (44.4, 113)}[dp]
            row = f"| {dp} | {280 * dp} | {paper[0]} | {paper[1]} | {seconds:.1f} | {rate:.0f} | {seconds / paper[0]:.2f} |"
            self.check("the table of machines.md", row in (ROOT / "docs/rationale/machines.md").read_text(), f"has not: {row}")

    def demo(self, _):
        self.imported("gpt2-14m", 8, 256)
        self.measured("demo model to an executable", "pc-compile", "model.mlir", "--mesh", "dp=2,tp=2", "-o", "demo", seconds=5)
        self.check("the executable is there", os.access(self.work / "demo", os.X_OK))

    def body(self):
        for model in MODELS:
            getattr(self, model.replace("-", "_").replace(".", "_"))(model)


MODELS = [word for word in sys.argv[1:] if word[0] != "-"] or ["gpt3-175b", "llama-3.1-405b", "mt-nlg-530b", "demo"]
limits = Limits("compile-limits-" + "-".join(MODELS))
limits.run(limits.body)
