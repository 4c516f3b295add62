#!/usr/bin/env python3
"""usage: test/EndToEnd/codes.py quick|all

Generates text with --weights=int8 and int4 on several plans. This test rounds the weights itself, and runs the program in f32
on the rounded weights: the same tokens, and logarithms of probabilities within 1e-5. Plans that do not change the order of
sums give the same bits as one rank. On devices (the stand-in), of which `quick` has few plans, logarithms are within 1e-4. On
every plan, the weights, caches, arena and traffic that a run counts are those of the compiler's report, and the report's parts
fill the arena."""
import json
import struct
import sys
from array import array
from pathlib import Path

from cases import SMALL_LLAMA, STAND_IN, Case, mesh_flags, ranks_of

GPT2 = dict(model_type="gpt2", n_embd=64, n_layer=2, n_head=2, n_inner=128, vocab_size=96, n_positions=24, activation_function="gelu_new")
MODELS = {"gpt2": GPT2,
          "mixtral": SMALL_LLAMA | dict(model_type="mixtral", hidden_size=64, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2, vocab_size=96, max_position_embeddings=24,
                                        num_local_experts=4, num_experts_per_tok=2),
          "llama": SMALL_LLAMA | dict(hidden_size=64, intermediate_size=128, num_attention_heads=2, num_key_value_heads=2, vocab_size=96, max_position_embeddings=24)}
MATRICES = ("c_attn.weight", "c_proj.weight", "c_fc.weight", "q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight", "down_proj.weight", "w1.weight", "w2.weight", "w3.weight")
PLANS = [("1", [], True), ("1", ["--chunk=7"], True), ("tp=2", ["--tensor-parallel"], False), ("tp=2", ["--tensor-parallel", "--sequence-parallel"], False),
         ("dp=2", ["--data-parallel", "--chunk=5"], True), ("dp=2", ["--zero=3", "--chunk=4"], True), ("cp=2", ["--context-parallel"], False), ("pp=2", [], False),
         ("dp=2,tp=2", ["--zero=3", "--tensor-parallel"], False), ("1", ["--precision=bf16"], False)]
EXPERTS = [("1", [], True), ("1", ["--chunk=7"], True), ("ep=2", ["--expert-parallel"], False), ("tp=2", ["--tensor-parallel"], False), ("dp=2", ["--zero=3"], True), ("pp=2", [], False),
           ("1", ["--precision=bf16"], False)]
CUDA = ["--target=cuda", "--stand-in"]
DEVICES = [("1", ["--chunk=20"]), ("tp=2", ["--tensor-parallel", "--chunk=7"]), ("dp=2", ["--data-parallel"]), ("dp=2", ["--zero=3", "--chunk=4"]), ("pp=2", []), ("1", ["--precision=bf16", "--chunk=20"])]
EXPERTS_ON_DEVICES = [("1", ["--chunk=20"]), ("ep=2", ["--expert-parallel"]), ("1", ["--precision=bf16", "--chunk=20"])]
REQUESTS = [([3, 14, 15, 92, 6, 5], 12), ([35], 20), (list(range(20, 31)), 9), ([7, 7, 7], 16)]


def tensors(path):
    """By name, the shape and the numbers of a safetensors file in f32."""
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], array("f", content[end + entry["data_offsets"][0]:end + entry["data_offsets"][1]])) for name, entry in header.items()}


def save(path, all):
    header, at = {}, 0
    for name, (shape, numbers) in all.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at := at + 4 * len(numbers)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(numbers.tobytes() for _, numbers in all.values()))


def single(number):
    return array("f", [number])[0]


