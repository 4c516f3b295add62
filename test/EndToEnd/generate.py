#!/usr/bin/env python3
"""usage: test/EndToEnd/generate.py [quick|MODEL...]

Generates text with golden models on several plans, and compares it with what transformers generates (golden/generations.json): the same
tokens where the two best logits differ by more than 1e-3, and logarithms of probabilities within 1e-4 until a token differs. In bf16
logarithms differ by up to 0.08 (transformers' own by up to 0.052), and by up to 0.75 where a router may choose another expert
(transformers' own by up to 0.51, for deepseek_v3-plain); a token may differ where the best logits are within twice that. Requests of one
run have different lengths and share steps."""
import json
import sys

from cases import GOLDEN, STAND_IN, Case, mesh_flags, ranks_of

MARGIN, TOLERANCE, BF16, BF16_OF_EXPERTS = 1e-3, 1e-4, 0.08, 0.75
CUDA = ["--target=cuda", "--stand-in"]
PLANS = [("1", []), ("1", ["--chunk=7"]), ("tp=2", ["--tensor-parallel"]), ("dp=2", ["--data-parallel", "--chunk=5"]),
         ("dp=2,tp=2", ["--data-parallel", "--tensor-parallel", "--chunk=6"]), ("dp=2", ["--zero=3", "--chunk=4"]),
         ("cp=2", ["--context-parallel", "--chunk=4"]), ("cp=2,tp=2", ["--context-parallel", "--tensor-parallel"]), ("cp=2", ["--context-parallel", *CUDA]), ("pp=2", ["--chunk=5"]), ("tp=2,pp=2", ["--tensor-parallel"]), ("1", CUDA), ("tp=2", ["--tensor-parallel", "--chunk=4", *CUDA]), ("tp=2", ["--tensor-parallel", "--precision=bf16"]),
         ("pp=2", ["--chunk=5", *CUDA])]
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
        made = self.call("pc-compile", f"{model}.mlir", "-o", "program", "--mode=generate", "--slots", 4 if "pp" in mesh or "--microbatches=2" in flags else 3, "--size", 4, *mesh_flags(mesh), *flags)
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
        least, most = MARGIN, TOLERANCE
        if "--precision=bf16" in flags:
            most = BF16_OF_EXPERTS if "experts" in (GOLDEN / model / "config.json").read_text() else BF16
            least = 2 * most
        for number, row in enumerate(wanted["requests"]):
            lines = answers.get(number, [])
            if "error" in str(lines) or len(lines) != len(row["tokens"]):
                self.check(f"{name}: answer {number}", False, lines)
                return
            for line, token, logprob, margin in zip(lines, row["tokens"], row["logprobs"], row["margins"]):
                if line["token"] != token and margin < least:
                    break
                if line["token"] != token:
                    self.check(f"{name}: answer {number}", False, f"{[line['token'] for line in lines]}, of transformers {row['tokens']}")
                    return
                worst, count = max(worst, abs(line["logprob"] - logprob)), count + 1
        self.check(name, worst <= most and count > 20, f"{count} tokens, logprobs up to {worst} apart", f"{count} tokens, {worst:.0e}")

    def refused(self):
        """What is wrong with flags ends the command; what is wrong with a request ends only this request."""
        for flag in ("--pipeline", "--recompute=full", "--group=*:decay=0"):
            self.holds(flag, "pc-compile", "gpt2.mlir", "-o", "none", "--mode=generate", "--slots=3", flag, code=2, words="--mode=generate")
        self.holds("--slots", "pc-compile", "gpt2.mlir", "-o", "none", "--slots=3", code=2, words="need --mode=generate")
        self.holds("--context", "pc-compile", "gpt2.mlir", "-o", "none", "--mode=generate", "--context=25", code=4, words="import the model with --seq=25")
        self.needs("pc-compile", "gpt2.mlir", "-o", "greedy", "--mode=generate", "--slots=2", "--sampling=false")
        for flag in ("--data=x", "--lr=1", "--save=x", "--metrics=x", "--adapter=x"):
            self.holds(flag, "./greedy", flag, code=2, words=flag.partition("=")[0])
        lines = ['{"id": 1, "prompt": [1, 2], "max_tokens": 3}', "{", '{"id": 2}', '{"id": 3, "prompt": [], "max_tokens": 1}', '{"id": 4, "prompt": [96], "max_tokens": 1}',
                 '{"id": 5, "prompt": [1], "max_tokens": 24}', '{"id": 6, "prompt": [1], "max_tokens": 1, "temperature": 1}', '{"id": 1, "prompt": [1], "max_tokens": 1}',
                 '{"cancel": 77}', '{"id": "x", "prompt": [1, 2], "max_tokens": 3}']
        (self.work / "requests").write_text("\n".join(lines))  # the last line has no end
        self.needs("./greedy", "--requests", "requests", "--answers", "answers")
        answers = self.answers((self.work / "answers").read_text())
        words = {2: "prompt", 3: "no tokens", 4: "not in the vocabulary", 5: "longer than the context", 6: "--sampling=false"}
        for name, part in words.items():
            self.check(f"request {name}", part in str(answers.get(name)), answers.get(name))
        good = [[line.get("token") for line in answers.get(name, []) if "token" in line] for name in (1, "x")]
        self.check("the others", len(good[0]) == 3 and good[0] == good[1] and "with this id" in str(answers[1]), answers)

    def body(self):
        generations = json.loads((GOLDEN / "generations.json").read_text())
        quick = sys.argv[1:] == ["quick"]
        for model in QUICK if quick else sys.argv[1:] or generations:
            wanted = generations[model]
            self.model(model, 2, wanted["context"], to=f"{model}.mlir")
            for mesh, flags in QUICK[model] if quick else PLANS:
                self.plan(model, mesh, flags, wanted)
        if quick:
            self.refused()


if __name__ == "__main__":
    case = Generate(" ".join(["generate.py", *sys.argv[1:]]))
    case.run(case.body)
