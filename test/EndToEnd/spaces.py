#!/usr/bin/env python3
"""usage: test/EndToEnd/spaces.py gpt2-2|gpt2-4|llama-8b-8

Compiles every plan of a space once. The plan that --auto accepts, without a limit of memory and with five limits, must
be the fastest plan of the space that fits, or slower by no more than the gap that it states. Layers that are recomputed
differently belong to the space: the ten fastest plans that need it are compiled with --recompute=auto. Results are kept
until the compiler is rebuilt, so that an interrupted test continues."""
import itertools
import json
import multiprocessing.pool
import re
import sys

from cases import BIN, BUILD, ROOT, Case

LLAMA_8B = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": False}
SCHEDULES = ["1f1b", "gpipe", "1f1b-eager", "zb-h1", "zb-h2", "zb-v", "interleaved:2", "interleaved:3", "interleaved:6"]  # of 12 layers on two stages
# Config, batch, sequence, ranks, axes, flags that are given, what --auto is free to choose, plans that are legal.
SPACES = {
    "gpt2-2": (None, 8, 256, 2, ["pp", "dp", "cp", "tp"], [], "", 192),
    "gpt2-4": (None, 8, 256, 4, ["dp", "cp", "tp"], [], "dp,cp,tp,zero,tensor-parallel,sequence-parallel,microbatches,recompute", 201),
    "llama-8b-8": (LLAMA_8B, 16, 2048, 8, ["dp", "tp"], ["--machine=h100", "--precision=bf16"],
                   "dp,tp,zero,tensor-parallel,sequence-parallel,microbatches,recompute", 276),
}
RECOMPUTED = ["", "--recompute=selective", "--recompute=full"]
TEN = 10


def divisors(n):
    return [i for i in range(1, n + 1) if n % i == 0]


def meshes(ranks, axes):
    """Sizes of axes; a grid of row and col in place of tp where there is room for one."""
    for sizes in itertools.product(divisors(ranks), repeat=len(axes)):
        product = 1
        for size in sizes:
            product *= size
        mesh = dict(zip(axes, sizes))
        if product == ranks:
            yield mesh
            side = round(mesh["tp"] ** 0.5)
            if side > 1 and side * side == mesh["tp"]:
                yield mesh | {"tp": 1, "row": side, "col": side}
            # 2 x 2 x 2 ranks are a 3D grid, or a 2.5D grid with depth.
            if mesh["tp"] == 8:
                yield mesh | {"tp": 1, "i": 2, "j": 2, "l": 2}
                yield mesh | {"tp": 1, "depth": 2, "row": 2, "col": 2}


