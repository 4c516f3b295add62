"""Shared by the tests of this folder: the paths of tools and inputs, commands that print how to repeat them, and one
line of output per check."""
import fcntl
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("PC_BUILD", ROOT / "build")).resolve()
BIN, GOLDEN = BUILD / "bin", HERE / "golden"
LONG = bool(os.environ.get("PC_LONG"))
# Without it, runs choose the faster way to multiply bf16, so that on a busy machine two runs could have other bits.
BF16 = str(int("avx512_bf16" in Path("/proc/cpuinfo").read_text().split()))
STAND_IN = {"PCRT_CUDA_LIBRARIES": f"standin:{BUILD}/lib/libpc_standin.so", "PCRT_CACHE_DIR": ""}
CHECKED = {"PC_STANDIN_CHECK": "order,kernels"}  # the default
UNCHECKED = {"PC_STANDIN_CHECK": "none"}  # other bits than with the stand-in's checks of accesses, and several times faster
SMALL_LLAMA = dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, vocab_size=32,
                   max_position_embeddings=16, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False)
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Failed(Exception):
    """The test cannot go on; why has been said."""


def ranks_of(mesh):
    """The product of its axes: "dp=2,tp=2" is 4, "1" is 1."""
    return math.prod(int(axis.partition("=")[2] or axis) for axis in mesh.split(","))


def mesh_flags(mesh):
    return [] if mesh == "1" else ["--mesh", mesh]


def file_name(text):
    return re.sub(r"[^\w=,.+-]+", "_", text)


def data_flags(model):
    """Returns the flags of a run for the tokens of a golden model, and for its targets if they are not the next tokens."""
    files = {"--data": GOLDEN / model / "tokens.bin", "--targets": GOLDEN / model / "targets.bin"}
    return [word for flag, path in files.items() if path.exists() for word in (flag, path)]


def import_flags(model):
    """Returns the flags with which a golden model is imported, apart from its sizes."""
    flags = GOLDEN / model / "import-flags"
    return flags.read_text().split() if flags.exists() else []


class Done:
    """A command that has ended: its exit code (128 + n for signal n), and its output."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err, self.said = command, code, out, err, out + err

    def last(self):
        return (self.said.strip().splitlines() or [""])[-1]

    def why(self):
        """Describes the command as one can type it, its end, and its first message."""
        return "\n".join([f"$ {self.command}", f"exit {self.code}", *self.said.strip().splitlines()[:14]])


class Case:
    """One test: an empty folder of its own to work in, and its checks. Commands without a slash are tools of ours."""

    def __init__(self, name, again=None):
        self.name, self.again = name, again or f"{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}"
        self.work = BUILD / "end-to-end" / file_name(name)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.passed = self.failed = 0
        self.environment = {}

    def check(self, name, good, why="", found=""):
        """Makes one check; `why` is printed if it fails, `found` if it passes."""
        if good:
            self.passed += 1
            print(f"ok    {name}" + (f": {found}" if found else ""), flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {self.name}: {name}\n      " + str(why).replace("\n", "\n      "), flush=True)
        return bool(good)

    def start(self, *command, cwd=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **environment):
        command = [str(part) for part in command]
        if "--save" in command:  # tests save where an earlier run of theirs has saved
            command.append("--overwrite")
        if "/" not in command[0] and (BIN / command[0]).exists():
            command[0] = str(BIN / command[0])
        added = {"PCRT_CPU_BF16": BF16} | self.environment | environment
        process = subprocess.Popen(command, cwd=cwd or self.work, env=os.environ | added, stdout=stdout, stderr=stderr,
                                   text=True, errors="replace", start_new_session=True)
        process.text = f"(cd {cwd or self.work}; {' '.join(f'{k}={shlex.quote(v)}' for k, v in added.items())} {shlex.join(command)})"
        return process

    def call(self, *command, seconds=300, **more):
        """Runs the command to its end. After `seconds` the command and all processes that it started are killed."""
        process = self.start(*command, **more)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            err += f"\nkilled after {seconds} s"
        return Done(process.text, process.returncode if process.returncode >= 0 else 128 - process.returncode, out or "", err or "")

    def holds(self, name, *command, code=0, words="", **more):
        """Checks that the command ends with the code, and that its output matches the pattern."""
        done = self.call(*command, **more)
        good = done.code == code and re.search(words, done.said)
        return self.check(name, good, done.why() + (f"\nwanted: exit {code}, {words}" if code or words else ""), done.last())

    def needs(self, *command, **more):
        """What is done for later checks: where it fails the test ends."""
        done = self.call(*command, **more)
        if done.code:
            self.check(Path(str(command[0])).name, False, done.why())
            raise Failed
        return done

    def same(self, name, one, other):
        """A check: two files (or bytes) are equal."""
        one, other = (what if isinstance(what, bytes) else (self.work / what).read_bytes() for what in (one, other))
        at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other))) if one != other else 0
        return self.check(name, one == other, f"{len(one)} and {len(other)} bytes, different from byte {at} on")

    def checkpoint_sums(self, folder):
        """A sum for each file of a checkpoint, of its tensors without the metadata, which names the plan."""
        def sum_of(content):
            end = 8 + int.from_bytes(content[:8], "little")
            header = json.loads(content[8:end])
            return hashlib.sha256(b"".join(name.encode() + content[end + entry["data_offsets"][0] : end + entry["data_offsets"][1]]
                                           for name, entry in sorted(header.items()) if name != "__metadata__")).hexdigest()
        return [sum_of((self.work / folder / file).read_bytes()) for file in ("model.safetensors", "training_state.safetensors")]

    def compare(self, name, *arguments):
        return self.holds(name, "pc-compare", *arguments)

    def model(self, model="gpt2", batch=4, sequence=16, *flags, to="model.mlir"):
        """Imports a golden model, or a folder."""
        golden = import_flags(model) if isinstance(model, str) else []
        self.needs("pc-import", GOLDEN / model if isinstance(model, str) else model, "-o", to, "--batch", batch, "--seq", sequence, *golden, *flags)
        return self.work / to

    def run(self, body):
        """The body's checks; prints how many passed and ends the process. The folder of a test that passed goes."""
        try:
            body()
        except Failed:
            pass
        if self.failed:
            print(f"again: test/EndToEnd/{self.again}     (its files: {self.work})")
        else:
            shutil.rmtree(self.work, ignore_errors=True)
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(not self.passed or self.failed > 0)


def shared(name, make, *inputs):
    """A folder that several tests or runs use, made by whoever comes first, and anew where a tool or one of the inputs is newer."""
    folder = BUILD / "end-to-end/shared" / name
    folder.mkdir(parents=True, exist_ok=True)
    sources = [*(BIN / f"pc-{tool}" for tool in ("import", "compile", "random", "run")), *(BUILD / "lib").glob("*.*"), *HERE.glob("*.py"), *inputs]
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists() or done.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            make(folder)
            done.touch()
    return folder
