#!/usr/bin/env python3
"""usage: test/EndToEnd/states.py quick|all|refused|METHOD [cuda] [PLAN...]

States of AdamW in 8 bits (--states=8bit), compared with an encoder in Python that has the numbers of bitsandbytes. A program with f32 states that continues from codes
computes what a program with codes computes before it encodes: so each step is checked by itself. Checkpoints move between both, and between plans bit for bit. Plans that
add the same addends have the same codes. The arena has the bytes of the codes, and the loss is that of f32 states. A skipped step keeps codes and scales.
"cuda": on the stand-in of a GPU. Its checkpoints and losses are also compared with those of CPU ranks."""
import json
import random
import re
import struct
import sys
from array import array
from bisect import bisect_left
from pathlib import Path

from cases import CHECKED, STAND_IN, UNCHECKED, Case, mesh_flags, ranks_of

CONFIG = dict(model_type="gpt2", n_embd=64, n_inner=256, n_head=4, n_layer=2, n_positions=32, vocab_size=96, activation_function="gelu_new", layer_norm_epsilon=1e-5,
              resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=True, architectures=["GPT2LMHeadModel"])
MATRICES = {f"transformer.h.{layer}.{name}.weight" for layer in range(2) for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
RUN = "--lr 3e-3 --weight-decay 0.1 --clip 1 --seed 1 --data tokens.bin".split()
PLANS = ["dp=2 --zero=1", "tp=2"]
MORE = ["dp=2", "dp=2 --zero=2", "dp=2 --zero=3", "dp=4 --zero=3", "dp=8 --zero=1", "dp=2,tp=2 --zero=3", "pp=2 --microbatches=2", "pp=2,dp=2 --zero=1 --microbatches=2",
        "1 --microbatches=2", "dp=2 --zero=3 --precision=bf16", "1 --offload=states", "1 --recompute=full", "1 --pack-products"]
SIDE = 16


def numbers(signed):
    """create_dynamic_map of bitsandbytes, sorted."""
    data = [0.0, 1.0]
    for i in range(7):
        items = 2**i + 1 if signed else 2 ** (i + 1) + 1
        ends = [0.1 + 0.9 * k / (items - 1) for k in range(items)]
        means = [(a + b) / 2 * 10 ** (i - 6) for a, b in zip(ends, ends[1:])]
        data += means + [-x for x in means] * signed
    assert len(data) == 256
    return sorted(data)


def bytes_of(signed):
    """The byte of each of these numbers."""
    return [-128 if i == 255 else i - 127 for i in range(256)] if signed else [i if i < 128 else i - 256 for i in range(256)]


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def f32_numbers(signed):
    """The numbers by byte as kernels compute them, with one multiplication and addition in f32 for each power of ten."""
    found = {0: 0.0, (-128 if signed else -1): 1.0}
    for i in range(7):
        n, ten = (1 if signed else 2) << i, 10.0 ** (i - 6)
        for index in range(n, 2 * n):
            number = single(single(0.9 * ten / n) * index + single(ten * (0.45 / n - 0.8)))
            if signed:
                found[index], found[-index] = number, -number
            else:
                found[index - 1 if index <= 128 else index - 257] = number
    return found


class Codes:
    def __init__(self, name):
        signed = not name.startswith("exp_avg_sq")
        self.numbers, self.bytes, self.number_of = numbers(signed), bytes_of(signed), f32_numbers(signed)
        assert all(abs(self.number_of[byte] - number) <= 1e-6 * abs(number) for byte, number in zip(self.bytes, self.numbers))

    def decode(self, shape, codes, scales):
        """Blocks are squares of a tensor of the checkpoint."""
        rows, columns = shape
        return array("f", (self.number_of[codes[r * columns + c]] * scales[r // SIDE * (columns // SIDE) + c // SIDE] for r in range(rows) for c in range(columns)))

    def wrong(self, shape, values, codes, scales, rounding=0):
        """What is wrong with codes and scales of these values, which another kernel may have rounded differently."""
        rows, columns = shape
        wrong, flips = [], 0
        for at, scale in enumerate(scales):
            first = at // (columns // SIDE) * SIDE * columns + at % (columns // SIDE) * SIDE
            block = [first + r * columns + c for r in range(SIDE) for c in range(SIDE)]
            largest = max((values[i] for i in block), key=lambda x: (abs(x), x))
            if abs(scale - (largest if abs(largest) >= 1e-30 else 0)) > rounding * abs(largest):
                wrong.append(f"scale {at} is {scale}, not {largest}")
            for i in block if scale else ():
                x = values[i] / scale
                place = bisect_left(self.numbers, x)
                near = min((abs(self.numbers[p] - x), p) for p in (place - 1, place) if 0 <= p < 256)
                if codes[i] != self.bytes[near[1]]:
                    flips += 1
                    if abs(self.numbers[self.bytes.index(codes[i])] - x) > near[0] * (1 + 1e-4) + 1e-6 * abs(x):
                        wrong.append(f"element {i} of {x} has code {codes[i]}, not {self.bytes[near[1]]}")
        if flips > 2 + len(values) // 500:
            wrong.append(f"{flips} elements are rounded to the second-nearest number")
        return wrong


class States(Case):
    target = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.built = {}  # what compiled each program, when, and what was said

    def on_cuda(self):
        self.target = ["--target=cuda", "--arch=sm_90a", "--stand-in"]
        self.environment |= STAND_IN | UNCHECKED

    def check_accesses(self, command):
        """Two steps in which the stand-in checks what kernels, moves and library calls read and write."""
        self.needs(*command, "--steps", 2, **CHECKED)

    def build(self, out, command, *flags):
        """Returns the command of a run, whose program is compiled with these flags if it is not already there. The accesses of a program for a GPU are checked first."""
        file, key = self.work / out, (flags, (self.work / "model.mlir").stat().st_mtime_ns)
        if not file.exists() or self.built.get(out, [])[:2] != [key, file.stat().st_mtime_ns]:
            said = self.needs("pc-compile", "model.mlir", *flags, f"--report={out}.json", "-o", out).said
            self.built[out] = [key, file.stat().st_mtime_ns, said]
            if "--stand-in" in flags:
                self.check_accesses(command)
        self.said = self.built[out][2]
        return command

    def begin(self):
        (self.work / "config.json").write_text(json.dumps(CONFIG))
        draw = random.Random(1)
        text, at = [], 0
        for _ in range(6000):  # a language with one likely successor of each token
            at = (at * 7 + 3) % 96 if draw.random() < 0.8 else draw.randrange(96)
            text.append(at)
        (self.work / "tokens.bin").write_bytes(array("H", text).tobytes())
        self.model(self.work, 8, 32)

    def compile(self, out, plan="1", *flags, states="8bit", target=None):
        target = self.target if target is None else target
        mesh, *own = (plan.replace("=states", "=states:host") if target else plan).split()
        self.command = ["pc-run", "-n", ranks_of(mesh), f"./{out}", "--", *RUN, *(["--scratch", "."] if "offload" in plan and not target else [])]
        return self.build(out, self.command, *mesh_flags(mesh), *own, f"--states={states}", *target, *flags)

    def tensors(self, folder, file="training_state.safetensors"):
        content = (self.work / folder / file).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        kinds = {"F32": "f", "I8": "b"}
        return {name: (entry["shape"], array(kinds[entry["dtype"]], content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]))
                for name, entry in json.loads(content[8:end]).items() if name != "__metadata__"}

    def coded(self, folder):
        """(name, shape, codes, scales) of each state in codes."""
        all = self.tensors(folder)
        for name, (shape, values) in all.items():
            if values.typecode == "b":
                state, tensor = name.split(".", 1)
                yield name, shape, values, all[f"{state}_scale.{tensor}"][1]

    def steps(self):
        """Each step by itself: f32 states that start from the codes are what the codes are computed from."""
        coded, exact = self.compile("coded"), self.compile("exact", states="f32")
        names = {name for name, *_ in self.coded_after(coded, 1)}
        self.check("states of matrices have codes", names == {f"{state}.{name}" for state in ("exp_avg", "exp_avg_sq") for name in MATRICES}, names)
        for step in (1, 2, 20):
            if step > 1:
                self.needs(*coded, "--steps", step - 1, "--save", "before")
            load = ["--load", "before"] if step > 1 else []
            self.needs(*coded, *load, "--steps", step, "--save", "coded-after")
            done = self.needs(*exact, *load, "--steps", step, "--save", "exact-after")
            if step == 2:
                self.check("converting codes is said", "16 states of before have 8 bits; they were converted to f32 without loss" in done.said, done.said)
            values, wrong = self.tensors("exact-after"), []
            for name, shape, codes, scales in self.coded("coded-after"):
                wrong += [f"{name}: {what}" for what in Codes(name).wrong(shape, values[name][1], codes, scales, rounding=4e-7)]
            self.check(f"step {step}: codes and scales", not wrong, "\n".join(wrong[:5]))
            self.compare(f"step {step}: parameters", "tensors", "exact-after/model.safetensors", "coded-after/model.safetensors", "--tolerance", 1e-6)

    def coded_after(self, command, steps):
        self.needs(*command, "--steps", steps, "--save", "after")
        return self.coded("after")

    def moves(self):
        """Checkpoints of one form are read by programs of the other."""
        coded, exact = self.compile("coded"), self.compile("exact", states="f32")
        self.needs(*coded, "--steps", 5, "--save", "codes")
        self.needs(*exact, "--load", "codes", "--steps", 5, "--save", "numbers")
        self.needs(*self.compile("packed", "1 --pack-products", states="f32"), "--load", "codes", "--steps", 5, "--save", "packed-numbers")
        self.check("parts of a packed parameter become the same numbers", self.tensors("packed-numbers") == self.tensors("numbers"))
        values = self.tensors("numbers")
        same = all(Codes(name).decode(shape, codes, scales) == values[name][1] for name, shape, codes, scales in self.coded("codes"))
        self.check("codes become the f32 numbers that they stand for", same)
        done = self.needs(*coded, "--load", "numbers", "--steps", 5, "--save", "again")
        self.check("rounding is said", "warning: numbers has f32 states; 16 of them were rounded to 8 bits" in done.said, done.said)
        self.check("and give the same codes again", self.tensors("again") == self.tensors("codes"))
        self.needs(*exact, "--steps", 5, "--save", "numbers")
        self.needs(*self.compile("split", "dp=2,tp=2 --zero=1"), "--load", "numbers", "--steps", 5, "--save", "split-codes")
        values, wrong = self.tensors("numbers"), []
        for name, shape, codes, scales in self.coded("split-codes"):
            wrong += [f"{name}: {what}" for what in Codes(name).wrong(shape, values[name][1], codes, scales)]
        self.check("f32 states are rounded to the nearest codes, on four ranks", not wrong, "\n".join(wrong[:5]))
        self.damage(exact)

    def damage(self, exact):
        """A changed scale is found by programs that have scales, and by those that do not."""
        path = self.work / "codes/training_state.safetensors"
        content = bytearray(path.read_bytes())
        end = 8 + int.from_bytes(content[:8], "little")
        entry = json.loads(content[8:end])["exp_avg_scale.transformer.h.0.mlp.c_fc.weight"]
        content[end + entry["data_offsets"][0]] ^= 1
        path.write_bytes(content)
        for command in (exact, ["pc-run", "-n", 1, "./coded", "--", *RUN]):
            self.holds("a changed scale", *command, "--load", "codes", "--steps", 6, code=9, words="'exp_avg_scale.transformer.h.0.mlp.c_fc.weight' was changed after it was saved")

    def plans(self, plans):
        self.needs(*self.compile("one"), "--steps", 20, "--save", "one-after", "--metrics", "one.jsonl")
        for plan in plans:
            command = self.compile("other", plan)
            self.needs(*command, "--steps", 20, "--save", "other-after", "--metrics", "other.jsonl", "--summary", "other.summary", "--check-replicas", 5)
            self.compare(f"{plan}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 3e-2 if "bf16" in plan else 2e-3)
            self.compare(f"{plan}: report and summary", "reports", "other.json", "other.summary")
            self.needs(*command, "--steps", 9, "--save", "part")
            self.needs(*command, "--load", "part", "--steps", 20, "--save", "resumed")
            self.check(f"{plan}: a run that continues has the same bits", self.tensors("resumed") == self.tensors("other-after"))
            self.needs(*self.compile("one"), "--load", "other-after", "--steps", 20, "--save", "moved")
            self.check(f"{plan}: one rank keeps the codes", self.tensors("moved") == self.tensors("other-after"))

    def same_bits(self, ranks=(2, 4, 8)):
        """Data parallelism with and without ZeRO adds the same gradients in the same order. (Their norms are added in another order, but they are not clipped here.)"""
        free = ["--clip", "1e9"]
        for n in ranks:
            self.needs(*self.compile("whole", f"dp={n}"), *free, "--steps", 5, "--save", "whole-after")
            for stage in (1, 2, 3):
                self.needs(*self.compile("split", f"dp={n} --zero={stage}"), *free, "--steps", 5, "--save", "split-after")
                self.check(f"dp={n}: codes of --zero={stage} are those of whole states", self.tensors("split-after") == self.tensors("whole-after"))

    def both_targets(self):
        """A device and CPU ranks continue from each other's codes, and their losses agree."""
        device, ranks = self.compile("device"), self.compile("ranks", "dp=2 --zero=1", target=[])
        self.needs(*device, "--steps", 20, "--save", "from-device", "--metrics", "device.jsonl")
        self.needs(*ranks, "--load", "from-device", "--steps", 20, "--save", "moved")
        self.check("CPU ranks keep the codes of a device", self.tensors("moved") == self.tensors("from-device"))
        self.needs(*ranks, "--steps", 20, "--save", "from-ranks", "--metrics", "ranks.jsonl")
        self.needs(*device, "--load", "from-ranks", "--steps", 20, "--save", "moved")
        self.check("a device keeps the codes of CPU ranks", self.tensors("moved") == self.tensors("from-ranks"))
        self.compare("losses of a device and CPU ranks", "losses", "device.jsonl", "ranks.jsonl", "--tolerance", 2e-3)

    def memory(self):
        """Bytes of states: a code for each element, a scale for each 256, both twice; f32 for the rest."""
        said = self.compile("coded") and self.said
        self.compile("exact", states="f32")
        bytes_of = {out: json.loads((self.work / f"{out}.json").read_text())["per_rank"][0]["memory_at_most"]["optimizer"] for out in ("coded", "exact")}
        elements = 2 * (64 * 192 + 64 * 64 + 2 * 64 * 256)
        less = bytes_of["exact"] - bytes_of["coded"]
        states = json.loads((self.work / "coded.json").read_text())["per_rank"][0]["states"]["bits_8"]
        tensors = 16 if self.target else 24  # queries, keys and values are one parameter of a device
        self.check("the report counts codes and scales", states == dict(tensors=tensors, bytes=2 * elements, scale_bytes=8 * elements // 256), states)
        self.check("a remark says that states are rounded", f"{tensors} states of the optimizer are stored in 8 bits, in {2 * elements + 8 * elements // 256} bytes per rank" in said, said)
        self.check("bytes of states", less == 2 * (4 * elements - elements - 4 * elements // 256), bytes_of, f"{less} fewer")

    def loss(self):
        losses = {}
        for states in ("8bit", "f32"):
            self.needs(*self.compile("train", states=states), "--steps", 100, "--metrics", "m.jsonl", seconds=600)
            lines = [json.loads(line) for line in (self.work / "m.jsonl").read_text().splitlines()]
            last = [line["loss"] for line in lines if "loss" in line][-10:]
            losses[states] = sum(last) / len(last)
        self.check("the loss after 100 steps", abs(losses["8bit"] / losses["f32"] - 1) < 0.01, losses, losses)

    def skips(self):
        """A step without finite gradients changes no code and no scale."""
        wild = [word if word != "3e-3" else "1e30" for word in self.compile("coded")]
        done = self.call(*wild, "--steps", 8, "--save", "bad")
        found = re.search(r"error: .*?step (\d+)", done.said)
        if self.check("the run ends at a skipped step", done.code == 10 and found, done.why()):
            self.needs(*wild, "--steps", found[1], "--save", "good")
            self.check("a skipped step keeps codes and scales", self.tensors("good") == self.tensors("bad"))

    def proof(self):
        """In double precision the plan computes what the step does; steps that round in another way are refused."""
        self.needs("pc-compile", "model.mlir", "--states=8bit", "--to=step", "-o", "step.mlir")
        for to in ("placed", "local", "planned"):
            self.needs("pc-compile", "model.mlir", "--mesh", "dp=2,tp=2", "--zero=1", "--states=8bit", f"--to={to}", "-o", f"{to}.mlir")
            self.holds(f"the step and phase {to}", "pc-equal", "step.mlir", f"{to}.mlir", words="(?m)^equal$")
        text = (self.work / "local.mlir").read_text()
        for name, changed in [("another code", text.replace("pc.encode dynamic unsigned", "pc.encode dynamic", 1)),
                              ("states exchanged", re.sub(r'(pc.update "exp_avg") (of ".*c_fc.weight")', r"\1_sq \2", text, count=1))]:
            (self.work / "mutant.mlir").write_text(changed)
            self.check(f"{name} is refused", changed != text and self.call("pc-opt", "mutant.mlir", f"--pc-prove=reference={self.work / 'step.mlir'}").code != 0)

    def refused(self):
        compile = ["pc-compile", "model.mlir", "-o", "none"]
        self.holds("linear codes", *compile, "--states=int8", code=2, words="small second moments to 0, and training diverges; use --states=8bit")
        self.holds("unknown states", *compile, "--states=4bit", code=2, words="--states=4bit is not a way to store the states of the optimizer")
        self.holds("no training", *compile, "--states=8bit", "--mode=eval", code=2, words="--states is for training; leave out --mode=eval")
        self.holds("another optimizer", *compile, "--states=8bit", "--optimizer=sgd", code=4, words="no step with an update by AdamW")
        (self.work / "config.json").write_text(json.dumps(CONFIG | dict(n_embd=24, n_inner=24)))
        self.model(self.work, 8, 32)
        self.holds("a small model", *compile, "--states=8bit", code=4, words="so all states stay f32; leave out --states")

    @classmethod
    def main(cls, suite):
        """Runs suite(case, quick, cuda), or the method that the command line names."""
        which, *more = sys.argv[1:]
        case = cls(f"{Path(sys.argv[0]).stem}/" + " ".join(sys.argv[1:]))
        if cuda := more[:1] == ["cuda"]:
            case.on_cuda()
            more = more[1:]

        def body():
            case.begin()
            if which in ("quick", "all"):
                return suite(case, which == "quick", cuda)
            getattr(case, which)(*([more] if more else []))

        case.run(body)


def suite(case, quick, cuda):
    case.steps()
    case.moves()
    case.memory()
    if cuda:
        case.both_targets()
    else:
        case.proof()
    if not cuda or not quick:
        case.loss()
    case.skips()
    case.plans(PLANS if quick else PLANS + MORE)
    case.same_bits(*([[2]] if quick else []))


if __name__ == "__main__":
    States.main(suite)
