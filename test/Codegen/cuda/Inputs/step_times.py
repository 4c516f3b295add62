"""usage: step_times.py BASE

Prints the predicted seconds of a step of GPT-2 124M, and the bytes that layers move, of the reports BASE.json,
BASE.f32.json, ..."""
import json
import sys


def report(name):
    with open(f"{sys.argv[1]}{name}.json") as file:
        return json.load(file)


def milliseconds(name):
    return report(name)["predicted"]["step_seconds"] * 1e3


def moved(name, kinds):
    """Activations that kernels of these kinds move a layer; of those that every layer launches."""
    what = report(name)
    unit, layers = what["activation"]["bytes"], what["activation"]["count"]
    return sum((row["read_bytes"] + row["written_bytes"]) / unit / layers for row in what["kernels"]
               if row["kind"] in kinds and 2 * row["launches"] > layers)


ms, more = milliseconds(""), milliseconds(".odd") - milliseconds("")
print(f"within 15 % of 32 ms: {ms:.1f} {0.85 * 32 <= ms <= 1.15 * 32}")
print(f"13 to 19 ms more where the vocabulary is not padded: {more:.1f} {13 <= more <= 19}")
# Llama's elementwise kernels rotate and multiply. They compute no norms.
for model, name, most, most_f32, kinds in [("GPT-2", "", 16.4, 27.9, ("norm", "reduction", "elementwise", "cast")),
                                           ("Llama", ".llama", 17.5, 26.9, ("norm", "reduction", "cast"))]:
    bf16, f32 = moved(name, kinds), moved(f"{name}.f32", kinds)
    print(f"{model}, at most {most} activations a layer for norms, residual and sums: {bf16:.2f} {bf16 <= most}")
    print(f"{model}, at most {most_f32} with a residual stream of f32: {f32:.2f} {f32 <= most_f32}")
