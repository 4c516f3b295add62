#!/usr/bin/env python3
"""usage: test/EndToEnd/variants.py WAY...     WAY: a method of Variants below

Ways to say the same thing: config.json as transformers 4 wrote it, weights in two shards, bytes as text, tokens of 32 bits, a plan from a file, drawn
weights under every plan, torchrun's environment, another batch. None may change the result; another model, and ranks that are not alike, are refused."""
import json
import re
import struct
import subprocess
import sys

from cases import GOLDEN, HERE, LONG, MPI, Case, mesh_flags, ranks_of

TRAIN = "--steps 3 --lr 1e-3 --weight-decay 0.1 --clip 1.0 --seed 1".split()
MESHES = ("1", "tp=2", "dp=2,tp=2") if LONG else ("1", "dp=2,tp=2")


def tensors(path):
    """Of a safetensors file: name -> its header entry and bytes."""
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8:start])
    entries.pop("__metadata__", None)
    return {name: (entry, data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]) for name, entry in entries.items()}


def write_tensors(path, entries):
    header, data = {}, b""
    for name, (entry, content) in entries.items():
        header[name] = entry | {"data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Variants(Case):
    def config(self, folder, model, *edits):
        """A folder with a golden model's config.json alone, edited: pairs of a pattern and what takes its place."""
        text = (GOLDEN / model / "config.json").read_text()
        for pattern, new in edits:
            text, count = re.subn(pattern, new, text)
            assert count, pattern
        (self.work / folder).mkdir(exist_ok=True)
        (self.work / folder / "config.json").write_text(text)
        return self.work / folder

    def program(self, model, name, *flags, batch=4, sequence=16):
        """Imports a golden model or a folder, and compiles it."""
        self.model(model, batch, sequence, to=f"{name}.mlir")
        self.needs("pc-compile", f"{name}.mlir", "-o", name, *flags)

    def train(self, program, ranks, out, *flags, model=None):
        """Trains and leaves OUT.jsonl and OUT/model.safetensors; from a golden model's weights on its tokens, where it is named."""
        data = ["--init", GOLDEN / model, "--data", GOLDEN / model / "tokens.bin"] if model else []
        self.needs("pc-run", "-n", ranks, f"./{program}", "--", *TRAIN, "--metrics", f"{out}.jsonl", "--save", out, *data, *flags, seconds=120)

    def same_models(self, name, one, other):
        self.same(name, f"{one}/model.safetensors", f"{other}/model.safetensors")

    def transformers_4(self):
        """The same rope, in two keys of their older names."""
        old = self.config("v4", "llama", (',\n    "rope_theta": [0-9.]+', ""), ('"dtype"', '"torch_dtype"'),
                          (r'"rope_parameters": \{', '"rope_theta": 10000.0,\n  "rope_scaling": {'))
        (old / "model.safetensors").write_bytes((GOLDEN / "llama/model.safetensors").read_bytes())
        texts = [re.sub(r"(?m)^.*pc\.program.*\n", "", self.model(source, to="model.mlir").read_text()).replace(str(source), "SOURCE")
                 for source in (old, GOLDEN / "llama")]
        self.same("a config of transformers 4 gives the same program", *(text.encode() for text in texts))

    def shards(self):
        whole, folder = tensors(GOLDEN / "qwen2/model.safetensors"), self.config("sharded", "qwen2")
        names, place = list(whole), {}
        for shard, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
            file = f"model-0000{shard}-of-00002.safetensors"
            write_tensors(folder / file, {name: whole[name] for name in part})
            place |= dict.fromkeys(part, file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place}))
        self.program(folder, "sharded-model", "--mesh", "tp=2")
        self.train("sharded-model", 2, "by-file", model="qwen2")
        self.train("sharded-model", 2, "by-shards", "--init", folder, model="qwen2")
        self.same_models("weights in two shards are the same weights", "by-shards", "by-file")

    def drawn_weights(self):
        folder = self.config("drawn", "gpt2-odd")
        self.holds("a config alone says that weights will be drawn", "pc-import", "--batch", 4, "--seq", 16, folder, "-o", "drawn.mlir",
                   words="drawn: remark: .*a run draws them")
        text = bytes(c for c in (HERE / "compare.cpp").read_bytes()[:5000].upper() if c < 89)  # the vocabulary
        (self.work / "text").write_bytes(text)
        (self.work / "tokens.bin").write_bytes(b"".join(struct.pack("<H", c) for c in text))
        for mesh in MESHES:
            self.program(folder, f"drawn-{mesh}", *mesh_flags(mesh))
            self.train(f"drawn-{mesh}", ranks_of(mesh), f"out-{mesh}", "--data", "text:text")
            self.compare(f"drawn weights on {mesh}: the same losses", "losses", "out-1.jsonl", f"out-{mesh}.jsonl", "--tolerance", 1e-6)
        self.train("drawn-1", 1, "tokens", "--data", "tokens.bin")
        self.same_models("text:FILE reads its bytes", "out-1", "tokens")

    def drawn_padding(self):
        """A drawn padding row starts as zeros, on every plan, and nothing else is drawn otherwise; of a tied head, too."""
        for model, row in (("llama", 63), ("llama-tied", 88)):
            data = ["--steps", 0, "--data", GOLDEN / model / "tokens.bin"]
            self.program(self.config("plain", model, ('"pad_token_id": .*,', '"pad_token_id": null,')), "plain-model")
            self.train("plain-model", 1, "plain-out", *data)
            want = tensors(self.work / "plain-out/model.safetensors")
            entry, table = want["model.embed_tokens.weight"]
            want["model.embed_tokens.weight"] = entry, table[: 128 * row] + bytes(128) + table[128 * (row + 1) :]
            for mesh in MESHES:
                self.program(self.config("padded", model), "padded-model", *mesh_flags(mesh))
                self.train("padded-model", ranks_of(mesh), "out", *data)
                got = tensors(self.work / "out/model.safetensors")
                self.check(f"{model}, drawn on {mesh}: the padding row is zero, and it alone", got == want,
                           [name for name in want if want[name] != got.get(name)])

    def wide_tokens(self):
        """A vocabulary of more than 16 bits."""
        folder = self.config("wide", "llama", ('"vocab_size": [0-9]+', '"vocab_size": 70000'), ('"num_hidden_layers": [0-9]+', '"num_hidden_layers": 1'))
        tokens = [60000 + i * 3217 % 10000 for i in range(150)]
        words = struct.pack("<150I", *tokens)
        (self.work / "wide.bin").write_bytes(words)
        (self.work / "wide-7.bin").write_bytes(struct.pack("<3I", 20240801, 7, 150) + bytes(1012) + words)
        (self.work / "cut.bin").write_bytes(struct.pack("<150H", *(token & 0xFFFF for token in tokens)))
        for mesh in ("1", "dp=2,tp=2"):
            self.program(folder, f"wide-{mesh}", *mesh_flags(mesh))
            self.train(f"wide-{mesh}", ranks_of(mesh), f"out-{mesh}", "--data", "u32:wide.bin")
        self.compare("a vocabulary of 70000 under a plan", "losses", "out-1.jsonl", "out-dp=2,tp=2.jsonl", "--tolerance", 1e-6)
        self.train("wide-1", 1, "version-7", "--data", "wide-7.bin")
        self.train("wide-1", 1, "cut", "--data", "cut.bin")
        self.same_models("llm.c's version 7: the same bits", "out-1", "version-7")
        self.check("16 bits would be others", tensors(self.work / "cut/model.safetensors") != tensors(self.work / "out-1/model.safetensors"))

    def plan_file(self):
        self.model()
        self.needs("pc-compile", "model.mlir", "--mesh", "dp=2,tp=2", "--to=planned", "-o", "by-flags.mlir", "--emit-plan=plan.mlir")
        self.needs("pc-compile", "model.mlir", "--plan=plan.mlir", "--to=planned", "-o", "by-plan.mlir")
        self.same("a plan from a file is the plan of its flags", "by-flags.mlir", "by-plan.mlir")

    def torchrun(self):
        """Two processes started by hand with its variables, without pc-run; and by mpirun, which starts what it is told to."""
        self.program("gpt2", "two", "--mesh", "dp=2")
        self.train("two", 2, "launched", model="gpt2")
        flags = ["--init", GOLDEN / "gpt2", "--data", GOLDEN / "gpt2/tokens.bin"]
        processes = [self.start("timeout", 60, "./two", *TRAIN, *flags, "--save", "by-hand", stderr=subprocess.STDOUT, RANK=rank, LOCAL_RANK=rank,
                                WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29611") for rank in "01"]
        said = [process.communicate()[0] for process in processes]
        if self.check("torchrun's environment", not any(process.returncode for process in processes), "\n".join(said)):
            self.same_models("torchrun's environment: the same bits", "launched", "by-hand")
        ranks = [["-n", 1, "./two", "--steps", 3, *flags, "--lr", rate] for rate in ("1e-3", "2e-3")]
        self.holds("mpirun with two rates", "mpirun", "--oversubscribe", *ranks[0], ":", *ranks[1], code=2, **MPI,
                   words="not started alike: --lr: 0.001 on rank 0; 0.002 on rank 1")

    def another_batch(self):
        """A checkpoint of another batch goes on with the sample behind those that were read; another sequence has to be asked for."""
        tokens = GOLDEN / "gpt2/tokens.bin"
        change = ["--load", "seven", "--lr-steps", 3, "--data", tokens, "--change"]
        self.program("gpt2", "four")
        self.program("gpt2", "eight", "--mesh", "dp=2,tp=2", batch=8)
        self.program("gpt2", "short", batch=8, sequence=8)
        self.train("four", 1, "seven", "--steps", 7, model="gpt2")
        self.train("eight", 4, "then", "--steps", 8, *change, "lr-steps")
        # The same batch as the first one of a file that begins with sample 28.
        (self.work / "behind.bin").write_bytes(tokens.read_bytes()[2 * 28 * 16 :])
        self.train("eight", 4, "behind", "--steps", 1, "--init", "seven", "--data", "behind.bin")
        (self.work / "behind-7.jsonl").write_text((self.work / "behind.jsonl").read_text().replace('"step": 0', '"step": 7'))
        self.compare("another batch begins with the next sample", "losses", "then.jsonl", "behind-7.jsonl", "--tolerance", 1e-6)
        self.holds("another sequence is asked for", "pc-run", "-n", 1, "./short", "--", *TRAIN, "--steps", 9, *change, "lr-steps", code=2,
                   words="sequence: 16 there, 8 here")
        self.train("short", 1, "shorter", "--steps", 8, *change, "lr-steps,sequence")

    def another_model(self):
        """Shapes tell neither heads nor layers."""
        self.program("gpt2", "four")
        self.train("four", 1, "two-layers", "--steps", 1, model="gpt2")
        for key, old, new in (("n_head", 4, 8), ("n_layer", 2, 1), ("activation_function", '"gelu_new"', '"relu"')):
            self.program(self.config(f"other-{key}", "gpt2", (f'"{key}": {old}', f'"{key}": {new}')), "other", "--mesh", "dp=2")
            for flag in ("--load", "--init"):
                self.holds(f"{flag} of another {key}", "pc-run", "-n", 2, "./other", "--", *TRAIN, "--steps", 2, flag, "two-layers", "--data",
                           GOLDEN / "gpt2/tokens.bin", code=9, words=f"two-layers/config.json: '{key}' is ")

    def body(self):
        for way in sys.argv[1:]:
            getattr(self, way)()


variants = Variants("variants-" + "-".join(sys.argv[1:]))
variants.run(variants.body)
