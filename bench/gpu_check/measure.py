"""Measures the rows of the pack. Every kind of row has a function here that runs one program, fills the row with
figures from the program's output, and returns the row's state and a note. Output of a program that exceeded its time
counts, too."""

import json
import math
import re
import statistics
import struct
import sys

import process


def objects(text):
    """Returns the JSON objects in the output of a program, one per line. Other lines are skipped, and so is a last line
    that is cut short."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


def read_objects(path):
    return objects(path.read_text(errors="replace")) if path.exists() else []


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


# --- tensors ------------------------------------------------------------------


def read_tensors(path):
    """Name -> values of the f32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
    return tensors


def largest_difference(expected, got, prefix=""):
    """Largest |a - b| / max(1, largest |a| of the tensor) over the tensors of `got`, and where. A tensor that `expected` lacks counts
    as infinitely different."""
    worst, where = 0.0, "none"
    for name, values in got.items():
        want = expected.get(prefix + name)
        if want is None or len(want) != len(values):
            return math.inf, name
        scale = max(1.0, max(map(abs, want)))
        for a, b in zip(want, values):
            difference = abs(a - b) / scale if math.isfinite(b) else math.inf
            if difference > worst:
                worst, where = difference, name
    return worst, where


def apart(expected, got):
    """Largest relative difference of losses in the steps that ran; infinite where one is no number, or nothing to compare with."""
    if not got or len(got) > len(expected):
        return math.inf
    return max(abs(a - b) / abs(a) if math.isfinite(b) else math.inf for a, b in zip(expected, got))


# --- training -----------------------------------------------------------------


