"""Makes the folder in which run.py runs: programs, data and PyTorch's golden figures. scripts/gpu-check --pack calls
it."""

import argparse
import concurrent.futures
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "test/EndToEnd/golden"
# It is sent together with the tree, both in 64 MiB.
MOST = 30 << 20
# Seconds for a row of torch.compile, which compiles for a minute or two before its first step.
COMPILE_LIMIT = 240
# Programs in one archive: they share the runtime, which is most of each, and a row unpacks all of its archive.
TOGETHER = 8
# What 40 steps of the largest batch read; bytes are tokens.
TEXT_BYTES = 1 << 20

# One plan of each tactic, on the model of two layers that has golden figures, then more mixes. The numbers of ranks are the mesh's.
TACTICS = ["gpt2 dp=2", "gpt2 dp=2 --zero=1", "qwen2 dp=2 --zero=2 --microbatches=2", "gpt2 dp=2 --zero=3",
           "llama rep=2,dp=2 --data-parallel=ddp:rep --zero=3", "gpt2 dp=2 --data-parallel=naive", "gpt2 tp=2",
           "qwen3 tp=2 --sequence-parallel", "gpt2 tp=2 --sequence-parallel --window=tp", "llama row=2,col=2 --tensor-parallel=2d",
           "gpt2 depth=2,row=2,col=2 --tensor-parallel=2.5d", "llama i=2,j=2,l=2 --tensor-parallel=3d", "gpt2 cp=2",
           "llama cp=2 --context-parallel=ring", "gpt2 pp=2 --microbatches=4 --pipeline=1f1b", "llama pp=2 --microbatches=4 --pipeline=zb-h1",
           "gpt2-8-layers pp=4 --microbatches=4 --pipeline=zb-v", "gpt2-8-layers pp=2 --microbatches=4 --pipeline=interleaved:2",
           "gpt2 tp=2,pp=2,dp=2 --microbatches=2 --sequence-parallel --zero=1"]
TACTICS_BF16 = ["gpt2 dp=2,tp=2", "llama dp=2 --zero=3", "llama cp=2 --context-parallel=ring",
                "qwen3 pp=2,tp=2 --microbatches=4 --pipeline=zb-h1 --sequence-parallel"]
MORE = ["gpt2 dp=4 --zero=3", "llama dp=2,tp=2", "llama tp=4", "qwen3 dp=2,tp=2 --sequence-parallel --zero=2", "gpt2 cp=4",
        "llama row=2,col=2 --tensor-parallel=2d --window=row,col", "gpt2 dp=2,cp=2 --zero=3", "llama pp=2 --microbatches=4 --pipeline=gpipe"]
QUICK = ["gpt2 dp=2,tp=2", "gpt2 pp=2,tp=2 --microbatches=2"]


