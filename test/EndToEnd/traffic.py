#!/usr/bin/env python3
"""usage: test/EndToEnd/traffic.py [--write]

Compiles one small Llama under every form of data and tensor parallelism and compares the bytes that a rank sends in a step, as the
compiler's report counts them, with the published formulas, in docs/rationale/traffic.md. --write makes it anew.
"""
from pages import Page, table

L, b, s, h, f, v = 2, 16, 8, 128, 256, 256  # layers, batch, sequence, width, ffn, vocabulary; kv heads as query heads
CONFIG = dict(model_type="llama", vocab_size=v, hidden_size=h, intermediate_size=f, num_hidden_layers=L, num_attention_heads=8,
              num_key_value_heads=8, head_dim=h // 8, tie_word_embeddings=False)
norms, words = (2 * L + 1) * h, v * h
linears = L * (4 * h * h + 3 * h * f) + h * v
P = norms + words + linears
T = b * s
DP = "S. Li et al., VLDB 2020"
ZERO = "S. Rajbhandari et al., SC 2020, section 7"
MEGATRON = "M. Shoeybi et al., 2019"
SP = "V. Korthikanti et al., MLSys 2023"
ULYSSES = "S. A. Jacobs et al., 2023"
RING = "H. Liu et al., 2023 (Ring attention)"
OPTIMUS = "Q. Xu et al., 2021 (Optimus)"
TESSERACT = "B. Wang et al., 2021 (Tesseract)"
THREE = "Z. Bian et al., 2021 (3D)"


def grid2d(q, d=1):
    """Elements that 2D or 2.5D moves along rows and columns: per linear, activations 3(q-1)/q of T K/(d q) and weights 3(q-1)/q of K N/q;
    linears with one input share what is done to it."""
    activations = 3 * T // d * (L * (h + h + h + f) + h) + 2 * T // d * h  # qkv, o, gate and up, down; head; embedding
    weights = 3 * linears + 2 * words  # the table is not read in the backward pass
    vectors = 3 * norms  # split over both axes, gathered on rows
    return (q - 1) * (activations + weights + vectors) // (q * q)


def grid3d(q):
    """Per linear: x gathered twice and its gradient scattered, y scattered and its gradient gathered, W gathered twice and its gradient
    scattered, each (q-1)/q of 1/q^2 of T K, T N or K N."""
    pairs = [(h, 3 * h), (h, h), (h, 2 * f), (f, h)] * L + [(h, v)]
    activations = sum(3 * T * k + 2 * T * n for k, n in pairs) + 2 * T * h
    weights = 3 * linears + 2 * words
    vectors = q * 3 * norms + 2 * norms  # split over j and i; gradients summed over l
    statistics = 2 * T * (2 * (2 * L + 1) + 2)
    return (q - 1) * (activations + weights + vectors + statistics) // (q * q * q)


# (form, mesh, flags, axes counted or all, what is left out, formula, source, elements)
def rows():
    for n in (2, 4):
        ar = 2 * (n - 1)
        yield "DDP", f"dp={n}", "", "2(n-1)/n P + 1 scalar", DP, ar * (P + 1) / n
        # Root: parameters and gradients to and from n - 1 ranks; tokens, targets, the loss's terms and their gradients.
        yield ("naive DP, root", f"dp={n}", "--data-parallel=naive", "2(n-1) P + 4(n-1)/n bs", "nn.DataParallel (PyTorch)",
               2 * (n - 1) * P + 4 * (n - 1) * T / n)
        yield "ZeRO-1", f"dp={n}", "--zero=1", "2(n-1)/n P", ZERO, ar * P / n
        yield "ZeRO-2", f"dp={n}", "--zero=2", "2(n-1)/n P", ZERO, ar * P / n
        yield "ZeRO-2, M = 4", f"dp={n}", "--zero=2 --microbatches=4", "(M+1)(n-1)/n P", ZERO, 5 * (n - 1) * P / n
        yield "ZeRO-3", f"dp={n}", "--zero=3", "3(n-1)/n P, the embedding once less", ZERO, (n - 1) * (3 * P - words) / n
        yield ("ZeRO-3, M = 4", f"dp={n}", "--zero=3 --microbatches=4", "3M(n-1)/n P, the embedding M times less", ZERO,
               4 * (n - 1) * (3 * P - words) / n)
        layer = 4 * h * h + 3 * h * f + 2 * h
        yield ("ZeRO-3, last layer kept", f"dp={n}", "--zero=3 --zero-keep=layers.1.*", "the same, the last layer once less", ZERO,
               (n - 1) * (3 * P - words - layer) / n)
        yield ("ZeRO-3, all kept, M = 4", f"dp={n}", "--zero=3 --zero-keep=* --microbatches=4", "(M+1)(n-1)/n P", ZERO,
               5 * (n - 1) * P / n)
        yield ("1D", f"tp={n}", "", "(4L+2) 2(n-1)/n bsh + 2 2(n-1)/n bs + 1 scalar", MEGATRON,
               ar * ((4 * L + 2) * T * h + 2 * T + 1) / n)
        yield ("1D + SP", f"tp={n}", "--sequence-parallel", "the same + 2(n-1)/n of the norms", SP,
               ar * ((4 * L + 2) * T * h + 2 * T + norms + 1) / n)
        yield ("CP by heads", f"cp={n}", "", "8L(n-1)/n^2 bsh + 2(n-1)/n P + 1 scalar", ULYSSES,
               8 * L * (n - 1) * T * h / n**2 + ar * (P + 1) / n)
        # Keys and values go round forward and backward, their gradients backward.
        yield ("CP by ring", f"cp={n}", "--context-parallel=ring", "6L(n-1)/n bs kv + 2(n-1)/n P + 1 scalar", RING,
               6 * L * (n - 1) * T * h / n + ar * (P + 1) / n)
    # Statistics: 2 sums a norm forward and backward together, and the loss's two, of [b, s] over columns.
    q = 2
    stats = 2 * (q - 1) * T * (2 * (2 * L + 1) + 2) / q**2
    yield "2D", "row=2,col=2", "--tensor-parallel=2d", "3(q-1)/q^2 (TK + KN) a linear", OPTIMUS, grid2d(q) + stats
    yield ("2.5D", "depth=2,row=2,col=2", "--tensor-parallel=2.5d", "3(q-1)/q^2 (TK/d + KN) a linear + 2(d-1)/d P/q^2", TESSERACT,
           grid2d(q, 2) + stats / 2 + 2 * P / 2 / q**2)
    yield "3D", "i=2,j=2,l=2", "--tensor-parallel=3d", "(q-1)/q^3 (3TK + 2TN + 3KN) a linear", THREE, grid3d(q)


def counted(test):
    """A row of the table for every form, whose count is what the formula says."""
    test.load(b, s, **CONFIG)
    for form, mesh, flags, formula, source, elements in rows():
        # Scalars (loss, norm of the gradient) are left out: below 16 bytes each.
        count = sum(t["wire_bytes"] for t in test.report("--mesh", mesh, *flags.split())["per_rank"][0]["traffic"]
                    if t["payload_bytes"] > 16 * t["count"])
        test.check(f"{form} {mesh}", count == 4 * elements, f"predicted {int(4 * elements)}, counted {count}")
        yield f"| {form} | `{mesh} {flags}`".rstrip() + f" | {formula} | {source} | {int(4 * elements)} | {count} |"


def tables():
    yield table("form | plan | formula | source | predicted | counted", list(counted(test)))
    test.check("parameters in the text", f"P = {P} parameters" in test.page.read_text(), P)


test = Page()
test.make(tables)
