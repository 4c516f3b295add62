#!/usr/bin/env python3
"""usage: test/EndToEnd/generate.py [quick|MODEL...]

Generates text with golden models on several plans, and compares it with what transformers generates (golden/generations.json): the same
tokens as long as the two best logits differ by more than 1e-3, and logarithms of probabilities within 1e-4; in bf16, 0.06 for
both. Requests of one run have different lengths and share steps."""
import json
import sys

from cases import GOLDEN, STAND_IN, Case, mesh_flags, ranks_of

MARGIN, TOLERANCE, BF16 = 1e-3, 1e-4, 0.06
CUDA = ["--target=cuda", "--stand-in"]
PLANS = [("1", []), ("1", ["--chunk=7"]), ("tp=2", ["--tensor-parallel"]), ("dp=2", ["--data-parallel", "--chunk=5"]),
         ("dp=2,tp=2", ["--data-parallel", "--tensor-parallel", "--chunk=6"]), ("dp=2", ["--zero=3", "--chunk=4"]),
         ("cp=2", ["--context-parallel"]), ("1", CUDA), ("tp=2", ["--tensor-parallel", "--chunk=4", *CUDA]), ("tp=2", ["--tensor-parallel", "--precision=bf16"])]
QUICK = {"gpt2": PLANS, "llama-tied": PLANS[2:5], "mistral-window": PLANS[:1], "bloom": PLANS[1:3], "mixtral": PLANS[1:2], "qwen3_moe": [("ep=2", ["--expert-parallel"])]}


class Generate(Case):
    def answers(self, text):
        """By id, the tokens and their logarithmic probabilities."""
        answers = {}
        for line in map(json.loads, text.splitlines()):
            answers.setdefault(line["id"], []).append(line)
        return answers

    def plan(self, model, mesh, flags, wanted):
        name = f"{model} {mesh} {' '.join(flags)}".strip()
        made = self.call("pc-compile", f"{model}.mlir", "-o", "program", "--mode=generate", "--slots", 3, "--size", 4, *mesh_flags(mesh), *flags)
        if not self.check(f"{name}: compiles", made.code == 0, made.why()):
            return
        (self.work / "requests").write_text("".join(
            json.dumps({"id": number, "prompt": row["prompt"], "max_tokens": len(row["tokens"])}) + "\n" for number, row in enumerate(wanted["requests"])))
        self.environment = STAND_IN if "--stand-in" in flags else {}
        done = self.call("pc-run", "-n", ranks_of(mesh), "./program", "--", "--requests", "requests", "--answers", "answers")
        if not self.check(f"{name}: runs", done.code == 0, done.why()):
            return
        answers = self.answers((self.work / "answers").read_text())
        worst, count = 0, 0
        least, most = (BF16, BF16) if "--precision=bf16" in flags else (MARGIN, TOLERANCE)
        for number, row in enumerate(wanted["requests"]):
            lines = answers.get(number, [])
            if "error" in str(lines) or len(lines) != len(row["tokens"]):
                self.check(f"{name}: answer {number}", False, lines)
                return
            for line, token, logprob, margin in zip(lines, row["tokens"], row["logprobs"], row["margins"]):
                if margin < least:
                    break
                if line["token"] != token:
                    self.check(f"{name}: answer {number}", False, f"{[line['token'] for line in lines]}, of transformers {row['tokens']}")
                    return
                worst, count = max(worst, abs(line["logprob"] - logprob)), count + 1
        self.check(name, worst <= most and count > 20, f"{count} tokens, logprobs up to {worst} apart", f"{count} tokens, {worst:.0e}")

    def body(self):
        generations = json.loads((GOLDEN / "generations.json").read_text())
        quick = sys.argv[1:] == ["quick"]
        for model in QUICK if quick else sys.argv[1:] or generations:
            wanted = generations[model]
            self.model(model, 2, wanted["context"], to=f"{model}.mlir")
            for mesh, flags in QUICK[model] if quick else PLANS:
                self.plan(model, mesh, flags, wanted)


if __name__ == "__main__":
    case = Generate(" ".join(["generate.py", *sys.argv[1:]]))
    case.run(case.body)
