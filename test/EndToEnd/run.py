#!/usr/bin/env python3
"""usage: test/EndToEnd/run.py TABLE [ROW]

Examples: run.py plans.txt "llama 2 4 dp=4 --zero=2", or run.py golden.txt qwen3

Runs the row of a table, or all rows that contain the text, as lit does (README.md). A row is

    MARK MODEL LAYERS BATCH MESH FLAGS...

MARK is + for the quick run or - for the long one alone. The line "# check: NAMES" above rows lists the checks: methods
of Row below. Models and meshes may be alternatives, a|b. A + in place of layers, batch, mesh and flags stands for those
of every quick row above, to which the row's own flags are added. Golden models have two layers, a batch of 4 and
PyTorch's numbers; others are compared with one rank."""
import functools
import itertools
import json
import os
import re
import shlex
import subprocess
import sys

from cases import BIN, GOLDEN, HERE, LONG, STAND_IN, Case, data_flags, file_name, import_flags, mesh_flags, ranks_of, shared
from commands import Commands
from key_biases import KEY_BIASES

TRAIN = "--lr 1e-3 --weight-decay 0.1 --clip 1.0 --seed 1".split()
# One rounding to bf16 is 2^-9 = 0.2 % of a value. A logit has passed about ten roundings and a gradient twice as many;
# where addends cancel, roundings count more. Results must agree with PyTorch's in f32 within these tolerances:
TOLERANCE = {"f32": dict(loss=1e-5, losses=1e-5, logits=1e-5, gradients=1e-5, parameters=1e-4),
             "bf16": dict(loss=1e-2, losses=1e-2, logits=3e-2, gradients=6e-2)}


def rows(table):
    """Yields the rows of a table: the text, the checks, and whether the row belongs to the quick run."""
    checks, quick = [], []
    for line in (HERE / table).read_text().splitlines():
        if line.startswith("# check:"):
            checks = line.split()[2:]
        elif line[:1] in ("+", "-"):
            mark, models, *plan = line.split()
            quick += [plan] * (mark == "+" and plan not in quick)
            for columns in [some + plan[1:] for some in quick] if plan[:1] == ["+"] else [plan]:
                for choice in itertools.product(choices(models), *map(choices, columns[:3])):
                    yield " ".join([*choice, *columns[3:]]), checks, mark == "+"


def choices(column):
    first, dots, last = column.partition("..")
    return map(str, range(int(first), int(last) + 1)) if dots and last.isdigit() else column.split("|")


def seeds(quick):
    """Returns seeds of the stand-in's orders, after 0 (the order of submission). PC_SEEDS=11..20 selects a part of the
    seeds of the long run."""
    first, last = map(int, os.environ.get("PC_SEEDS", "1..50" if LONG else quick).split(".."))
    return [0, *range(first, last + 1)]


