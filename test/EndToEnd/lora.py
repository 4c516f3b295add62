#!/usr/bin/env python3
"""usage: test/EndToEnd/lora.py quick|all|torch|write [MODEL...]

LoRA on golden models of several families. On one rank 20 steps have the losses of PEFT with torch's AdamW (golden/lora.json), memory has the closed form, and
nothing of the base is saved. Every other plan makes the steps of one rank. An adapter is loaded again, continued with the same bits, refused for another base, rank,
alpha or other targets, and merged. With `torch`, PEFT itself loads what is saved and computes the same logits, gradients, adapters and merged model; `write` also
writes golden/lora.json."""
import json
import re
import shutil
import struct
import sys

from cases import BIN, GOLDEN, STAND_IN, Case, data_flags, mesh_flags, ranks_of
from frozen import tensors
from masks import read

TARGETS = {"gpt2": "c_attn|c_proj", "llama": "q_proj|v_proj|down_proj", "phi3": "qkv_proj|gate_up_proj", "gpt_neox": "query_key_value|dense", "qwen3_moe": "q_proj|v_proj|o_proj",
           "bert": "query|value", "t5": "q|v|wo"}
QUICK = {"gpt2": ["dp=2 --zero=3", "tp=2", "pp=2 --microbatches=2"], "qwen3_moe": ["ep=2"]}
PLANS = ["dp=2", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "tp=2", "dp=2,tp=2", "pp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=zb-h1", "tp=2 --sequence-parallel",
         "1 --recompute=full", "1 --microbatches=2", "1 --pack-products", "dp=2 --zero=3 --precision=bf16"]
ONLY = {"qwen3_moe": ["ep=2", "dp=2,ep=2"], "llama": ["cp=2 --context-parallel=ring", "row=2,col=2 --tensor-parallel=2d", "dp=2,tp=2 --zero=3"]}
LORA = "rank=4,alpha=6,targets="
STEPS = ["--lr", 1e-3, "--weight-decay", 0.1, "--clip", 1, "--seed", 3]
FIGURES = GOLDEN / "lora.json"


