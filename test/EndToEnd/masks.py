#!/usr/bin/env python3
"""usage: test/EndToEnd/masks.py activations|weights

What every plan (the quick run: every second one) drops, bit by bit: tiny programs whose logits are masks (of ones; or of the weights of attention, which are all alike), dumped by
runs of many plans and compared with Philox4x32-10 as docs/rationale/dropout.md says, written here anew."""
import json
import struct
import sys

from cases import LONG, STAND_IN, Case, mesh_flags, ranks_of

B, S, SEED, STEP, THRESHOLD = 4, 16, (7 << 32) + 5, 2, 19661
# Logits are [b, s, v]. Of activations, x is all ones.
ACTIVATIONS = 20  # no multiple of 8, and a half of it is none of 4
KEY_HEADS, GROUP = 2, 2
PLANS = ["1", "dp=2", "dp=4", "dp=2 --data-parallel=naive", "dp=2 --zero=3", "tp=2", "dp=2,tp=2", "tp=2 --sequence-parallel", "cp=2 --context-parallel=heads",
         "cp=2 --context-parallel=ring", "cp=4 --context-parallel=ring", "dp=2,cp=2 --context-parallel=ring", "1 --microbatches=2",
         "dp=2 --microbatches=2", "tp=2 --recompute=full", "1 --precision=bf16"]
# Cuts the last dim where no block of 8 ends.
CUTS_ROWS = "row=2,col=2 --tensor-parallel=2d"
ON_DEVICES = ["1", "dp=2", "tp=2", "cp=2 --context-parallel=ring", "1 --precision=bf16"]

