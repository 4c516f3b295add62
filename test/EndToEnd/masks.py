#!/usr/bin/env python3
"""usage: test/EndToEnd/masks.py activations|weights

Checks bit by bit which elements every plan (the quick run: some) drops. The logits of tiny programs of two layers are
masks: of ones, in both layers, or of the weights of attention, which are all alike. Runs of many plans dump them, and
they are compared with Philox4x32-10 as docs/rationale/dropout.md defines it, which this file implements anew. Gradients
show the elements that the backward pass drops, also if it recomputes: those of activations are masks, too, those of
attention are compared with one device's."""
import json
import struct
import sys

from cases import LONG, STAND_IN, Case, mesh_flags, ranks_of

B, S, SEED, STEP, THRESHOLD = 4, 16, (7 << 32) + 5, 2, 19661
TOKENS = B * S  # token i stands at place i: one place alone adds to a row of the embedding's gradient
ACTIVATIONS = 20  # no multiple of 8, and a half of it is none of 4
KEY_HEADS, GROUP = 2, 2
KEYS = (3, 5)  # of the dropouts
PLANS = ["1", "dp=2", "dp=4", "dp=2 --data-parallel=naive", "dp=2 --zero=1", "dp=2 --zero=2", "dp=2 --zero=3", "rep=2,dp=2 --data-parallel=ddp:rep --zero=3",
         "tp=2", "dp=2,tp=2", "dp=2,tp=2 --zero=3", "tp=2 --sequence-parallel", "tp=2 --sequence-parallel --window=tp", "dp=2,tp=2 --sequence-parallel --zero=1",
         "cp=2 --context-parallel=heads", "cp=2 --context-parallel=ring", "cp=4 --context-parallel=ring", "dp=2,cp=2 --context-parallel=ring",
         "tp=2,cp=2 --context-parallel=ring", "1 --microbatches=2", "1 --microbatches=4", "dp=2 --microbatches=2", "dp=2,tp=2 --microbatches=2",
         "dp=2 --zero=3 --microbatches=2", "1 --recompute=full", "1 --recompute=selective", "1 --recompute=auto --memory-limit=40000000", "tp=2 --recompute=full",
         "tp=2 --recompute=selective", "dp=2 --microbatches=2 --recompute=full", "cp=2 --context-parallel=ring --recompute=full",
         "pp=2 --microbatches=2", "pp=2 --microbatches=4 --pipeline=1f1b", "pp=2 --microbatches=4 --pipeline=gpipe", "pp=2 --microbatches=4 --pipeline=zb-h1",
         "pp=2 --microbatches=2 --recompute=full", "pp=2 --microbatches=2 --recompute=selective", "pp=2,dp=2 --microbatches=2", "pp=2,tp=2 --microbatches=2",
         "1 --precision=bf16"]
# Cuts the last dim where no block of 8 ends.
CUTS_ROWS = "tp=4"
ON_DEVICES = ["1", "dp=2", "tp=2", "cp=2 --context-parallel=ring", "1 --precision=bf16", "tp=2 --recompute=full"]