class Pack:
    def __init__(self, options, work):
        self.dir, self.work, self.build = options.dir, work, options.build
        self.flags = ["--target=cuda", f"--arch={options.arch}", *(["--stand-in"] if options.stand_in else [])]
        self.options, self.rows, self.jobs, self.models, self.stripped = options, [], {}, {}, {}

    def tool(self, name, *arguments):
        done = subprocess.run([self.build / "bin" / name, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"scripts/gpu-check: {name} {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")

    def model(self, folder, batch, sequence):
        """A model program, imported once."""
        key = folder, batch, sequence
        if key not in self.models:
            self.models[key] = self.work / f"{len(self.models)}.mlir"
            self.tool("pc-import", folder, "-o", self.models[key], "--batch", batch, "--seq", sequence)
        return self.models[key]

    def program(self, name, folder, batch, sequence, *flags):
        """A program, compiled later; rows may share one."""
        self.jobs.setdefault(name, (self.model(folder, batch, sequence), flags))
        return name

    def row(self, name, kind, **spec):
        self.rows.append({"name": name, "kind": kind, **spec})

    def compile(self, name):
        model, flags = self.jobs[name]
        at = self.work / name
        self.tool("pc-compile", model, "-o", at, f"--report={at}.json", *self.flags, *flags)
        self.add(at)

    def add(self, executable):
        """Without symbols."""
        stripped = self.work / f"{executable.name}.stripped"
        strip = shutil.which("llvm-strip-22") or shutil.which("strip") or "/usr/lib/llvm-22/bin/llvm-strip"
        subprocess.run([strip, "--strip-all", "-o", stripped, executable], check=True)
        self.stripped[executable.name] = stripped

    def archive_all(self):
        """Archives of programs in the order of their first rows: run.py needs few of them at once."""
        order = [name for name in self.stripped if name not in self.jobs] + [name for name in self.jobs if name in self.stripped]
        parts = {f"{first // TOGETHER}.tar.xz": order[first:first + TOGETHER] for first in range(0, len(order), TOGETHER)}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(archive, self.dir / "programs" / name, {program: self.stripped[program] for program in part})
                         for name, part in parts.items()]:
                done.result()
        index = {program: name for name, part in parts.items() for program in part}
        (self.dir / "programs/index.json").write_text(json.dumps(index) + "\n")

    def compile_all(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in [pool.submit(self.compile, name) for name in self.jobs]:
                done.result()
        for row in self.rows:
            if row["kind"] == "plan":
                report = json.loads((self.work / f"{row['program']}.json").read_text())["per_rank"][0]
                row["predicted"] = {key: report[key] for key in ("traffic", "arena_bytes")}


def archive(path, files):
    """One archive of executables."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for program, file in files.items():
            data, info = file.read_bytes(), tarfile.TarInfo(program)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 25}]
    path.write_bytes(lzma.compress(buffer.getvalue(), filters=filters))


def ranks_of(mesh):
    ranks = 1
    for axis in mesh.split(","):
        ranks *= int(axis.partition("=")[2] or 1)
    return ranks


# --- the rows, in the order in which a lease is spent ---------------------------


def training(pack, name, folder, batch, sequence, precision, steps=40, shrunken=None, sides=True, **more):
    """A row of ours and, but for shrunken ones, the same by PyTorch, eager and compiled."""
    shutil.copy(folder / "config.json", pack.dir / "configs" / f"{name}.json")
    program = pack.program(f"train-{name}", folder, batch, sequence, f"--precision={precision}")
    spec = {"batch": batch, "sequence": sequence, "precision": precision, "data": "text:text", "steps_asked": steps}
    pack.row(f"train/{name}", "train", program=program, **spec, **more, **({"shrunken": shrunken} if shrunken else {}))
    for mode in ("eager", "compile") if sides and not shrunken else ():
        pack.row(f"train/{name}/{mode}", "torch", mode=mode, config=f"configs/{name}.json", beside=f"train/{name}", **spec,
                 **({"limit": COMPILE_LIMIT} if mode == "compile" else {}))


def gpt2_124m(pack):
    """What a GPU is asked first. The stand-in computes a thousand times slower: there its layers are fewer and its batch is small, and the
    row says so."""
    folder = ROOT / "examples/gpt2-124m"
    if not pack.options.stand_in:
        training(pack, "gpt2-124m-bf16", folder, 16, 1024, "bf16")
        return
    small = pack.work / "gpt2-124m"
    small.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"n_layer": 1, "n_embd": 384, "n_head": 6, "vocab_size": 512}
    (small / "config.json").write_text(json.dumps(config))
    training(pack, "gpt2-124m-bf16", small, 1, 32, "bf16", steps=3,
             shrunken="for the stand-in: 1 of 12 layers, 384 of 768 wide, a vocabulary of 512, batch 1 of 16, 32 of 1024 tokens")


def kernels(pack, name, folder, batch, sequence, *flags):
    program = pack.program(f"kernels-{name}", folder, batch, sequence, "--check-kernels", *flags)
    pack.row(f"kernels/{name}", "kernels", program=program)


BF16 = ("--precision=bf16", "--attention=generated")


def large_kernels(pack):
    kernels(pack, "gpt2-124m-bf16", ROOT / "examples/gpt2-124m", 8, 1024, *BF16)
    # One layer has all kernels of attention; of eight, AdamW alone would move 56 GB for the comparison.
    one = pack.work / "llama-8b-1-layer"
    one.mkdir()
    config = json.loads((ROOT / "bench/gpu_check/llama-8b-8-layers/config.json").read_text()) | {"num_hidden_layers": 1}
    (one / "config.json").write_text(json.dumps(config))
    kernels(pack, "llama-8b-attention", one, 1, 2048, *BF16)


def small_kernels(pack, quick):
    inputs = ROOT / "test/Codegen/cuda/Inputs"
    kernels(pack, "gpt2-f32", GOLDEN / "gpt2", 4, 16)
    for model in ("gpt2",) if quick else ("gpt2", "llama"):
        kernels(pack, f"{model}-bf16", GOLDEN / model, 4, 16, *BF16)
    kernels(pack, "heads128-bf16", inputs / "heads128", 1, 150, *BF16)
    if not quick:
        kernels(pack, "heads64-bf16", inputs / "heads64", 1, 150, *BF16)
        for model in ("gpt2-odd", "llama", "qwen3"):
            kernels(pack, f"{model}-f32", GOLDEN / model, 4, 16)


def suite(pack, name, *command, **more):
    pack.row(name, "conformance", command=command, **more)


def virtual(pack, *counts):
    for ranks in counts:
        suite(pack, f"virtual/{ranks}-ranks", "program:comm-conformance", "--device", "--transport=virtual", f"--ranks={ranks}")


def golden_model(pack, model):
    """Where the model lies and its batch; models with more layers than the golden ones have none of their figures."""
    to = pack.dir / "models" / model
    base, _, layers = model.partition("-8-")
    if not to.exists():
        shutil.copytree(GOLDEN / base, to)
        if layers:
            config = json.loads((to / "config.json").read_text()) | {"n_layer": 8}
            (to / "config.json").write_text(json.dumps(config))
            for file in to.glob("*.safetensors"):
                file.unlink()
    return to, 8 if layers else 4


def plans(pack, lines, precision, steps):
    def name_of(line):
        return re.sub(r"[^a-z0-9.]+", "-", line) + "-" + precision

    def one(line):
        model, mesh, *flags = line.split()
        folder, batch = golden_model(pack, model)
        if any(row["name"] == f"plan/{name_of(line)}" for row in pack.rows):
            return
        meshes = [f"--mesh={mesh}"] if mesh != "1" else []
        program = pack.program(f"plan-{name_of(line)}", folder, batch, 16, f"--precision={precision}", *meshes, *flags)
        pack.row(f"plan/{name_of(line)}", "plan", program=program, model=model, plan=" ".join([mesh, *flags]), precision=precision,
                 ranks=ranks_of(mesh), alone=f"plan/{name_of(f'{model} 1')}", steps_asked=steps)

    for line in lines:
        one(f"{line.split()[0]} 1")
        one(line)


def nccl(pack):
    nccl_run = {"launched": True, "environment": {"PCRT_TRANSPORT": "tcp"}}
    suite(pack, "nccl/1-rank", "program:comm-conformance", "--", "--device", **nccl_run, splits_communicators=True)
    for name, environment in [("", {}), ("-windows", {"PCRT_NCCL_WINDOWS": 1})]:
        suite(pack, f"nccl/2-devices{name}", "program:comm-conformance", "--", "--device", launched=True, ranks=2, devices=2, environment=environment)


def nccl_on_one_device(pack):
    """NCCL before 2.30 refuses this unless it takes the ranks for two machines, and may then wait for ever."""
    script = 'NCCL_HOSTID=host$PCRT_RANK exec "$0" --device'
    suite(pack, "nccl/2-ranks-on-one-device", "bash", "-c", script, "program:comm-conformance", launched=True, ranks=2, limit=60,
          default=False, environment={"PCRT_CUDA_DEVICE": 0, "NCCL_MULTI_RANK_GPU_ENABLE": 1})


def all_rows(pack):
    quick, stand_in = pack.options.quick, pack.options.stand_in
    steps = 3 if quick or stand_in else 20
    llama = ROOT / "bench/gpu_check/llama-8b-8-layers"
    gpt2_124m(pack)
    if not (quick or stand_in):
        large_kernels(pack)
    suite(pack, "libraries/products-and-attention", "program:cuda-conformance")
    pack.row("calibrate", "calibrate", seconds_asked=0.01 if stand_in else 20)
    small_kernels(pack, quick)
    virtual(pack, 2) if quick else virtual(pack, 2, 4)
    plans(pack, QUICK if quick else TACTICS, "f32", steps)
    if not quick:
        plans(pack, TACTICS_BF16, "bf16", steps)
    nccl(pack)
    if not (quick or stand_in):
        # Layers of Llama-8B, as many as fit: 2 G parameters, 40 GiB with their gradients and AdamW's state.
        training(pack, "llama-8b-8-layers-bf16", llama, 4, 2048, "bf16")
        apart = {"environment": {"PCRT_CUDA_EPILOGUES": 0}}  # gelu and bias gradients by kernels of their own
        pack.rows.append(next(row for row in pack.rows if row["name"] == "train/gpt2-124m-bf16") | apart
                         | {"name": "train/gpt2-124m-bf16-epilogues-apart"})
        training(pack, "gpt2-124m-f32", ROOT / "examples/gpt2-124m", 16, 1024, "f32")
        training(pack, "gpt2-14m-bf16", ROOT / "examples/gpt2-14m", 64, 256, "bf16")
        kernels(pack, "gpt2-124m-f32", ROOT / "examples/gpt2-124m", 4, 1024)
    if not quick:
        plans(pack, MORE, "f32", steps)
        virtual(pack, 3, 6, 8)
    nccl_on_one_device(pack)


def text():
    """Something that people wrote, on every machine that builds this."""
    files = sorted(Path("/usr/lib/llvm-22/include/llvm").resolve().rglob("*.h"))
    found = b""
    for file in files:
        found += file.read_bytes()
        if len(found) >= TEXT_BYTES:
            break
    return found[:TEXT_BYTES]


def commit():
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" and changes" if git("status", "--porcelain") else "")


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__)
    parser.add_argument("--pack", metavar="DIR", dest="dir", type=Path, required=True, help="folder to create; an existing one is deleted")
    parser.add_argument("--arch", default="sm_90a", help="GPU architectures to compile for (default %(default)s); each one makes programs larger")
    parser.add_argument("--quick", action="store_true", help="pack only a few plans and no benchmarks of real size")
    parser.add_argument("--stand-in", action="store_true", help="also let the emulated CUDA driver run the programs")
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Only a folder that this made is deleted, and only once another is whole.
    to = options.dir.resolve()
    if to.exists() and any(to.iterdir()) and not (to / "pack.json").exists():
        raise SystemExit(f"scripts/gpu-check: {options.dir} is there and is no pack")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir=to.parent, prefix=f"{to.name}-") as made:
        options.dir = Path(made) / "pack"
        pack = fill(options, Path(work))
        size = sum(path.stat().st_size for path in options.dir.rglob("*") if path.is_file())
        if size > MOST:
            raise SystemExit(f"scripts/gpu-check: {size / (1 << 20):.1f} MiB are more than {MOST >> 20}")
        shutil.rmtree(to, ignore_errors=True)
        options.dir.rename(to)
    print(f"{to}: {size / (1 << 20):.1f} MiB, {len(pack.rows)} rows, {len(pack.jobs)} programs")


def fill(options, work):
    """All that lies in a pack; its description comes last."""
    here = Path(__file__).resolve().parent
    for folder in ("programs", "models", "configs"):
        (options.dir / folder).mkdir(parents=True)
    pack = Pack(options, work)
    all_rows(pack)
    pack.compile_all()
    for name in ("bin/pc-run", "test/Runtime/comm/comm-conformance", "test/Runtime/cuda/cuda-conformance",
                 "tools/pc-calibrate/pc-calibrate-devices"):
        pack.add(options.build / name)
    pack.archive_all()
    shutil.copy(here / "run.py", options.dir / "run")
    for file in (here / "measure.py", here / "process.py", here / "results.py", here / "torch_train.py", ROOT / "bench/gpt2_124m.py"):
        shutil.copy(file, options.dir)
    (options.dir / "text").write_bytes(text())
    (options.dir / "rows.json").write_text(json.dumps(pack.rows, indent=1) + "\n")
    files = sorted(path for path in options.dir.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()
    (options.dir / "pack.json").write_text(json.dumps({"commit": commit(), "arch": options.arch, "stand_in": options.stand_in,
                                                       "digest": digest[:16]}) + "\n")
    return pack


if __name__ == "__main__":
    sys.exit(main())