HEAD = """pc.program "masks" batch {B} sequence {S} vocabulary {V} config "{{}}"
func.func @model() {{
  %tokens = pc.input tokens dims ["batch", "sequence"] : tensor<{B}x{S}xi32>
  %targets = pc.input targets dims ["batch", "sequence"] : tensor<{B}x{S}xi32>
  %r = pc.input random key 3 dims ["random"] : tensor<5xi32>
  %w = pc.parameter "w" dims ["vocab", "embed"] init <fill, 1.0> source <"w", shape = [{V}, {E}], start = [0, 0], size = [{V}, {E}]> : tensor<{V}x{E}xf32>
  %x = pc.embedding %w, %tokens : (tensor<{V}x{E}xf32>, tensor<{B}x{S}xi32>) -> tensor<{B}x{S}x{E}xf32>
"""
TAIL = """  pc.output logits "logits" %logits : tensor<{B}x{S}x{L}xf32>
  %nll = pc.cross_entropy %logits, %targets : (tensor<{B}x{S}x{L}xf32>, tensor<{B}x{S}xi32>) -> tensor<{B}x{S}xf32>
  %sum = pc.einsum "b s ->" %nll : (tensor<{B}x{S}xf32>) -> tensor<f32>
  %loss = pc.scale %sum by 1.5625e-02 : (tensor<f32>) -> tensor<f32>
  pc.output loss "loss" %loss : tensor<f32>
  return
}}
"""
OF_ACTIVATIONS = """  %logits = pc.dropout %x random %r drop <{P}> : (tensor<{B}x{S}x{E}xf32>, tensor<5xi32>) -> tensor<{B}x{S}x{L}xf32>
"""
# Every token is its position, and x is one there. Of values that are x, o has the weights of its query; logits have those of all heads side by side.
OF_WEIGHTS = """  %zq = pc.parameter "zq" dims ["embed", "kv_heads", "group", "head_dim"] init <fill, 0.0> source <"zq", shape = [{E}, {L}], start = [0, 0], size = [{E}, {L}]> : tensor<{E}x{K}x{G}x{S}xf32>
  %zk = pc.parameter "zk" dims ["embed", "kv_heads", "head_dim"] init <fill, 0.0> source <"zk", shape = [{E}, {KS}], start = [0, 0], size = [{E}, {KS}]> : tensor<{E}x{K}x{S}xf32>
  %one = pc.parameter "one" dims ["embed", "kv_heads", "head_dim"] init <fill, 0.0> source <"one", shape = [{E}, {KS}], start = [0, 0], size = [{E}, {KS}]> : tensor<{E}x{K}x{S}xf32>
  %side = pc.parameter "side" dims ["kv_heads", "group", "head_dim", "out"] init <fill, 0.0> source <"side", shape = [{L}, {L}], start = [0, 0], size = [{L}, {L}]> : tensor<{K}x{G}x{S}x{L}xf32>
  %q = pc.einsum "b s e, e k g d -> b s k g d" %x, %zq : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{G}x{S}xf32>) -> tensor<{B}x{S}x{K}x{G}x{S}xf32>
  %k = pc.einsum "b s e, e k d -> b s k d" %x, %zk : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{S}xf32>) -> tensor<{B}x{S}x{K}x{S}xf32>
  %v = pc.einsum "b s e, e k d -> b s k d" %x, %one : (tensor<{B}x{S}x{E}xf32>, tensor<{E}x{K}x{S}xf32>) -> tensor<{B}x{S}x{K}x{S}xf32>
  %o, %lse = pc.attention %q, %k, %v random %r scale 1.0 drop <{P}> : (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{B}x{S}x{K}x{S}xf32>, tensor<{B}x{S}x{K}x{S}xf32>, tensor<5xi32>) -> (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{B}x{K}x{G}x{S}xf32>)
  %logits = pc.einsum "b s k g d, k g d v -> b s v" %o, %side : (tensor<{B}x{S}x{K}x{G}x{S}xf32>, tensor<{K}x{G}x{S}x{L}xf32>) -> tensor<{B}x{S}x{L}xf32>
"""


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def masks(shape):
    """Of a value of this shape, row by row: whether its elements are kept."""
    rows, last = 1, -(-shape[-1] // 8) * 8
    for size in shape[:-1]:
        rows *= size
    kept = []
    for row in range(rows):
        for i in range(row * last, row * last + shape[-1]):
            words = philox((i // 8 & 0xFFFFFFFF, i // 8 >> 32, STEP, (1 << 31) + 3), (SEED & 0xFFFFFFFF, SEED >> 32))
            kept.append((words[i % 8 // 2] >> 16 * (i % 2) & 0xFFFF) >= THRESHOLD)
    return kept


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
    def model_of(self, what):
        L, E = (ACTIVATIONS, ACTIVATIONS) if what == "activations" else (KEY_HEADS * GROUP * S, S)
        sizes = dict(B=B, S=S, V=L, E=E, L=L, K=KEY_HEADS, G=GROUP, KS=KEY_HEADS * S, P=THRESHOLD)
        body = OF_ACTIVATIONS if what == "activations" else OF_WEIGHTS
        (self.work / "model.mlir").write_text((HEAD + body + TAIL).format(**sizes))
        tensors = {"w": ([L, E], [1.0] * (L * E))}
        if what == "weights":
            ones = lambda rows, columns: ([rows, columns], [float(i // columns == i % columns % rows) for i in range(rows * columns)])
            zeros = lambda rows, columns: ([rows, columns], [0.0] * (rows * columns))
            tensors = {"w": ones(L, E), "one": ones(E, KEY_HEADS * S), "side": ones(L, L), "zq": zeros(E, L), "zk": zeros(E, KEY_HEADS * S)}
        (self.work / "weights").mkdir()
        (self.work / "weights/config.json").write_text("{}")
        (self.work / "weights/model.safetensors").write_bytes(safetensors(tensors))
        (self.work / "tokens.bin").write_bytes(struct.pack(f"<{B * S}H", *(i % S for i in range(B * S))))
        return self.expected(what)

    def expected(self, what):
        if what == "activations":
            return masks([B, S, ACTIVATIONS])
        of = masks([B, KEY_HEADS, GROUP, S, S])
        heads = KEY_HEADS * GROUP
        return [of[((b * heads + h) * S + s) * S + t] for b in range(B) for s in range(S) for h in range(heads) for t in range(S)]

    def plan(self, plan, want, target):
        mesh, *flags = plan.split()
        name = plan + (" on devices" if target else "")
        done = self.call("pc-compile", "model.mlir", *mesh_flags(mesh), *flags, *target, "-o", "train")
        if not self.check(f"{name}: compiles", done.code == 0, done.why()):
            return
        # Learning nothing, the model is the same in every step; the last one's logits are dumped.
        self.needs("pc-run", "-n", ranks_of(mesh), "./train", "--", "--data", "tokens.bin", "--init", "weights", "--steps", 1, "--lr", 0, "--weight-decay", 0,
                   "--seed", SEED, "--save", "before")
        for step in range(2, STEP + 2):
            self.needs("pc-run", "-n", ranks_of(mesh), "./train", "--", "--data", "tokens.bin", "--load", "before", "--steps", step, "--lr", 0, "--weight-decay", 0,
                       "--seed", SEED, "--save", "before", "--dump-logits", "logits.safetensors")
        got = [x != 0 for x in read(self.work / "logits.safetensors", "logits")]
        wrong = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), None)
        self.check(name, got == want, f"element {wrong} of {len(want)}, {len(got)} dumped", f"{sum(got)} of {len(got)} kept")

    def body(self):
        want = self.model_of(sys.argv[1])
        plans = PLANS + [CUTS_ROWS] * (sys.argv[1] == "activations")
        for plan in plans if LONG else plans[::2]:
            self.plan(plan, want, [])
        self.environment = dict(STAND_IN)
        for plan in ON_DEVICES if LONG else ON_DEVICES[1::2]:
            self.plan(plan, want, ["--target=cuda", "--arch=sm_90a", "--stand-in"])


if __name__ == "__main__":
    case = Masks(" ".join(["masks.py", *sys.argv[1:]]))
    case.run(case.body)