def bases(name):
    """Flags of all plans of the space but for recomputation; what does not divide is the compiler's to refuse."""
    _, batch, _, ranks, axes, _, free, _ = SPACES[name]
    for mesh in meshes(ranks, axes):
        of = lambda axis: mesh.get(axis, 1)
        grid = ["3d"] if of("i") > 1 else ["2.5d"] if of("depth") > 1 else ["2d"] if of("row") > 1 else []
        choices = [[f"--pipeline={schedule}" for schedule in SCHEDULES] if of("pp") > 1 else [""],
                   [f"--zero={stage}" for stage in range(4)] if of("dp") > 1 else [""],
                   ["", "--sequence-parallel"] if of("tp") > 1 else [f"--tensor-parallel={form}" for form in grid] or [""],
                   ["", "--context-parallel=ring"] if of("cp") > 1 and not free else [""],
                   [f"--microbatches={n}" for n in divisors(batch // of("dp"))]]
        sizes = ",".join(f"{axis}={size}" for axis, size in mesh.items() if size > 1)
        for flags in itertools.product(*choices):
            yield " ".join([f"--mesh={sizes}", *filter(None, flags)])


class Spaces(Case):
    def __init__(self, name):
        super().__init__(f"spaces-{name}")
        self.space, (self.config, self.batch, self.sequence, self.ranks, _, self.given, self.free, self.legal) = name, SPACES[name]
        kept = BUILD / "end-to-end/shared/spaces"
        kept.mkdir(parents=True, exist_ok=True)
        self.file = kept / f"{name}-{int((BIN / 'pc-compile').stat().st_mtime)}.jsonl"
        for other in kept.glob(f"{name}-[0-9]*.jsonl"):
            if other != self.file:
                other.unlink()
        self.rows = {}
        for line in self.file.read_text().splitlines() if self.file.exists() else []:
            try:
                row = json.loads(line)
                self.rows[row["flags"]] = row
            except ValueError:  # the last one, when the test was killed
                pass

    def compile(self, flags, report):
        return self.call("pc-compile", self.work / "model.mlir", *self.given, *flags.split(), "--to=planned", "-o", "/dev/null", f"--report={report}", seconds=1200)

    def figures(self, report):
        report = json.loads((self.work / report).read_text())
        return report["predicted"]["step_seconds"], max(rank["arena_bytes"]["device"] for rank in report["per_rank"])

    def row(self, job):
        number, flags = job
        done = self.compile(flags, f"report-{number}.json")
        if done.code:
            return {"flags": flags, "code": done.code, "why": done.err.strip()[:300]}
        seconds, size = self.figures(f"report-{number}.json")
        (self.work / f"report-{number}.json").unlink()
        return {"flags": flags, "code": 0, "seconds": seconds, "bytes": size}

    def compiled(self, all_flags):
        """The rows of these plans; what is not known yet is compiled, two at a time."""
        all_flags = list(all_flags)
        todo = [flags for flags in all_flags if flags not in self.rows]
        with multiprocessing.pool.ThreadPool(2) as pool, open(self.file, "a") as file:
            for row in pool.imap_unordered(self.row, enumerate(todo)):
                self.rows[row["flags"]] = row
                print(json.dumps(row), file=file, flush=True)
        return [self.rows[flags] for flags in all_flags]

    def mixed(self, limit):
        """The ten fastest plans that do not fit as they are and do with all layers recomputed, with as little recomputed as fits."""
        todo = []
        for base in bases(self.space):
            chain = [self.rows[f"{base} {how}".strip()] for how in RECOMPUTED]
            if not any(row["code"] for row in chain) and chain[0]["bytes"] > limit >= min(row["bytes"] for row in chain):
                todo.append((chain[0]["seconds"], base))
        return self.compiled(f"{base} --recompute=auto --memory-limit={limit}" for _, base in sorted(todo)[:TEN])

    def accepted(self, limit):
        """Whether what --auto accepts is as fast as the space has it."""
        flags = " ".join([f"--auto={self.free}" if self.free else "--auto", f"--ranks={self.ranks}", *([f"--memory-limit={limit}"] if limit else [])])
        done = self.compile(flags, "auto.json")
        title = f"limit {limit}" if limit else "no limit"
        if not self.check(f"{title}: a plan", done.code == 0, done.why()):
            return
        seconds, size = self.figures("auto.json")
        gap = json.loads((self.work / "auto.json").read_text())["search"]["gap"]
        uniform = [row for row in self.rows.values() if row["code"] == 0 and "--memory-limit" not in row["flags"]]
        for name, rows in (("of all", uniform), ("of those with layers that differ", self.mixed(limit) if limit else [])):
            rows = [row for row in rows if row["code"] == 0 and (not limit or row["bytes"] <= limit)]
            if not rows:
                continue
            best = min(rows, key=lambda row: row["seconds"])
            good = (not limit or size <= limit) and seconds * (1 - gap) <= best["seconds"] * (1 + 1e-9)
            told = f"{best['seconds']:.6g} s by {best['flags']}, accepted {seconds:.6g} s, gap {100 * gap:.1f} %"
            self.check(f"{title}, {len(rows)} {name}", good, f"{told}\n{done.why()}", f"{told}: {re.search('chosen .*?iB  (.*?)  products', done.err)[1]}")

    def body(self):
        config = ROOT / "examples/gpt2-124m"
        if self.config:
            config = self.work / "config"
            config.mkdir()
            (config / "config.json").write_text(json.dumps(self.config))
        self.model(config, self.batch, self.sequence)
        rows = self.compiled(f"{base} {how}".strip() for base in bases(self.space) for how in RECOMPUTED)
        legal = [row for row in rows if row["code"] == 0]
        wrong = [row for row in rows if row["code"] not in (0, 4)]
        self.check("all compile or are refused", not wrong, wrong)
        self.check("as many as there are", len(legal) == self.legal, f"{len(legal)} of {len(rows)}", f"{len(legal)} of {len(rows)}")
        best, least = min(legal, key=lambda row: row["seconds"]), min(row["bytes"] for row in legal)
        self.accepted(0)
        for tenths in (0, 2, 4, 6, 8):
            self.accepted(least + (best["bytes"] - least) * tenths // 10)


case = Spaces(sys.argv[1])
case.run(case.body)