def write_tensors(path, values):
    """Writes {name: (shape, list of numbers)} as f32."""
    header, data = {}, b""
    for name, (shape, numbers) in sorted(values.items()):
        raw = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Lora(Case):
    def compile(self, out, *flags, targets=None, lora=None):
        self.needs("pc-compile", "model.mlir", *(["--lora", lora or LORA + (targets or TARGETS[self.family])]), *flags, "-o", out)

    def begin(self, family):
        """Draws an adapter; its B, which are zeros, get other values, so that A has a gradient from the first step on."""
        self.family = family
        shutil.rmtree(self.work)
        self.work.mkdir()
        self.model(family, 4, 16, "--dropout=0")
        self.compile("draw")
        self.data = data_flags(family)
        self.needs("./draw", *self.data, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--seed", 3, "--save", "drawn")
        drawn = tensors(self.work / "drawn/adapter_model.safetensors")
        lows = [read(self.work / "drawn/adapter_model.safetensors", name) for name in drawn if "lora_B" in name]
        self.check(f"{family}: B starts as zeros", lows and all(not any(low) for low in lows))
        (self.work / "start").mkdir()
        shutil.copy(self.work / "drawn/adapter_config.json", self.work / "start")
        values = {}
        for name, (_, shape, _) in drawn.items():
            numbers = read(self.work / "drawn/adapter_model.safetensors", name)
            values[name] = shape, [((i * 37 + 11) % 101 - 50) / 1000 for i in range(len(numbers))] if "lora_B" in name else numbers
        write_tensors(self.work / "start/adapter_model.safetensors", values)
        self.adapter = values

    def run_plan(self, plan, out, *flags, steps=20):
        mesh, *own = plan.split()
        self.compile(f"{out}-train", *mesh_flags(mesh), *own, *flags, f"--report={out}.json")
        self.needs("pc-run", "-n", ranks_of(mesh), f"./{out}-train", "--", *self.data, *STEPS, "--steps", steps, "--adapter", "start", "--save", out, "--metrics", f"{out}.jsonl",
                   "--dump-grads", f"{out}.grads", "--dump-logits", f"{out}.logits", "--summary", f"{out}.summary", "--check-replicas", 5)

    def losses(self, out):
        return [json.loads(line)["loss"] for line in open(self.work / f"{out}.jsonl")]

    def near(self, name, found, wanted, tolerance=1e-5):
        worst = max(abs(x - y) / max(abs(y), 1e-9) for x, y in zip(found, wanted, strict=True))
        self.check(name, worst <= tolerance, f"{worst}: {found}, wanted {wanted}")

    def one(self):
        self.run_plan("1", "one")
        family = self.family
        if FIGURES.exists() and family in (figures := json.loads(FIGURES.read_text())):
            self.near(f"{family}: losses of PEFT", self.losses("one"), figures[family]["losses"])
        saved = tensors(self.work / "one/adapter_model.safetensors")
        self.check(f"{family}: saved tensors", saved.keys() == self.adapter.keys() and not (self.work / "one/model.safetensors").exists(), saved.keys())
        self.check(f"{family}: gradients of the adapter alone", tensors(self.work / "one.grads").keys() == saved.keys())
        state = {name.partition(".")[2] for name in tensors(self.work / "one/training_state.safetensors")}
        self.check(f"{family}: states of the adapter alone", state == saved.keys(), state)
        self.needs("pc-compile", "model.mlir", "--to=planned", "-o", "plain.mlir", "--report=plain.json")
        memory, plain = (json.load(open(self.work / f"{name}.json"))["per_rank"][0]["memory_at_most"] for name in ("one", "plain"))
        size = sum(len(data) for _, _, data in saved.values())
        self.check(f"{family}: bytes of parameters", memory["parameters"] == plain["parameters"] + size, f"{memory}, not {plain} and {size}")
        self.check(f"{family}: bytes of states", memory["optimizer"] == 2 * size, f"{memory}, not {2 * size}")

    def plan(self, plan, *flags):
        name, exact = f"{self.family}: {plan} {' '.join(flags)}".strip(), "bf16" not in plan
        self.run_plan(plan, "other", *flags)
        one = "one"
        if not exact:  # beside one rank that rounds as well
            one = "rounded"
            self.run_plan("1 --precision=bf16", one)
        self.compare(f"{name}: losses", "losses", "one.jsonl", "other.jsonl", "--tolerance", 1e-5 if exact else 2e-2)
        self.compare(f"{name}: gradients", "tensors", f"{one}.grads", "other.grads", "--tolerance", 1e-5 if exact else 0.05)
        self.compare(f"{name}: adapter", "tensors", f"{one}/adapter_model.safetensors", "other/adapter_model.safetensors", "--tolerance", 1e-4 if exact else 0.1)
        self.compare(f"{name}: report and summary", "reports", "other.json", "other.summary")
        moves = {"dp=2": ["all_reduce"], "dp=2 --zero=1": ["all_gather", "reduce_scatter"]}
        if plan in moves:  # besides the loss and the norm
            size = sum(4 * len(numbers) for _, numbers in self.adapter.values())
            sent = [(move["move"], move["payload_bytes"] // size * size) for move in json.load(open(self.work / "other.json"))["per_rank"][0]["traffic"] if move["payload_bytes"] > 4]
            self.check(f"{name}: only the adapter's bytes are sent", sorted(sent) == [(move, size) for move in moves[plan]], f"{sent}, not {size}")

    def mutants(self):
        """A placed program with another factor, without an addend, or with the base in training is refused."""
        flags = ["pc-compile", "model.mlir", "--mesh", "tp=2", "--lora", LORA + TARGETS[self.family]]
        for phase in ("step", "placed"):
            self.needs(*flags, f"--to={phase}", "-o", f"{phase}.mlir")
        text = (self.work / "placed.mlir").read_text()
        for name, pattern, instead in (("another factor", "by 1.500000e[+]00", "by 1.250000e+00"), ("no addend", r"(pc\.scale [^\n]*\n[^\n]*pc\.add (%\w+), )%\w+", r"\1\2"),
                                       ("a base in training", r'(c_attn\.weight:q") frozen', r"\1"), ("another adapter", r'h\.0(\.attn\.c_attn\.lora_B\.weight", shape)', r"h.1\1")):
            mutant, count = re.subn(pattern, instead, text, count=1)
            (self.work / "mutant.mlir").write_text(mutant)
            done = self.call("pc-compile", "mutant.mlir", "--reference=step.mlir", "-o", "mutant")
            self.check(f"{self.family}: {name} is refused", count and done.code == 5, done.why())

    def breaks(self):
        """A run that is continued, also on another mesh, has the bits of one without a break."""
        run = ["./draw", *self.data, *STEPS]
        self.needs(*run, "--steps", 20, "--adapter", "start", "--save", "whole")
        self.needs(*run, "--steps", 8, "--adapter", "start", "--save", "part")
        self.needs(*run, "--steps", 20, "--load", "part", "--save", "part")
        for file in ("adapter_model.safetensors", "training_state.safetensors"):
            self.same(f"{self.family}: {file} of a run with a break", f"whole/{file}", f"part/{file}")
        self.compile("two", "--mesh", "dp=2", "--zero=3")
        self.needs("pc-run", "-n", 2, "./two", "--", *self.data, *STEPS, "--steps", 20, "--load", "whole", "--save", "again", "--summary", "two.summary")
        self.same(f"{self.family}: what another mesh saves again", "whole/adapter_model.safetensors", "again/adapter_model.safetensors")

    def refusals(self):
        run = ["./draw", *self.data, *STEPS, "--steps", 21]
        other = self.work / "base"
        shutil.copytree(GOLDEN / self.family, other)
        file = other / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-4] + struct.pack("<f", 0.125))
        last = max(tensors(file).items(), key=lambda item: json.loads(file.read_bytes()[8:8 + int.from_bytes(file.read_bytes()[:8], "little")])[item[0]]["data_offsets"][1])[0]
        for flag in ("--load", "--adapter"):
            self.holds(f"{flag}: another base", *run, flag, "whole", "--init", other, code=2, words=f"whole is an adapter of another model than .*: tensor '{last}' has checksum")
        self.compile("rank", lora="rank=2,alpha=6,targets=" + TARGETS[self.family])
        self.compile("alpha", lora="rank=4,alpha=5,targets=" + TARGETS[self.family])
        self.compile("less", lora=LORA + TARGETS[self.family].partition("|")[0])
        self.needs("pc-compile", "model.mlir", "-o", "plain")
        for flag in ("--load", "--adapter"):
            self.holds(f"{flag}: another rank", "./rank", *run[1:], flag, "whole", code=2, words="'r' is 4, but the program was compiled for 2")
            self.holds(f"{flag}: another alpha", "./alpha", *run[1:], flag, "whole", code=2, words="'lora_alpha' is 6, but the program was compiled for 5")
            self.holds(f"{flag}: other targets", "./less", *run[1:], flag, "whole", code=2, words="tensor 'base_model.model.*lora_[AB].weight' is not part of this program's adapter")
        shutil.copytree(self.work / "start", self.work / "wide")  # PEFT's directory, of a base with wider layers; it has no checksums of the base
        write_tensors(self.work / "wide/adapter_model.safetensors", {name: ([size * 2 for size in shape], numbers * 4) for name, (shape, numbers) in self.adapter.items()})
        self.holds("an adapter of a wider base", *run, "--adapter", "wide", code=2, words=r"wide/.*: tensor 'base_model.model.*' has shape \[\d+, \d+\], but this program's base needs shape")
        self.holds("pc-merge: an adapter of a wider base", "pc-merge", GOLDEN / self.family, "wide", "-o", "no", code=2, words="has matrices A .* but '.*weight' in .* is ")
        self.holds("a model instead of an adapter", *run, "--adapter", GOLDEN / self.family, code=9, words="is not an adapter: it has no adapter_config.json")
        self.holds("an adapter for a program without one", "./plain", *run[1:], "--adapter", "whole", code=2, words="--adapter needs a program compiled with --lora")
        self.holds("a checkpoint of an adapter for a program without one", "./plain", *run[1:], "--load", "whole", code=9, words="whole holds an adapter")
        settings = json.loads((self.work / "whole/adapter_config.json").read_text())
        for key, value in (("use_dora", True), ("rank_pattern", {"q_proj": 8}), ("peft_type", "IA3")):
            shutil.rmtree(self.work / "odd", ignore_errors=True)
            shutil.copytree(self.work / "start", self.work / "odd")
            (self.work / "odd/adapter_config.json").write_text(json.dumps(settings | {key: value}))
            self.holds(f"an adapter with {key}", *run, "--adapter", "odd", code=9, words=f"'{key}' is ")
            self.holds(f"pc-merge: an adapter with {key}", "pc-merge", GOLDEN / self.family, "odd", "-o", "no", code=9, words=f"'{key}' is ")
        self.holds("pc-merge: another base", "pc-merge", other, "whole", "-o", "no", code=2, words=f"tensor '{last}' has checksum")
        self.holds("pc-merge: no room", "bash", "-c", f"ulimit -f 8; {BIN}/pc-merge {GOLDEN / self.family} start -o no", code=6, words="cannot write no.tmp-.*File too large")
        self.check("pc-merge leaves nothing", not list(self.work.glob("no*")), list(self.work.glob("no*")))
        self.needs("pc-merge", GOLDEN / self.family, "start", "-o", "there")
        self.holds("pc-merge: a directory that is there", "pc-merge", GOLDEN / self.family, "start", "-o", "there", code=2, words="there exists already")

    def merge(self):
        """The merged model has the loss of the base with its adapter; also where the base is sharded and in bf16."""
        evaluate = [*self.data, "--eval", "--steps", 2]
        self.compile("eval-lora", "--mode=eval")
        self.needs("pc-compile", "model.mlir", "--mode=eval", "-o", "eval-plain")
        self.needs("pc-merge", GOLDEN / self.family, "whole", "-o", "merged")
        one, other = (self.needs(*command, *evaluate, "--metrics", f"{name}.jsonl") and self.losses(name)
                      for name, command in (("apart", ["./eval-lora", "--load", "whole"]), ("joined", ["./eval-plain", "--init", "merged"])))
        self.near(f"{self.family}: loss of the merged model", other, one)
        base, merged = tensors(GOLDEN / self.family / "model.safetensors"), tensors(self.work / "merged/model.safetensors")
        changed = {name for name in base if base[name] != merged[name]}
        modules = {name.removeprefix("base_model.model.").removesuffix(".lora_A.weight") + ".weight" for name in self.adapter if "lora_A" in name}
        self.check(f"{self.family}: only weights with an adapter change", changed == {name for name in base if name in modules or "transformer." + name in modules}, changed)
        self.sharded_bf16(base)

    def sharded_bf16(self, base):
        folder = self.work / "sharded"
        folder.mkdir(exist_ok=True)
        shutil.copy(GOLDEN / self.family / "config.json", folder)
        where = {}
        for part, names in enumerate((sorted(base)[::2], sorted(base)[1::2])):
            file, header, data = f"model-0000{part + 1}-of-00002.safetensors", {}, b""
            for name in names:
                raw = b"".join(base[name][2][i + 2:i + 4] for i in range(0, len(base[name][2]), 4))  # truncated
                header[name] = {"dtype": "BF16", "shape": base[name][1], "data_offsets": [len(data), len(data) + len(raw)]}
                data += raw
                where[name] = file
            text = json.dumps(header).encode()
            (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
        self.needs("pc-merge", folder, "start", "-o", "merged-bf16")
        names = sorted(path.name for path in (self.work / "merged-bf16").iterdir())
        self.check(f"{self.family}: files of a sharded model", names == sorted(path.name for path in folder.iterdir()), names)
        self.needs("./eval-plain", *self.data, "--eval", "--steps", 2, "--init", "merged-bf16", "--metrics", "rounded.jsonl")
        self.needs("./eval-lora", *self.data, "--eval", "--steps", 2, "--init", folder, "--adapter", "start", "--metrics", "exact.jsonl")
        self.near(f"{self.family}: loss of the model merged in bf16", self.losses("rounded"), self.losses("exact"), 2e-3)

    def torch(self, write):
        """PEFT with the same adapter."""
        family = self.family
        done = self.call(sys.executable, GOLDEN / "lora_reference.py", family, "start", "peft", "peft-merged")
        if not self.check(f"{family}: PEFT loads the adapter", done.code == 0, done.why() + done.said[-2000:]):
            return
        made = json.loads((self.work / "peft.json").read_text())
        self.near(f"{family}: PEFT's losses", self.losses("one"), made["losses"])
        for prefix, file in (("logits", "one.logits"), ("grad.", "one.grads"), ("after.", "one/adapter_model.safetensors")):
            names = [name for name in tensors(self.work / "peft.safetensors") if name.startswith(prefix)]
            self.check(f"{family}: PEFT has as many tensors", len(names) == (1 if prefix == "logits" else len(self.adapter)), names)
            for name in names:
                want, got = read(self.work / "peft.safetensors", name), read(self.work / file, name.removeprefix("grad.").removeprefix("after."))
                worst = max(abs(x - y) for x, y in zip(want, got, strict=True)) / max(map(abs, want))
                if not worst <= (1e-4 if prefix == "after." else 2e-5):
                    self.check(f"{family}: {name}", False, worst)
        self.needs("pc-merge", GOLDEN / family, "start", "-o", "our-merged")
        self.compare(f"{family}: PEFT's merged model", "tensors", "peft-merged/model.safetensors", "our-merged/model.safetensors", "--tolerance", 1e-6)
        done = self.call(sys.executable, GOLDEN / "lora_reference.py", family, "one", "again")
        self.check(f"{family}: PEFT loads what was trained", done.code == 0, done.why())
        if write:
            figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
            figures[family] = {"losses": made["losses"]}
            FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")

    def body(self):
        self.environment = {"PCRT_THREADS": "1"}
        mode, *families = sys.argv[1:]
        for family in families or (QUICK if mode == "quick" else TARGETS):
            self.begin(family)
            self.one()
            if mode in ("torch", "write"):
                self.torch(mode == "write")
                continue
            for plan in QUICK.get(family, []) if mode == "quick" else [*PLANS, *ONLY.get(family, [])]:
                self.plan(plan)
            if family == "gpt2":
                self.mutants()
                self.breaks()
                self.merge()
                self.refusals()
            self.environment |= STAND_IN
            self.plan("dp=2 --zero=3", "--target=cuda", "--arch=sm_90a", "--stand-in")
            self.environment = {"PCRT_THREADS": "1"}


if __name__ == "__main__":
    case = Lora("lora " + " ".join(sys.argv[1:]))
    case.run(case.body)