def time_steps(row, seconds, losses):
    """Median and spread of steps: the first ones warm up. False where too few ran."""
    timed = seconds[min(10, len(seconds) // 3):]
    row["losses"], row["steps"] = losses, len(seconds)
    if len(timed) < 2:
        return False
    cuts = statistics.quantiles(timed, n=10, method="inclusive")
    row["step_seconds"], row["step_seconds_spread"] = statistics.median(timed), [cuts[0], cuts[-1]]
    row["step_seconds_least"], row["step_seconds_most"], row["steps_timed"] = min(timed), max(timed), len(timed)
    row["tokens_per_second"] = row["batch"] * row["sequence"] / row["step_seconds"]
    return True


def describe_speed(row):
    low, high = row["step_seconds_spread"]
    return (f"{row['tokens_per_second']:.0f} tokens/s, a step {row['step_seconds'] * 1e3:.2f} ms "
            f"({low * 1e3:.2f} to {high * 1e3:.2f}, {row['steps_timed']} steps)")


# What is tried where a training row fails, one at a time: calls of NCCL that block, as PyTorch's do (several devices), no graph, no cuDNN, and
# at last a wait after every call, for the name of the fault.
FALLBACKS = [{"PCRT_NCCL_BLOCKING": 1}, {"PCRT_CUDA_GRAPH": 0}, {"PCRT_CUDA_ATTENTION": "own"}, {"PCRT_CUDA_BLOCKING": 1}]


def train(row, call):
    """Runs a row. If it fails, runs it again in other ways, until one succeeds. The row says which way succeeded, and
    what the others reported."""
    usual, failures = row.get("environment", {}), []
    fallbacks = FALLBACKS if row.get("devices", 1) > 1 else FALLBACKS[1:]
    for other in [{}, *fallbacks]:
        row["environment"] = usual | other
        how = ", ".join(f"{name}={value}" for name, value in other.items())
        state, note = train_once(row, call)
        if state != "failed":
            break
        failures.append(f"{how + ': ' if how else ''}{note}")
        set_aside(call.folder, how or "first")
    if not failures:
        return state, note
    row["failures"] = failures
    if state == "failed":
        return state, "; ".join(failures)
    return state, f"with {how}: {note}; failed before: {'; '.join(failures)}"


def set_aside(folder, name):
    """Moves the output of a program into a folder, so that the next one does not overwrite it."""
    to = folder / name
    files = [path for path in folder.iterdir() if path.is_file()]
    to.mkdir()
    for path in files:
        path.rename(to / path.name)


def train_once(row, call):
    """Training by a program of ours: AdamW, clip 1.0, as torch_train.py does it."""
    folder = call.folder
    ended = call.run([call.pc_run, "-n", 1, call.program(row["program"]), "--", "--data", row["data"], "--steps", row["steps_asked"],
                      "--lr", "3e-4", "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1", "--metrics", folder / "metrics.jsonl",
                      "--summary", folder / "summary.json", "--trace", folder / "trace.json"], **row.get("environment", {}))
    metrics, summary = read_objects(folder / "metrics.jsonl"), read_json(folder / "summary.json")
    steps = metrics[:-1] if ended.code == 0 else metrics  # the last one is traced
    measured = time_steps(row, [line["step_seconds"] for line in steps], [line["loss"] for line in metrics])
    row["flops_per_step"], row["device"] = summary.get("flops_per_step"), summary.get("device", {})
    row["time_by_kind"], row["peak_rss_bytes"] = summary.get("time_by_kind"), summary.get("peak_rss_bytes")
    row["longest_calls"] = times_by_name(read_json(folder / "trace.json"))
    said = describe_speed(row) if measured else ""
    if ended.code != 0:
        return call.state_of(ended), f"{call.why(ended)}{f'; {len(steps)} steps before: {said}' if measured else ''}"
    losses = row["losses"]
    if not losses or not all(map(math.isfinite, losses)) or len(losses) > 10 and losses[-1] > losses[0] + 1:
        return "failed", f"the losses are {losses[:3]} ... {losses[-3:]}"
    return "ok", said or f"{row['steps']} steps, too few to time"


def times_by_name(trace):
    """Seconds in the traced step by call, the longest first."""
    totals = {}
    for event in trace if isinstance(trace, list) else trace.get("traceEvents", []):
        if event.get("ph") == "X":
            entry = totals.setdefault(event["name"], [0, 0.0])
            entry[0] += 1
            entry[1] += event["dur"] * 1e-6
    return [{"name": name, "calls": calls, "seconds": seconds}
            for name, (calls, seconds) in sorted(totals.items(), key=lambda item: -item[1][1])[:40]]


# torch_train.py's exit code where PyTorch, or a device for it, is not there.
NO_TORCH = 6


def torch(row, call):
    """The same training by PyTorch. Its absence is no failure; its warnings go to standard error, which is not parsed."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": call.work / "inductor", "TRITON_CACHE_DIR": call.work / "triton", "PYTHONUNBUFFERED": 1}
    ended = call.run([sys.executable, call.pack / "torch_train.py", "--config", row["config"], "--data", row["data"].partition(":")[2],
                      "--batch", row["batch"], "--sequence", row["sequence"], "--precision", row["precision"], "--steps",
                      row["steps_asked"], *(["--compile"] if row["mode"] == "compile" else [])], **caches)
    said = [line for line in objects(ended.output()) if "step_seconds" in line]
    if ended.code == NO_TORCH:
        return "absent", ended.last_line()
    if ended.code != 0:
        return call.state_of(ended), call.why(ended)
    if not said:
        return "failed", f"it wrote no figures; its last words: {ended.last_line()}"
    row["torch"], row["peak_bytes"] = said[-1]["torch"], said[-1]["peak_bytes"]
    call.versions["torch"] = row["torch"]
    if not time_steps(row, said[-1]["step_seconds"], said[-1]["losses"]):
        return "failed", f"{row['steps']} steps, too few to time"
    note, ours = describe_speed(row), call.results.rows.get(row["beside"], {})
    if "tokens_per_second" in ours:
        row["ours_over_theirs"] = ours["tokens_per_second"] / row["tokens_per_second"]
        note += f"; ours is {row['ours_over_theirs']:.2f} times as fast" + ("" if ours["call"] == call.number else " (in an earlier call)")
    return "ok", note


# --- kernels ------------------------------------------------------------------


def kernels(row, call):
    """Compares every generated kernel with the CPU's result for the same ops, and every product with sums in double
    precision. Also gives the shares of the speed of a large copy and a large product in the same program."""
    ended = call.run([call.program(row["program"]), "--check-kernels"])
    lines = objects(ended.output())
    row["roofs"], row["cases"] = (lines or [{}])[0], lines[1:]
    bad = [case for case in row["cases"] if not case["ok"]]
    for case in row["cases"]:
        if case.get("seconds", 0) > 0 and "copy_bytes_per_second" in row["roofs"]:
            done, roof = ((case["flops"], row["roofs"]["bf16_flops_per_second"]) if "flops" in case else
                          (case["bytes"], row["roofs"]["copy_bytes_per_second"]))
            case["share"] = done / case["seconds"] / roof
    asked = row["roofs"].get("cases", "?")
    note = f"{len(row['cases']) - len(bad)} of {asked} kernels and products are as on the CPU"
    if bad:
        return "failed", note + ": " + ", ".join(f"{case.get('kernel', case.get('product'))}: {case['error']}" for case in bad[:5])
    if ended.code != 0:
        return call.state_of(ended), f"{note}; {call.why(ended)}"
    return ("ok" if row["cases"] and len(row["cases"]) == asked else "failed"), note


# --- plans --------------------------------------------------------------------

# Largest differences from PyTorch's golden figures, and from one rank. Ranks have products of other shapes than one rank, for which
# cuBLASLt takes other algorithms, and those add in other orders: in 20 steps losses part by up to 1e-4 where nothing is wrong.
FROM_PYTORCH = {"f32": 1e-4, "bf16": 3e-2}
FROM_ONE_RANK = {"f32": 1e-4, "bf16": 1e-2}


def plan(row, call):
    """A plan on virtual ranks of one device, against PyTorch's golden figures, the plan of one rank, and the compiler's report."""
    folder, model = call.folder, call.pack / "models" / row["model"]
    ranks = ["--virtual", "-n", row["ranks"]] if row["ranks"] > 1 else ["-n", 1]
    golden = (model / "golden.safetensors").exists()
    start = ["--init", model] if golden else []
    ended = call.run([call.pc_run, *ranks, call.program(row["program"]), "--", "--data", model / "tokens.bin", *start, "--steps",
                      row["steps_asked"], "--lr", "1e-3", "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1", "--metrics",
                      folder / "metrics.jsonl", "--summary", folder / "summary.json", "--dump-grads", folder / "grads.safetensors",
                      "--dump-logits", folder / "logits.safetensors"])
    row["losses"] = [line["loss"] for line in read_objects(folder / "metrics.jsonl")]
    if ended.code != 0:
        return call.state_of(ended), f"{call.why(ended)}, after {len(row['losses'])} steps"
    notes, wrong = [] if golden else ["no golden figures"], []

    def compare(what, difference, limit):
        notes.append(f"{what} {difference:.1e}")
        if not difference <= limit:
            wrong.append(f"{what} {difference:.1e} is more than {limit:.0e}")

    if golden:
        want, limit = read_tensors(model / "golden.safetensors"), FROM_PYTORCH[row["precision"]]
        row["gradients"], where = largest_difference(want, read_tensors(folder / "grads.safetensors"), "grad.")
        row["logits"], _ = largest_difference(want, read_tensors(folder / "logits.safetensors"))
        row["losses_of_pytorch"] = apart(want["losses"], row["losses"])
        compare(f"gradients ({where})", row["gradients"], limit)
        compare("logits", row["logits"], limit)
        compare("losses", row["losses_of_pytorch"], limit)
    alone = call.results.rows.get(row["alone"], {})
    if row["ranks"] > 1 and alone.get("state") == "ok":
        row["losses_of_one_rank"] = apart(alone["losses"], row["losses"])
        compare("losses beside one rank", row["losses_of_one_rank"], FROM_ONE_RANK[row["precision"]])
    elif row["ranks"] > 1:
        notes.append(f"not compared with one rank: {row['alone']} was not measured")
    wrong += disagreements(row, read_json(folder / "summary.json"))
    return ("failed", "; ".join(wrong)) if wrong else ("ok", ", ".join(notes))


def disagreements(row, summary):
    """Returns messages about traffic and memory that differ from the compiler's predictions."""
    key = lambda entry: (entry["axis"], entry["move"], entry["phase"])
    predicted, counted = row["predicted"], summary["per_rank"][0]
    wrong = []
    if sorted(predicted["traffic"], key=key) != sorted(counted["traffic"], key=key):
        wrong.append("the traffic is not the report's")
    if predicted["arena_bytes"] != counted["arena_bytes"]:
        wrong.append(f"the arena has {counted['arena_bytes']} bytes, not {predicted['arena_bytes']}")
    return wrong


# --- conformance --------------------------------------------------------------


def conformance(row, call):
    """A suite of the runtime's: what libraries or transports do against plain loops."""
    if (needs := row.get("devices", 1)) > len(call.devices) and not call.stand_in:
        return "absent", f"it needs {needs} device{'s' * (needs > 1)}; here are {len(call.devices)}"
    environment = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1, "NCCL_NET_PLUGIN": "none", "NCCL_DEBUG": "INFO",
                   "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": call.folder / "nccl.%h.%p", **row.get("environment", {})}
    ranks = row.get("ranks", 1)
    if call.stand_in:
        environment["PC_STANDIN_DEVICES"] = ranks
    command = [call.program(word[8:]) if word.startswith("program:") else word for word in row["command"]]
    if row.get("launched"):
        command = [call.pc_run, "-n", ranks, "--timeout", 60, *command]
    ended = call.run(command, **environment)
    passed = re.search(r"(\d+) checks passed", ended.output())
    row["said"] = ended.output()[-2000:]
    row["splits"] = count_splits(call)
    if ended.code != 0 or not passed:
        return call.state_of(ended), call.why(ended)
    note = ended.output().strip().splitlines()[-1]
    if not row.get("splits_communicators") or call.stand_in:
        return "ok", note
    # NCCL's own log is the proof that a communicator was split, not only made.
    return ("ok" if row["splits"] else "failed"), f"{note}; {row['splits']} communicators were split"


def count_splits(call):
    """Counts the communicators that were split from a parent and completed, by NCCL's log. Also records NCCL's version."""
    splits = 0
    for path in call.folder.glob("nccl.*"):
        text = path.read_text(errors="replace")
        children = set(re.findall(r"comm (0x[0-9a-f]+) .* parent 0x[0-9a-f]+ .*Init START", text))
        splits += len(children & set(re.findall(r"comm (0x[0-9a-f]+) .*Init COMPLETE", text)))
        if version := re.search(r"NCCL version (\S+)", text):
            call.versions["NCCL"] = version[1]
    return splits


# --- calibration --------------------------------------------------------------


def calibrate(row, call):
    """The machine as pc-compile reads it, of all devices that are here. A busy one is measured all the same, and its spread is told."""
    file, ranks = call.folder / "machine.json", 1 if call.stand_in else max(1, len(call.devices))
    ended = call.run([call.program("pc-calibrate-devices"), "--target=cuda", "-n", ranks, "-o", file, "--seconds", row["seconds_asked"],
                      "--noise", 1000])
    row["machine"] = read_json(file)
    if ended.code != 0 or not row["machine"]:
        return call.state_of(ended), call.why(ended)
    machine = row["machine"]
    note = (f"products {machine['bf16_flops'] / 1e12:.1f} Tflop/s in bf16 and {machine['f32_flops'] / 1e12:.1f} in f32, memory "
            f"{machine['memory_bandwidth'] / 1e9:.0f} GB/s, a kernel {machine['op_seconds'] * 1e6:.2f} us")
    if "node_bandwidth" in machine:
        note += f", between {ranks} devices {machine['node_bandwidth'] / 1e9:.0f} GB/s"
    return "ok", note + f"; times of the same differ by {machine['spread']:.1%}"


KINDS = {"train": train, "torch": torch, "kernels": kernels, "plan": plan, "conformance": conformance, "calibrate": calibrate}