HEAD = """pc.program "masks" batch {B} sequence {S} vocabulary {T} masked config "{{}}"
func.func @model() {{
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<{B}x{S}xi32>
  %targets = pc.input targets below {L} dims ["batch", "sequence"] : tensor<{B}x{S}xi32>
  %r = pc.input random key {KEY0} dims ["random"] : tensor<5xi32>
  %again = pc.input random key {KEY1} dims ["random"] : tensor<5xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [{T}, {E}], start = [0, 0], size = [{T}, {E}]> : tensor<{T}x{E}xf32>
  %x = pc.embedding %w, %tokens : (tensor<{T}x{E}xf32>, tensor<{B}x{S}xi32>) -> tensor<{B}x{S}x{E}xf32>
"""
TAIL = """  pc.output logits "logits" %logits : tensor<{B}x{S}x{L}xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<{B}x{S}x{L}xf32>, tensor<{B}x{S}xi32>) -> tensor<{B}x{S}xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<{B}x{S}xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 1.5625e-02 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}}
"""
# A matrix of ones on the diagonal.
SAME = """  %{NAME} = pc.parameter "{SOURCE}" dims {DIMS} init <fill, 0.0> source <"{SOURCE}", shape = [{L}, {L}], start = [0, 0], size = [{L}, {L}]> : tensor<{L}x{L}xf32>
  %{OUT} = pc.einsum "b s e, e f -> b s f" %{IN}, %{NAME} : (tensor<{B}x{S}x{L}xf32>, tensor<{L}x{L}xf32>) -> tensor<{B}x{S}x{L}xf32> loc("{SOURCE}")
"""
DROP = """  %{OUT} = pc.dropout %{IN} random %{WORDS} drop <{P}> : (tensor<{B}x{S}x{L}xf32>, tensor<5xi32>) -> tensor<{B}x{S}x{L}xf32> loc("{SOURCE}")
"""
# Values are one at the position of their key and zero elsewhere, so o holds the weights of its query. The logits hold
# the weights of all heads, one after the other.
OF_WEIGHTS = """  %zq = pc.parameter "h.0.zq" dims ["embed", "kv_heads", "group", "head_dim"] init <fill, 0.0> source <"h.0.zq", shape = [{E}, {L}], start = [0, 0], size = [{E}, {L}]> : tensor<{E}x{K}x{G}x{S}xf32>
  %zk = pc.parameter "h.0.zk" dims ["embed", "kv_heads", "head_dim"] init <fill, 0.0> source <"h.0.zk", shape = [{E}, {KS}], start = [0, 0], size = [{E}, {KS}]> : tensor<{E}x{K}x{S}xf32>
  %one = pc.parameter "h.0.one" dims ["embed", "kv_heads", "head_dim"] init <fill, 0.0> source <"h.0.one", shape = [{E}, {KS}], start = [0, 0], size = [{E}, {KS}]> : tensor<{E}x{K}x{S}xf32>
  %side = pc.parameter "h.0.side" dims ["kv_heads", "group", "head_dim", "out"] init <fill, 0.0> source <"h.0.side", shape = [{L}, {L}], start = [0, 0], size = [{L}, {L}]> : tensor<{K}x{G}x{S}x{L}xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %zq : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{G}x{S}xf32>) -> tensor<{B}x{S}x{K}x{G}x{S}xf32> loc("h.0.attn")
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %zk : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{S}xf32>) -> tensor<{B}x{S}x{K}x{S}xf32> loc("h.0.attn")
  %v = pc.einsum "b s e, e k d -> b s k d" %x, %one : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{S}xf32>) -> tensor<{B}x{S}x{K}x{S}xf32> loc("h.0.attn")
  %o, %lse = pc.attention %q, %k, %v random %r scale 1.0 drop <{P}> : (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{B}x{S}x{K}x{S}xf32>, tensor<{B}x{S}x{K}x{S}xf32>, tensor<5xi32>) -> (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{B}x{K}x{G}x{S}xf32>) loc("h.0.attn")
  %a = pc.einsum "b s k g d, k g d v -> b s v" %o, %side : (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{K}x{G}x{S}x{L}xf32>) -> tensor<{B}x{S}x{L}xf32> loc("h.0.attn")
"""


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def masks(shape, key):
    """Returns, for the elements of a value of this shape, row by row, whether they are kept."""
    rows, last = 1, -(-shape[-1] // 8) * 8
    for size in shape[:-1]:
        rows *= size
    kept = []
    for row in range(rows):
        for i in range(row * last, row * last + shape[-1]):
            words = philox((i // 8 & 0xFFFFFFFF, i // 8 >> 32, STEP, (1 << 31) + key), (SEED & 0xFFFFFFFF, SEED >> 32))
            kept.append((words[i % 8 // 2] >> 16 * (i % 2) & 0xFFFF) >= THRESHOLD)
    return kept


def diagonal(rows, columns):
    return [rows, columns], [float(i // columns == i % columns % rows) for i in range(rows * columns)]


def safetensors(tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        bits = struct.pack(f"<{len(values)}f", *values)
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + len(bits)])
        data += bits
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read(path, name):
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    entry = json.loads(content[8:end])[name]
    first, last = entry["data_offsets"]
    return struct.unpack(f"<{(last - first) // 4}f", content[end + first : end + last])


class Masks(Case):
    def written(self, what):
        """Writes the program with its weights and data. Returns what it drops."""
        of_activations = what == "activations"
        L, E = (ACTIVATIONS, ACTIVATIONS) if of_activations else (KEY_HEADS * GROUP * S, S)
        sizes = dict(B=B, S=S, T=TOKENS, E=E, L=L, K=KEY_HEADS, G=GROUP, KS=KEY_HEADS * S, P=THRESHOLD, KEY0=KEYS[0], KEY1=KEYS[1])
        tensors = {"w": ([TOKENS, E], [1.0] * (TOKENS * E))}
        body = OF_WEIGHTS
        if of_activations:
            body = SAME.format(NAME="in0", SOURCE="h.0.in", DIMS='["embed", "ffn"]', IN="x", OUT="wide", **sizes) + DROP.format(
                IN="wide", OUT="less", WORDS="r", SOURCE="h.0.drop", **sizes) + SAME.format(NAME="out0", SOURCE="h.0.out", DIMS='["ffn", "embed"]', IN="less", OUT="a", **sizes)
        else:
            zeros = lambda rows, columns: ([rows, columns], [0.0] * (rows * columns))
            rows = [float(column == row % S) for row in range(TOKENS) for column in range(S)]
            tensors = {"w": ([TOKENS, S], rows), "h.0.one": diagonal(E, KEY_HEADS * S), "h.0.side": diagonal(L, L), "h.0.zq": zeros(E, L),
                       "h.0.zk": zeros(E, KEY_HEADS * S)}
        text = HEAD + body + SAME.format(NAME="in1", SOURCE="h.1.in", DIMS='["embed", "ffn"]', IN="a", OUT="b", **sizes)
        text += DROP.format(IN="b", OUT="c", WORDS="again", SOURCE="h.1.drop", **sizes) if of_activations else ""
        text += SAME.format(NAME="out1", SOURCE="h.1.out", DIMS='["ffn", "embed"]', IN="c" if of_activations else "b", OUT="logits", **sizes)
        if not of_activations:
            text = text.replace("  %again = pc.input random key {KEY1} dims [\"random\"] : tensor<5xi32>\n", "")
        tensors |= {name: diagonal(L, L) for name in ("h.0.in", "h.0.out", "h.1.in", "h.1.out") if f'"{name}"' in text}
        (self.work / "model.mlir").write_text((text + TAIL).format(**sizes))
        (self.work / "weights").mkdir()
        (self.work / "weights/config.json").write_text("{}")
        (self.work / "weights/model.safetensors").write_bytes(safetensors(tensors))
        (self.work / "tokens.bin").write_bytes(struct.pack(f"<{TOKENS}H", *range(TOKENS)))
        (self.work / "targets.bin").write_bytes(struct.pack(f"<{TOKENS}H", *(7 * i % L for i in range(TOKENS))))
        return self.expected(what)

    def expected(self, what):
        if what == "activations":
            return [a and b for a, b in zip(*(masks([B, S, ACTIVATIONS], key) for key in KEYS))]
        of = masks([B, KEY_HEADS, GROUP, S, S], KEYS[0])
        heads = KEY_HEADS * GROUP
        return [of[((b * heads + h) * S + s) * S + t] for b in range(B) for s in range(S) for h in range(heads) for t in range(S)]

    def plan(self, plan, want, target):
        mesh, *flags = plan.split()
        name = plan + (" on devices" if target else "")
        done = self.call("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, *target, "-o", "train")
        if not self.check(f"{name}: compiles", done.code == 0, done.why()):
            return
        # With a learning rate of 0, the model is the same in every step. The dumped logits and gradients are those of
        # the last step.
        run = ["pc-run", "-n", ranks_of(mesh), "./train", "--", "--data", "tokens.bin", "--targets", "targets.bin", "--lr", 0, "--weight-decay", 0, "--seed", SEED]
        self.needs(*run, "--init", "weights", "--steps", 1, "--save", "before")
        for step in range(2, STEP + 2):
            self.needs(*run, "--load", "before", "--steps", step, "--save", "before", "--dump-logits", "logits.safetensors", "--dump-grads", "grads.safetensors")
        self.kept(name, want, "logits")
        if sys.argv[1] == "activations":
            self.kept(f"{name}, backward", want, "grads", "w")
        exact = "bf16" not in plan
        if not self.one_device.exists():
            (self.work / "grads.safetensors").rename(self.one_device)
        else:
            self.compare(f"{name}: gradients of one device", "tensors", self.one_device, "grads.safetensors", "--tolerance", 1e-5 if exact else 2e-2)

    def targets_outside(self, classes):
        """A target that is a word but no class."""
        (self.work / "words.bin").write_bytes(struct.pack(f"<{TOKENS}H", *(classes if i == 3 else 0 for i in range(TOKENS))))
        done = self.call("pc-run", "-n", 1, "./train", "--", "--data", "tokens.bin", "--targets", "words.bin", "--init", "weights", "--steps", 1)
        self.check("a target outside of the logits", done.code == 9 and f"target {classes} at position 3 is not below {classes}" in done.err, done.why())

    def kept(self, name, want, file, tensor="logits"):
        got = [x != 0 for x in read(self.work / f"{file}.safetensors", tensor)]
        wrong = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), None)
        self.check(name, got == want, f"element {wrong} of {len(want)}, {len(got)} dumped", f"{sum(got)} of {len(got)} kept")

    def body(self):
        want = self.written(sys.argv[1])
        self.one_device = self.work / "one-device.safetensors"
        plans = PLANS + [CUTS_ROWS] * (sys.argv[1] == "activations")
        for plan in plans if LONG else plans[::5]:
            self.plan(plan, want, [])
            if plan == "1":
                self.targets_outside(len(want) // TOKENS)
        self.environment = dict(STAND_IN)
        for plan in ON_DEVICES if LONG else ON_DEVICES[2::3]:
            self.plan(plan, want, ["--target=cuda", "--arch=sm_90a", "--stand-in"])


if __name__ == "__main__":
    case = Masks(" ".join(["masks.py", *sys.argv[1:]]))
    case.run(case.body)
