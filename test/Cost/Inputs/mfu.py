"""usage: mfu.py flops REPORT BF16_REPORT, or run FOLDER PROGRAM BF16_PROGRAM

flops: model_flops of the reports must be those of the model's products, three times a forward pass, also if it is
recomputed. run: metrics and the progress line show an MFU only if the machine's file has measured rates for this
processor, and the MFU must be the model's flops over these rates."""
import json
import os
import shutil
import subprocess
import sys

if sys.argv[1] == "flops":
    plain, rounded = (json.load(open(path)) for path in sys.argv[2:])
    # The flops are those of queries, keys, values and output, the three products of a feed-forward layer, the two of
    # attention, the logits, and the sum of losses, each 3 times: forward once and backward twice.
    config = json.load(open(os.path.join(os.path.dirname(__file__), "../../../examples/tour/config.json")))
    c, inner, v, b, t = config["hidden_size"], config["intermediate_size"], config["vocab_size"], 4, 8
    forward = 2 * b * t * (config["num_hidden_layers"] * (4 * c * c + 3 * c * inner + 2 * t * c) + v * c + 1)
    assert plain["model_flops"] == {"f32": 3 * forward, "bf16": 0}, (plain["model_flops"], 3 * forward)
    assert sum(rounded["model_flops"].values()) == 3 * forward and rounded["model_flops"]["bf16"] > 0, rounded["model_flops"]
    assert rounded["flops_per_step"] > plain["flops_per_step"], "the forward pass is computed again"
    sys.exit()

folder, programs = sys.argv[2], sys.argv[3:]
shutil.rmtree(folder, ignore_errors=True)
os.makedirs(f"{folder}/pc")
open(f"{folder}/tokens.bin", "wb").write(bytes(4000))
processor = next((line.split(": ", 1)[1].rstrip("\n") for line in open("/proc/cpuinfo") if line.startswith("model name")), "CPU")


def run(program, machine):
    """The lines of metrics, and the progress line, on a machine that was measured so."""
    path = f"{folder}/pc/here.json"
    if os.path.exists(path):
        os.remove(path)
    if machine is not None:
        open(path, "w").write(machine if isinstance(machine, str) else json.dumps(machine))
    said = subprocess.run(["pc-run", "-n", "2", program, "--", "--data", f"{folder}/tokens.bin", "--steps", "2", "--metrics", f"{folder}/metrics"],
                          env=os.environ | {"XDG_CACHE_HOME": folder, "PCRT_THREADS": "1"}, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in open(f"{folder}/metrics")], said


def flops(program):
    summary = f"{folder}/summary"
    subprocess.run(["pc-run", "-n", "2", program, "--", "--data", f"{folder}/tokens.bin", "--steps", "1", "--summary", summary], check=True, capture_output=True)
    return json.load(open(summary))["model_flops"]


def machine(threads, name=processor, **rates):
    return {"like": "cpu", "measured": {"threads": threads, "processor": name}, **rates}


wanted = flops(programs[0])["f32"] / 2 / 1e9  # seconds of a rank at the rate of one of two cores
lines, said = run(programs[0], machine(2, f32_flops=2e9))
assert all(abs(line["mfu"] * line["step_seconds"] / wanted - 1) < 1e-4 for line in lines) and "  MFU " in said, (lines, wanted, said)
for other in (None, "no JSON", machine(2, "another processor", f32_flops=2e9), machine(0, f32_flops=2e9), {"like": "cpu", "f32_flops": 2e9}, machine(2)):
    lines, said = run(programs[0], other)
    assert not any("mfu" in line for line in lines) and "MFU" not in said, (other, said)
assert "mfu" not in run(programs[1], machine(1, f32_flops=1e9))[0][0], "a rate of bf16 that nobody measured"
both = flops(programs[1])
lines, _ = run(programs[1], machine(1, f32_flops=1e9, bf16_flops=3e9))
wanted = (both["f32"] / 1e9 + both["bf16"] / 3e9) / 2
assert all(abs(line["mfu"] * line["step_seconds"] / wanted - 1) < 1e-4 for line in lines), (lines, wanted)
