#!/usr/bin/env python3
"""Checks and measures this compiler's programs on a machine with a GPU, the most valuable rows first. It runs in the
folder that scripts/gpu-check --pack makes. It needs only Python; if PyTorch is there, programs are compared with it.

Every row is written as soon as it is measured, and a second call continues with the missing rows. --out has
results.json (all rows), table.md (the same as a table) and raw.tar (the programs' output). The exit status is 1 if a
row failed or took too long."""

import argparse
import datetime
import fcntl
import json
import os
import re
import shutil
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import measure  # noqa: E402
import process  # noqa: E402
from results import DONE, LIMIT, Results  # noqa: E402

# RESERVE is the part of the budget that is kept for writing the last row. LEAST is the time that must be left for a row
# to begin.
RESERVE, LEAST = 5, 2
# The devices as programs find them: CUDA_VISIBLE_DEVICES counts, and there may be no nvidia-smi.
ASK_DRIVER = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
def need(result):
    if result:
        sys.exit(f"error: CUDA error {result}")
count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
if (result := cuda.cuInit(0)) != 100:  # CUDA_ERROR_NO_DEVICE
    need(result)
    need(cuda.cuDeviceGetCount(ctypes.byref(count)))
names = []
for ordinal in range(count.value):
    need(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    need(cuda.cuDeviceGetName(name, 256, device))
    names.append(name.value.decode(errors="replace"))
print(json.dumps(names))
"""


class Call:
    """One call of this tool: what rows need of it."""

    def __init__(self, options, deadline, digest):
        self.digest, self.pack, self.work, self.stand_in = digest, HERE, options.work, bool(options.stand_in)
        self.deadline, self.most = deadline, None
        self.folder = self.work / "row"
        self.devices = self.driver = self.results = None

    def prepare(self):
        self.work.mkdir(parents=True, exist_ok=True)
        # The keepers of programs also hold this lock. So whoever gets it knows that no program of an earlier call runs.
        self.lock = open(self.work / "lock", "w")
        for _ in range(100):
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)
        else:
            refuse(f"{self.work} is in use by another call; --work names another folder")
        if self.stand_in:
            os.environ["PCRT_CACHE_DIR"] = ""
            self.devices, self.driver = ["stand-in"], None
            return
        os.environ["PCRT_CACHE_DIR"] = str(self.work / "cache")
        os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # NVIDIA's libraries may be those of this Python's PyTorch
        asked = process.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], 15, self.folder)
        lines = [line.split(", ") for line in asked.output().splitlines()] if asked.code == 0 else []
        self.driver = lines[0][1] if lines else None
        asked = process.run([sys.executable, "-c", ASK_DRIVER], 60, self.folder)
        self.devices = json.loads(asked.output()) if asked.code == 0 else [line[0] for line in lines]
        if not self.devices:
            print(f"no device: the CUDA driver says {asked.last_line()}", flush=True)

    @property
    def number(self):
        return self.results.head["calls"]

    @property
    def versions(self):
        return self.results.head["versions"]

    @property
    def pc_run(self):
        return self.program("pc-run")

    def program(self, name):
        """An executable of the pack, unpacked with all that shares its archive."""
        path = self.work / "programs" / self.digest / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name("unpacking")
            archive = json.loads((HERE / "programs/index.json").read_text())[name]
            with tarfile.open(HERE / "programs" / archive) as tar:
                for member in tar:
                    beside.write_bytes(tar.extractfile(member).read())
                    beside.chmod(0o755)
                    beside.rename(path.with_name(member.name))
        return path

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, **environment):
        self.limit = min(self.most, self.left())
        return process.run(command, max(self.limit, 0.1), self.folder, **environment)

    def state_of(self, ended):
        """Returns the state of a program that did not end well. A program that the budget cut short is measured again."""
        return "failed" if not ended.late else "timed out" if self.limit >= self.most else "cut"

    def why(self, ended):
        text = f"no end within {self.limit:.0f} s" if ended.late else f"exit {ended.code}: {ended.last_line()}"
        return text + (f"; {ended.left} processes could not be killed" if ended.left else "")


def limit_of(spec, asked):
    """Seconds that one program of a row may take: what was asked for, else the row's own."""
    return asked or spec.get("limit", LIMIT)


def measure_row(call, spec, most):
    """One row, from its description in the pack to results and the raw files of it."""
    shutil.rmtree(call.folder, ignore_errors=True)
    call.folder.mkdir(parents=True)
    call.most = most
    start = time.monotonic()
    row = dict(spec) | {"limit": most, "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "stand_in": call.stand_in}
    try:
        row["state"], row["note"] = measure.KINDS[spec["kind"]](row, call)
    except Exception as problem:  # one row that breaks leaves the others
        row["state"], row["note"] = "failed", f"{type(problem).__name__}: {problem}"
    if "shrunken" in spec:
        row["note"] = f"shrunken ({spec['shrunken']}): {row['note']}"
    row["seconds"] = time.monotonic() - start
    for key, name in (("driver", "CUDA"), ("cublaslt", "cuBLASLt"), ("cudnn", "cuDNN")):
        if key in row.get("device", {}):
            call.versions[name] = row["device"][key]
    row.pop("predicted", None)
    call.results.put(row, call.folder)
    print(f"{row['state']:9}  {row['seconds']:5.1f} s  {row['name']}: {row['note']}", flush=True)


def missing_libraries(call):
    """Returns the libraries that the loader does not find here. Without them no program below would run."""
    found = set()
    for name in ("pc-run", "comm-conformance"):
        said = process.run(["ldd", call.program(name)], 10, call.folder).output()
        found |= {line.split()[0] for line in said.splitlines() if "not found" in line}
    return sorted(found)


def chosen(rows, options):
    """In the order of the pack. Some rows only run when --match finds them."""
    return [row for row in rows if (re.search(options.match, row["name"]) if options.match else row.get("default", True))]


def read_earlier(options):
    """Results to go on from: those in --out first."""
    files = [options.out / "results.json"] if (options.out / "results.json").exists() else []
    earlier = []
    for file in [*files, *options.go_on]:
        try:
            earlier.append(json.loads(file.read_text()))
        except (OSError, ValueError) as problem:
            refuse(f"cannot go on from {file}: {problem}")
    return earlier


def refuse(text):
    print(f"run: error: {text}", file=sys.stderr)
    sys.exit(2)


def regex(text):
    try:
        re.compile(text)
    except re.error as problem:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {problem}")
    return text


def parse():
    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", type=regex, help="run only rows whose name matches, including those that are off by default")
    parser.add_argument("--budget", metavar="SECONDS", type=float, default=570, help="end within this time even if a program hangs (default %(default)s)")
    parser.add_argument("--limit", metavar="SECONDS", type=float, help=f"time limit for one program, "
                        f"instead of {LIMIT} or the row's own; rows that timed out with less are measured again")
    parser.add_argument("--list", action="store_true", help="print the rows and their results so far without running anything")
    parser.add_argument("--again", action="store_true", help="measure rows again that have results already")
    parser.add_argument("--out", metavar="DIR", type=Path, default=HERE / "out", help="folder for results.json, table.md and raw.tar (default %(default)s)")
    parser.add_argument("--from", metavar="FILE", type=Path, action="append", default=[], dest="go_on",
                        help="a results.json of an earlier call, to go on from where --out was emptied")
    parser.add_argument("--work", metavar="DIR", type=Path, default=HERE / "work", help="folder for unpacked programs and caches (default %(default)s)")
    parser.add_argument("--stand-in", metavar="FILE", help="run without a GPU on this libpc_standin.so; its times mean nothing")
    options = parser.parse_args()
    options.out, options.work = options.out.resolve(), options.work.resolve()
    options.go_on = [file.resolve() for file in options.go_on]
    return options


def main():
    start = time.monotonic()
    options = parse()
    deadline = start + options.budget - min(RESERVE, options.budget / 4)
    pack, rows = json.loads((HERE / "pack.json").read_text()), json.loads((HERE / "rows.json").read_text())
    if options.stand_in:
        if not pack["stand_in"]:
            refuse("this pack has no kernels for the stand-in; make one with scripts/gpu-check --pack DIR --stand-in")
        os.environ["PCRT_CUDA_LIBRARIES"] = "standin:" + str(Path(options.stand_in).resolve())
    mine, earlier = chosen(rows, options), read_earlier(options)
    if not mine:
        refuse(f"no row matches '{options.match}'; --list names them")
    if options.list:
        known = {row["name"]: row["state"] for results in reversed(earlier) for row in results["rows"]}
        for row in mine if options.match else rows:
            print(f"{known.get(row['name'], 'missing'):9}  {row['name']}{'' if row.get('default', True) else '  (only with --match)'}")
        return 0
    os.chdir(HERE)
    call = Call(options, deadline, pack["digest"])
    call.prepare()
    options.out.mkdir(parents=True, exist_ok=True)
    head = {"title": f"{', '.join(call.devices) or 'no device'}, {datetime.date.today()}", "stand_in": call.stand_in, "pack": pack,
            "devices": call.devices, "driver": call.driver, "python": sys.version.split()[0], "cores": os.cpu_count(),
            "missing_libraries": missing_libraries(call)}
    if head["missing_libraries"]:
        print(f"programs do not find {', '.join(head['missing_libraries'])}", flush=True)
    try:
        call.results = Results(options.out, head, [row["name"] for row in rows], earlier)
    except (ValueError, KeyError) as problem:
        refuse(f"cannot go on from earlier results: {problem}")
    for row in mine:
        most = limit_of(row, options.limit)
        if (options.again or not call.results.done(row["name"], most)) and call.left() > LEAST:
            call.results.begin(row["name"])
            measure_row(call, row, most)
    return finish(call, mine)


def finish(call, mine):
    states = [call.results.rows[row["name"]]["state"] if row["name"] in call.results.rows else "missing" for row in mine]
    count = lambda *names: sum(state in names for state in states)
    failed, left = count("failed", "timed out"), len(states) - count(*DONE)
    print(f"{call.results.folder}/table.md\n{count('ok')} ok, {failed} failed or too slow, {left} left")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