class Row(Case):
    def __init__(self, table, text, checks):
        super().__init__(f"{table}/{text}", shlex.join(["run.py", table, text]))
        self.checks, self.text = checks, text
        self.model, self.layers, self.batch, self.mesh, *self.flags = text.split()
        # The file of a machine is in Inputs.
        self.flags = [re.sub(r"^--machine=(.*\.json)$", lambda file: f"--machine={HERE / 'Inputs' / file[1]}", flag) for flag in self.flags]
        # Runs replay the choices of experts that one rank makes in f32, which are PyTorch's.
        self.replays = "--routing" in self.flags
        self.flags = [flag for flag in self.flags if flag != "--routing"]
        self.is_golden = (self.layers, self.batch) == ("2", "4")
        golden = GOLDEN / self.model
        self.weights, self.data, self.want = ["--init", golden] if self.layers == "2" else [], data_flags(self.model), golden / "golden.safetensors"
        self.precision = "bf16" if "--precision=bf16" in self.flags else "f32"
        self.device, self.evaluates = "--target=cuda" in self.flags, "--mode=eval" in self.flags
        self.ranks = ranks_of(self.mesh)
        self.environment = dict(STAND_IN) if self.device else {}
        # The stand-in is slow.
        short = self.device and ("pp=" in self.mesh or not LONG and "parameters" not in checks)
        self.steps = 5 if short else 20
        self.tolerance = TOLERANCE[self.precision]

    def body(self):
        if self.device and (LONG or self.mesh == "1"):
            self.assembly()
        for name in self.checks:
            if LONG or not name.endswith("*"):
                getattr(self, name.rstrip("*").replace("-", "_"))()

    # --- results that checks read, computed for the first check that needs them ---

    @functools.cached_property
    def source(self):
        """The program of the model, of more layers where asked for: of those there are no weights."""
        def make(folder):
            config = json.loads((GOLDEN / self.model / "config.json").read_text())
            for key in {"n_layer", "num_layers", "num_hidden_layers", "max_window_layers"} & config.keys():
                config[key] = int(self.layers)
            if config.get("layer_types"):
                config["layer_types"] = config["layer_types"][:1] * int(self.layers)
            (folder / "config.json").write_text(json.dumps(config))
            self.needs("pc-import", GOLDEN / self.model if self.layers == "2" else folder, "-o", folder / "model.mlir", "--batch", self.batch, "--seq", 16,
                       *import_flags(self.model))
        return shared(f"{self.model}-{self.layers}-{self.batch}", make) / "model.mlir"

    @property
    def compiling(self):
        """The command that compiles the row for this machine or for a GPU, where libraries have a workspace of 32 MiB in the arena."""
        flags = self.flags
        if self.device:
            flags = [*(re.sub(r"(--memory-limit=)(\d+)", lambda m: m[1] + str(int(m[2]) + (32 << 20)), flag) for flag in flags), "--arch=sm_90a"]
        return ["pc-compile", self.source, *mesh_flags(self.mesh), *flags]

    @functools.cached_property
    def program(self):
        """Beside its report. The quick run keeps it until a tool is built anew: the same compiler makes the same program."""
        def make(folder):
            self.needs(*self.compiling, *["--stand-in"] * self.device, "-o", folder / "train", f"--report={folder}/report.json")
        if not LONG:
            return shared(f"programs/{file_name(self.text)}", make) / "train"
        make(self.work)
        return self.work / "train"

    def assembly(self):
        """ptxas accepts the kernels. Programs for the stand-in have no cubins, so it has not seen them yet."""
        self.needs(*self.compiling, "--to=kernels", "-o", "kernels.mlir")
        self.holds("ptxas accepts the kernels", "pc-kernels", "kernels.mlir", "--arch=sm_90a", "--emit=table", "-o", "kernels.table")

    def phase(self, name):
        path = self.work / f"{name}.mlir"
        if not path.exists():
            self.needs("pc-compile", self.source, *mesh_flags(self.mesh), *self.flags, f"--to={name}", "-o", path)
        return path

    def command(self, out, *flags, program=None, weights=True):
        """A run that leaves its files in the folder `out`."""
        (self.work / out).mkdir(exist_ok=True)
        return ["pc-run", "-n", self.ranks, program or self.program, "--", *self.data, *(self.weights if weights else []),
                "--metrics", f"{out}/metrics.jsonl", *flags]

    @functools.cached_property
    def first(self):
        """The folder of the run whose numbers are looked at."""
        flags = ["--summary", "first/summary.json"]
        if "logits" in self.checks or "logits*" in self.checks:
            flags += ["--dump-logits", "first/logits.safetensors"]
        if self.evaluates:
            flags += ["--eval", "--steps", 1]
        elif "--optimizer=sgd" in self.flags:
            flags += "--steps 5 --lr 0.05 --clip 1.0 --seed 1 --weight-decay 0".split()
        else:
            flags += ["--steps", self.steps, *TRAIN, "--check-replicas", 5, "--save", "first/save", "--dump-grads", "first/grads.safetensors"]
        if self.replays:
            flags += ["--routing", self.routing()]
        self.needs(*self.command("first", *flags))
        return self.work / "first"

    def one_rank(self, *flags):
        """The run of the same model by one rank."""
        def make(folder):
            self.needs("pc-compile", self.source, "-o", folder / "train", *flags)
            self.needs("pc-run", "-n", 1, folder / "train", "--", *self.data, *self.weights, "--steps", self.steps, *TRAIN,
                       "--metrics", folder / "metrics.jsonl", "--dump-grads", folder / "grads.safetensors")
        return shared("-".join([self.model, self.layers, self.batch, "one-rank", str(self.steps), *map(lambda flag: flag.strip("-"), flags)]), make)

    def routing(self):
        """The choices of experts of such a run."""
        def make(folder):
            self.needs("pc-compile", self.source, "-o", folder / "train")
            self.needs("pc-run", "-n", 1, folder / "train", "--", *self.data, *self.weights, "--steps", self.steps, *TRAIN, "--dump-routing", folder / "routing")
        return shared("-".join([self.model, self.layers, self.batch, "routing", str(self.steps)]), make) / "routing"

    # --- checks ---

    def logits(self):
        self.compare("logits", "tensors", self.want, self.first / "logits.safetensors", "--only", "logits", "--tolerance", self.tolerance["logits"])

    def skipped_entries(self):
        return [word for entries in KEY_BIASES.get(self.model, []) for word in ("--skip", entries)]

    def skipped_tensors(self):
        return [word for entries in KEY_BIASES.get(self.model, []) if ":" not in entries for word in ("--skip", entries)]

    def gradients(self):
        want = [self.want, self.first / "grads.safetensors", "--prefix", "grad."]
        if not self.is_golden:
            want = [self.one_rank() / "grads.safetensors", self.first / "grads.safetensors"]
        skip = self.skipped_entries() if self.precision == "bf16" else self.skipped_tensors()
        self.compare("gradients", "tensors", *want, "--tolerance", self.tolerance["gradients"], *skip)

    def loss(self):
        self.compare("first loss", "losses", f"{self.want}:losses", self.first / "metrics.jsonl", "--first", 1, "--tolerance", self.tolerance["loss"])

    def losses(self):
        want = f"{self.want}:losses" if self.is_golden else self.one_rank() / "metrics.jsonl"
        self.compare("losses", "losses", want, self.first / "metrics.jsonl", "--first", self.steps, "--tolerance", self.tolerance["losses"])

    def sgd_losses(self):
        self.compare("losses", "losses", f"{self.want}:sgd_losses", self.first / "metrics.jsonl", "--tolerance", 1e-5)

    def losses_of_one_rank(self):
        """Two plans round partial sums at different places."""
        flags = ["--precision=bf16"] + (["--target=cuda", "--arch=sm_90a", "--stand-in"] if self.device else [])
        self.compare("losses of one rank", "losses", self.one_rank(*flags) / "metrics.jsonl", self.first / "metrics.jsonl", "--tolerance", 5e-3)

    def parameters(self):
        self.compare("20 AdamW steps", "tensors", self.want, self.first / "save/model.safetensors", "--prefix", "after.",
                     "--tolerance", self.tolerance["parameters"], *self.skipped_entries())

    def report(self):
        """Also checks that no step allocates."""
        self.compare("report equals summary", "reports", self.program.parent / "report.json", self.first / "summary.json")

    def saved_as_f32(self):
        types = set(re.findall(rb'"dtype":"(\w+)"', (self.first / "save/model.safetensors").read_bytes()[:65536]))
        self.check("checkpoint in f32", types == {b"F32"}, types)

    def resume(self):
        """Saved after 8 of 20 steps and resumed in a new process: the same bits as without a break."""
        whole = self.first
        self.needs(*self.command("half", "--steps", self.steps * 2 // 5, *TRAIN, "--save", "half/save"))
        self.needs(*self.command("rest", "--steps", self.steps, *TRAIN, "--load", "half/save", "--save", "rest/save", weights=False))
        (self.work / "both.jsonl").write_bytes(b"".join((self.work / part / "metrics.jsonl").read_bytes() for part in ("half", "rest")))
        self.same("resumed: the same bits", "first/save/model.safetensors", "rest/save/model.safetensors")
        self.compare("resumed: the same losses", "losses", whole / "metrics.jsonl", "both.jsonl", "--tolerance", 0)

    def files_of_three(self):
        """Files do not contain packed products: drawn values and checkpoints are the same as those of a program with three products."""
        apart = [flag for flag in self.flags if flag != "--pack-products"]
        target = ["--arch=sm_90a", "--stand-in"] if self.device else []
        self.needs("pc-compile", self.source, *mesh_flags(self.mesh), *apart, "--pack-products=false", *target, "-o", "of-three")
        programs = {"packed": self.program, "apart": self.work / "of-three"}
        still = "--lr 0 --weight-decay 0 --clip 1.0 --seed 1".split()
        for name, program in programs.items():
            self.needs(*self.command(f"drawn-{name}", "--steps", 1, *still, "--save", f"drawn-{name}/save", program=program, weights=False))
        self.same("drawn values", "drawn-packed/save/model.safetensors", "drawn-apart/save/model.safetensors")
        for a, b in itertools.permutations(programs):
            self.needs(*self.command(a, "--steps", 2, *TRAIN, "--save", f"{a}/save", program=programs[a]))
            for name, program in programs.items():
                self.needs(*self.command(f"{a}-{name}", "--steps", 3, *still, "--change", "lr,weight-decay", "--load", f"{a}/save", "--save", f"{a}-{name}/save",
                                         program=program, weights=False))
            self.same(f"parameters, {a} to {b}", f"{a}/save/model.safetensors", f"{a}-{b}/save/model.safetensors")
            self.compare(f"optimizer, {a} to {b}", "tensors", f"{a}-{a}/save/training_state.safetensors", f"{a}-{b}/save/training_state.safetensors",
                         "--tolerance", 2 * self.tolerance["gradients"], *self.skipped_entries())

    def erasure(self):
        """The placed program without its placements is the step program, byte for byte."""
        self.needs("pc-opt", self.phase("step"), "-o", "as-printed.mlir")
        self.needs("pc-opt", self.phase("placed"), "--pc-erase-placements", "-o", "erased.mlir")
        self.same("erasure", "as-printed.mlir", "erased.mlir")

    def interpreted(self):
        """Interprets the compiler's program before any code is generated, in double precision: 20 steps on one rank, one step on more."""
        for name, steps in [("step", [20])] * (self.mesh == "1") + [("placed", []), ("planned", [])]:
            self.holds(f"{name}, interpreted", "golden-interpret", self.phase(name), GOLDEN / self.model, *steps)

    def skipped(self):
        """With a rate that is far too large, the gradients of a step are not finite. The step changes nothing, and the
        run ends with exit code 10."""
        done = self.call(*self.command("bad", "--lr", "1e30", "--steps", 4, "--save", "bad/save"))
        found = re.search(r"error: .*?step (\d+)", done.said)
        if not self.check("exit 10, and state", done.code == 10 and found and (self.work / "bad/save").is_dir(), done.why()):
            return
        self.needs(*self.command("good", "--lr", "1e30", "--steps", found[1], "--save", "good/save"))
        for name in ("model", "training_state"):
            self.same(f"{name} after a skipped step", f"good/save/{name}.safetensors", f"bad/save/{name}.safetensors")

    def seeds(self):
        """The stand-in's streams run in an order drawn from a seed: the losses are the same bit by bit, and its checker finds nothing."""
        if b"__asan_init" not in self.program.read_bytes():
            others = [line.split()[0] for line in self.needs("ldd", self.program).out.splitlines()
                      if not re.search(r"(linux-vdso|libc|libm|libstdc\+\+|libgcc_s)\.so|ld-linux", line)]
            self.check("needs the C++ library alone", not others, others)
        losses = []
        for seed in seeds("1..2"):
            # Graphs get few queues, so that their nodes delay each other. With every third seed, a device runs two calls of NCCL at a time.
            self.needs(*self.command("seed", "--steps", 3 if LONG else 2, "--seed", 1, "--summary", "seed/summary.json"), seconds=120, PC_STANDIN_SEED=str(seed),
                       PC_STANDIN_GRAPH_QUEUES=str(1 + seed % 4), PC_STANDIN_IN_FLIGHT=str(1 + (seed % 3 == 2)))
            losses.append(self.losses_of("seed"))
        summary = json.loads((self.work / "seed/summary.json").read_text())
        self.check("a graph ran", summary["device"]["graph"] or "--expert-exchange=rows" in self.flags, summary["device"])
        if "pp=" in self.mesh: # and call by call, where the host waits for each
            self.needs(*self.command("seed", "--steps", 3 if LONG else 2, "--seed", 1), seconds=120, PCRT_CUDA_BLOCKING="1")
            losses.append(self.losses_of("seed"))
        self.check(f"{len(losses)} seeds", len(set(losses)) == 1, "\n".join(losses))

    def losses_of(self, run):
        """The number as text, exact to the last bit."""
        return re.sub(r', "step_seconds.*', "", (self.work / run / "metrics.jsonl").read_text())

    def sums(self):
        """NCCL adds in rings, trees or switches and rounds bf16 at every hop. So losses must be near those of the order
        of ranks, and every order must give the same bits again."""
        steps = ["--steps", 3, "--seed", 1]
        self.needs(*self.command("usual", *steps))
        for seed in range(1, 11 if LONG else 3):
            lines = []
            for again in "ab":
                self.needs(*self.command(f"sums{seed}{again}", *steps), PC_STANDIN_SUMS=str(seed))
                lines.append(self.losses_of(f"sums{seed}{again}"))
            self.check(f"order {seed}: the same bits again", len(set(lines)) == 1, "\n".join(lines))
            self.compare(f"order {seed}: losses", "losses", "usual/metrics.jsonl", f"sums{seed}a/metrics.jsonl", "--tolerance",
                         {"f32": 1e-5, "bf16": 2**-8}[self.precision])

    def queues(self):
        """A run with few hardware queues never hangs, and every order gives the same bits."""
        losses = set()
        for queues in (1, 2, 8, 32):
            for seed in seeds("1..0"):
                done = self.call(*self.command("queues", "--steps", 2, "--seed", 1), seconds=120, CUDA_DEVICE_MAX_CONNECTIONS=str(queues),
                                 PC_STANDIN_SEED=str(seed))
                if not self.check(f"{queues} hardware queues, seed {seed}", done.code == 0, done.why()):
                    break
                losses.add(self.losses_of("queues"))
        self.check("the same bits", len(losses) == 1, "\n".join(losses))

    def trace(self):
        """The order of tasks in a trace must be that of the program that was checked."""
        self.needs(*self.command("traced", "--steps", 2, "--seed", 1, "--trace", "trace.json"))
        want, names, got = [], {}, {}
        for line in self.phase("planned").read_text().splitlines():
            if re.match(r"\s*(?:builtin\.)?module @stage\d+", line):
                want.append([])
            elif found := re.match(r"\s*pc\.task (\w+)(?: chunk (\d+) microbatch (\d+))?", line):
                kind, chunk, microbatch = found.groups()
                want[-1].append(kind if microbatch is None else f"{kind} {microbatch}" + (f" of chunk {chunk}" if chunk != "0" else ""))
        for event in json.loads((self.work / "trace.json").read_text())["traceEvents"]:
            if event["ph"] == "M":
                names[event["pid"]] = event["args"]["name"]
            elif event["tid"] == 0:
                got.setdefault(event["pid"], []).append((event["ts"], event["dur"], event["name"]))
        for rank, tasks in sorted(got.items()):
            tasks.sort()
            stage, ran = int(re.search(r"stage (\d+)", names[rank])[1]), [name for _, _, name in tasks]
            self.check(f"rank {rank} ran what was checked", ran == want[stage], f"{ran}, not {want[stage]}")
            self.check(f"tasks of rank {rank} do not overlap", all(a[0] + a[1] <= b[0] + 0.01 for a, b in zip(tasks, tasks[1:])), tasks)
        self.check("every rank has a trace", len(got) == self.ranks, got.keys())


def run_row(table, text, checks):
    """A row after "# check: program" is a program of this folder, or a tool, and its arguments; after "commands" it is a section of a file of commands."""
    if checks == ["program"]:
        name, *arguments = text.split()
        sys.exit(subprocess.run([(HERE if (HERE / name).exists() else BIN) / name, *arguments]).returncode)
    row = Commands(table, text) if checks == ["commands"] else Row(table, text, checks)
    row.run(row.body)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    table, wanted = sys.argv[1], " ".join(sys.argv[2:])
    found = list(rows(table))
    chosen = [row for row in found if row[0] == wanted] or [row for row in found if wanted in row[0]]
    if len(chosen) == 1:
        run_row(table, *chosen[0][:2])
    if len({text for text, *_ in chosen}) < len(chosen):
        sys.exit(f"{table} has a row twice: {chosen[0][0]}")
    codes = [subprocess.run([sys.executable, __file__, table, text]).returncode for text, _, _ in chosen]
    print(f"{codes.count(0)} rows passed, {len(codes) - codes.count(0)} failed")
    sys.exit(not codes or any(codes))


if __name__ == "__main__":
    main()
