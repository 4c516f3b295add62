"""usage: step_times.py PADDED.json BF16.json ODD.json: predicted seconds of three reports of GPT-2 124M, and what its layers move."""
import json
import sys

padded, bf16, odd = (json.load(open(path)) for path in sys.argv[1:])


def milliseconds(report):
    return report["predicted"]["step_seconds"] * 1e3


def moved(report):
    """Activations that the norms' kernels move a layer, with what they do of the residual stream and of sums; of those that every layer launches."""
    unit, layers = report["activation"]["bytes"], report["activation"]["count"]
    return sum((row["read_bytes"] + row["written_bytes"]) / unit / layers for row in report["kernels"]
               if row["kind"] in ("norm", "reduction", "elementwise", "cast") and 2 * row["launches"] > layers)


ms, more = milliseconds(padded), milliseconds(odd) - milliseconds(padded)
print(f"within 15 % of 32 ms: {ms:.1f} {0.85 * 32 <= ms <= 1.15 * 32}")
print(f"13 to 19 ms more where the vocabulary is not padded: {more:.1f} {13 <= more <= 19}")
print(f"at most 27.9 activations a layer for norms, residual and sums, 16.4 with a residual stream of bf16: {moved(padded):.2f}, {moved(bf16):.2f} "
      f"{moved(padded) <= 27.9 and moved(bf16) <= 16.4}")
