"""Compiles a published row as a program of the compiler, from its config.json and flags, and returns the figures that
the report predicts. published.py and fit.py use it; build/bin in PATH."""
import csv
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "build" / "published"
WHOLE = "gpus layers hidden heads kv ffn vocab seq bits tp pp chunks cp dp zero shard sp micro batch".split()
MACHINES = {"a100": "a100", "h100": "h100", "a100-40": HERE / "machines" / "a100-40.json"}


class Inexpressible(Exception):
    """A row that the compiler has no program for, with the reason."""


def rows(path):
    """The rows of a table whose lines of prose begin with #, numbers as such."""
    with open(path) as file:
        result = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for row in result:
        row.update({key: int(row[key]) for key in WHOLE if key in row})
        if "seconds" in row:
            row["seconds"] = float(row["seconds"])
            row["microbatches"] = row["batch"] // (row["dp"] * row["micro"])
    return result


def config(row):
    """A GPT of the row's figures. What stands for it where the published model has neither biases nor learned positions (MPT) is as fast."""
    if row["arch"] != "gpt" or row["kv"] != row["heads"]:
        raise Inexpressible("no model of this form is written here")
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": row["layers"], "n_embd": row["hidden"],
            "n_head": row["heads"], "n_inner": row["ffn"], "n_positions": row["seq"], "vocab_size": row["vocab"],
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}


def stages(row):
    """Returns the value of --stages: the same number of layers for each stage, or one less for the first and the last,
    which have the embedding and the head."""
    p, layers = row["pp"] * row["chunks"], row["layers"]
    if layers % p == 0:
        return "layers"
    if (layers + 2) % p == 0:
        each = (layers + 2) // p
        return ",".join(str(each - (stage in (0, p - 1))) for stage in range(p))
    raise Inexpressible(f"{layers} layers are not dealt out to {p} chunks as published")


def flags(row):
    """The plan, in 16 bits; which precision gradients are reduced in is the profile's."""
    if row["bits"] != 16:
        raise Inexpressible(f"products in {row['bits']} bits: the compiler has f32 and bf16")
    axes = [f"{axis}={row[axis]}" for axis in ("pp", "dp", "cp", "tp") if row[axis] > 1]
    result = ["--precision=bf16", "--pack-products=true", f"--recompute={row['recompute']}",
              f"--microbatches={row['microbatches']}"]
    result += ["--mesh=" + ",".join(axes)] if axes else []
    result += [f"--zero={row['zero']}"] if row["zero"] and row["dp"] > 1 else []
    if row["pp"] > 1:
        schedule = row["schedule"] + (f":{row['chunks']}" if row["schedule"] == "interleaved" else "")
        result += [f"--pipeline={schedule}", f"--stages={stages(row)}"]
    return result


def machine(row, changes):
    """The machine of a row as JSON, with members changed."""
    known = MACHINES[row["gpu"]]
    figures = json.loads(known.read_text()) if isinstance(known, pathlib.Path) else {"like": known}
    return figures | changes


def digest(report):
    """What is read of a report: it may have a million spans."""
    predicted = report["predicted"]
    result = {"step": predicted["step_seconds"], "program": predicted["program_seconds"], "machine": predicted["machine"]}
    if "pipeline" in report:
        events = [event for event in report["pipeline"]["traceEvents"] if event["ph"] == "X" and event["tid"] == 0]
        middle = report["mesh"]["pp"] // 2
        tasks = {}
        for event in events:
            if event["pid"] == middle and "microbatch" in event.get("args", {}):
                tasks.setdefault(event["cat"], []).append(event["dur"] / 1e6)
        result["tasks"] = {kind: statistics.median(seconds) for kind, seconds in tasks.items()}
    return result


def predict(row, changes=(), more=()):
    """The report's figures for the row's plan on its machine: `changes` to its members, `more` flags. Kept in the build folder."""
    model, plan, on = config(row), flags(row) + list(more), machine(row, dict(changes))
    compiler = shutil.which("pc-compile")
    if not compiler:
        raise SystemExit("build/bin is not in PATH")
    command = json.dumps([model, row["batch"], row["seq"], plan, on, os.stat(compiler).st_mtime_ns], sort_keys=True)
    kept = CACHE / (hashlib.sha256(command.encode()).hexdigest()[:32] + ".json")
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(compiled(model, row, plan, on)))
        part.rename(kept)
    result = json.loads(kept.read_text())
    if "refused" in result:
        raise Inexpressible(result["refused"])
    return result


def compiled(model, row, plan, on):
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "config.json").write_text(json.dumps(model))
        (work / "machine.json").write_text(json.dumps(on))
        for command in (["pc-import", str(work), "-o", str(work / "model.mlir"), f"--batch={row['batch']}", f"--seq={row['seq']}"],
                        ["pc-compile", str(work / "model.mlir"), *plan, f"--machine={work / 'machine.json'}", "--verify=none", "--to=planned",
                         f"--report={work / 'report.json'}", "-o", os.devnull]):
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                said = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr.strip())
                return {"refused": said.replace(str(work), "").split("error: ")[-1]}
        return digest(json.loads((work / "report.json").read_text()))