def rounded(name, shape, numbers, bits):
    """The numbers as codes times scales. GPT-2 keeps matrices as [in, out], Llama as [out, in]."""
    rows, columns = shape
    isTransposed = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    inputs, outputs = (rows, columns) if isTransposed else (columns, rows)
    stride, group, most = (columns, 1) if isTransposed else (1, columns), inputs if bits == 8 else 32, 127 if bits == 8 else 7
    result = array("f", numbers)
    for out in range(outputs):
        for begin in range(0, inputs, group):
            places = [out * stride[1] + i * stride[0] for i in range(begin, begin + group)]
            scale = single(max(abs(numbers[at]) for at in places) / most)
            for at in places:
                result[at] = single(round(single(numbers[at] / scale)) * scale) if scale else 0
    return result


class Codes(Case):
    def weights(self, name):
        """A directory of weights, which are larger than initial ones, so that tokens differ."""
        folder = self.work / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(MODELS[name]))
        (self.work / "tokens").write_bytes(array("H", [i * 37 % 96 for i in range(200)]).tobytes())
        self.needs("pc-import", folder, "-o", "drawn.mlir", "--batch", 1, "--seq", 24)
        self.needs("pc-compile", "drawn.mlir", "-o", "drawn", "--optimizer=sgd")
        self.needs("./drawn", "--data", "tokens", "--steps", 1, "--lr", 0, "--seed", 5, "--save", f"{name}-drawn")
        all = tensors(self.work / f"{name}-drawn/model.safetensors")
        for tensor in all:
            if len(all[tensor][0]) == 2:
                all[tensor] = (all[tensor][0], array("f", [8 * number for number in all[tensor][1]]))
        save(folder / "model.safetensors", all)
        for bits in (8, 4):
            other = self.work / f"{name}-{bits}"
            other.mkdir()
            (other / "config.json").write_text(json.dumps(MODELS[name]))
            save(other / "model.safetensors", {tensor: (shape, rounded(tensor, shape, numbers, bits) if tensor.endswith(MATRICES) else numbers) for tensor, (shape, numbers) in all.items()})
        return folder

    def answers(self, folder, mesh, *flags):
        """The tokens and logarithmic probabilities of each request, or None after an error."""
        name = f"{folder.name} {mesh} {' '.join(flags)}"
        self.needs("pc-import", folder, "-o", "model.mlir", "--batch", 2, "--seq", 24)
        made = self.call("pc-compile", "model.mlir", "-o", "program", "--mode=generate", "--slots=4", "--size=4", *mesh_flags(mesh), *flags, "--report=report.json")
        if not self.check(f"{name}: compiles", made.code == 0, made.why()):
            return None
        (self.work / "requests").write_text("".join(json.dumps({"id": i, "prompt": prompt, "max_tokens": most}) + "\n" for i, (prompt, most) in enumerate(REQUESTS)))
        where = STAND_IN if "--stand-in" in flags else {}
        done = self.call("pc-run", "-n", ranks_of(mesh), "./program", "--", "--requests", "requests", "--answers", "answers", "--summary", "summary.json", **where)
        if not self.check(f"{name}: runs", done.code == 0, done.why()):
            return None
        self.holds(f"{name}: memory", "pc-compare", "reports", "report.json", "summary.json", words="report equals summary")
        self.memory(name, flags)
        lines = [json.loads(line) for line in (self.work / "answers").read_text().splitlines()]
        return {i: [(line["token"], line["logprob"]) for line in lines if line["id"] == i and "token" in line] for i in range(len(REQUESTS))}

    def memory(self, name, flags):
        """What a step keeps are the weights and the caches, and each rank's arena is the sum of its parts."""
        for rank in json.loads((self.work / "report.json").read_text())["per_rank"]:
            memory, weights = rank["memory"], rank["weights"]
            self.check(f"{name}: the arena of ranks {rank['ranks']}", sum(memory.values()) == rank["arena_bytes"]["device"] and memory["caches"] > 0 and not memory["optimizer"], f"{memory}")
            stored = sum(row["bytes"] + row.get("scale_bytes", 0) for row in weights.values())
            rest = memory["parameters"] - stored  # tensors begin at multiples of 64 (CUDA: 256) bytes; a step may keep rounded or gathered copies
            count = (4 if "--stand-in" in flags else 1) * sum((2 if "scale_bytes" in row else 1) * len(row["tensors"]) for row in weights.values())
            self.check(f"{name}: the weights", 0 <= rest and (rest < 64 * count or "--precision=bf16" in flags or "--zero=3" in flags), f"{memory['parameters']} bytes, of which {stored} are stored")
            form = next((flag[10:] for flag in flags if flag.startswith("--weights=")), "")
            self.check(f"{name}: the bits", ("bits_" + form[3:4] in weights) == bool(form) and "bits_32" in weights, f"{list(weights)}")

    def plans(self, name):
        folder = self.weights(name)
        for bits, form in ((8, "int8"), (4, "int4")):
            wanted, first = self.answers(self.work / f"{name}-{bits}", "1"), None
            devices = [(mesh, flags + CUDA, False) for mesh, flags in (EXPERTS_ON_DEVICES if name == "mixtral" else DEVICES)]
            devices = devices if self.all else devices[:1] if form == "int8" else []
            for mesh, flags, sameBits in (EXPERTS if name == "mixtral" else PLANS) + devices:
                found = self.answers(folder, mesh, f"--weights={form}", *flags)
                if not wanted or not found:
                    continue
                first = first or found
                most = 0.06 if "--precision=bf16" in flags else 1e-4 if "--stand-in" in flags else 1e-5
                if most > 1e-3 and "--stand-in" in flags and name == "mixtral":
                    most = 0.5  # as in generate.py: in bf16 a router may choose another expert
                worst, count = 0, 0
                for i in wanted:
                    for (token, logprob), (other, otherLogprob) in zip(wanted[i], found[i]):
                        if token != other:
                            break
                        worst, count = max(worst, abs(logprob - otherLogprob)), count + 1
                total = sum(map(len, wanted.values()))
                self.check(f"{name} {form} {mesh} {' '.join(flags)}", worst <= most and (count == total or most > 1e-3) and count > 20, f"{count} of {total} tokens are equal, logprobs up to {worst} apart", f"{count} tokens, {worst:.0e}")
                if sameBits:
                    self.check("the bits of one rank", found == first, f"{found} instead of {first}")
            for precision in ("f32", "bf16") if self.all else ("bf16",) if form == "int4" else ():
                self.kernels(name, form, precision)

    def kernels(self, name, form, precision):
        """The kernels that multiply by codes, of few rows and of many, compute what loops on the host do."""
        self.needs("pc-compile", "model.mlir", "-o", "program", "--mode=generate", "--slots=4", "--chunk=20", f"--weights={form}", f"--precision={precision}", "--check-kernels", *CUDA)
        said = self.needs("./program", "--check-kernels", **STAND_IN).out
        rows = [row for row in map(json.loads, said.splitlines()) if row.get("kind") == "product"]
        self.check(f"{name} {form} {precision}: kernels of products", len(rows) > 4 and all(row["ok"] for row in rows), rows, f"{len(rows)} kernels, {max([row['error'] for row in rows], default=0):.0e}")

    def refused(self):
        (self.work / "small").mkdir()
        (self.work / "small/config.json").write_text(json.dumps(GPT2 | dict(n_embd=48, n_head=3)))
        self.needs("pc-import", "small", "-o", "small.mlir", "--batch", 1, "--seq", 24)
        compile = ("pc-compile", "small.mlir", "-o", "none")
        self.holds("training", *compile, "--weights=int8", code=2, words="need --mode=generate")
        self.holds("an unknown form", *compile, "--mode=generate", "--weights=int3", code=2, words="--weights=int3 is not")
        self.holds("rows of 48", *compile, "--mode=generate", "--weights=int4", code=4, words="rows of 48 numbers .* not a multiple of the group of 32; use --weights=int8")

    def body(self):
        for name in MODELS:
            self.plans(name)
        self.refused()


if __name__ == "__main__":
    case = Codes(" ".join(["codes.py", *sys.argv[1:]]))
    case.all = sys.argv[1:] == ["all"]
    case.run(case.body)
