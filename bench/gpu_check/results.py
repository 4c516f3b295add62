"""Writes the results: results.json (all rows), table.md (the same as a table) and raw.tar (the programs' output). A
rename replaces each file as a whole, so that a kill leaves the previous version."""

import gzip
import io
import json
import math
import os
import tarfile
import time
from pathlib import Path

# A file that comes back has at most 16 MiB.
RAW_BYTES, RAW_BYTES_OF_ROW = 15 << 20, 2 << 20
DONE = ("ok", "failed", "timed out")  # others are measured again by the next call
LIMIT = 90  # seconds that a program may take, unless its row or the call says otherwise


def plain(value):
    """JSON has no infinities and no NaN: they become words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def replace(path, data):
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    os.replace(beside, path)


class Results:
    def __init__(self, folder, head, order, earlier):
        """`head` describes the machine that was measured; `order` has the names of rows; `earlier` has results to continue from."""
        self.folder, self.order = folder, order
        self.head = {"schema": 1, **head, "calls": 1, "measuring": None, "versions": {}}
        self.rows = {}
        for old in earlier:
            for key in ("pack", "devices"):
                if old[key] != head[key] and (key == "pack" or old[key] and head[key]):
                    raise ValueError(f"they are of {key} {json.dumps(old[key])}, not {json.dumps(head[key])}; --out another folder")
            self.head["calls"] = max(self.head["calls"], old["calls"] + 1)
            self.head["versions"] |= old["versions"]
            # A call that found no device has measured nothing that another one may not.
            for row in old["rows"] if old["devices"] or not head["devices"] else []:
                if row["name"] not in self.rows or self.rows[row["name"]]["state"] not in DONE:
                    self.rows[row["name"]] = row
        self.write()

    def done(self, name, limit):
        """Whether a call that gives the row `limit` seconds has nothing to add."""
        row = self.rows.get(name)
        return bool(row) and row["state"] in DONE and not (row["state"] == "timed out" and limit > row.get("limit", LIMIT))

    def begin(self, name):
        self.head["measuring"] = name
        self.write()

    def put(self, row, raw):
        """A row, and the folder of what its program wrote."""
        row["call"] = self.head["calls"]
        self.rows[row["name"]] = row
        self.head["measuring"] = None
        self.keep_raw(row, raw)
        self.write()

    def write(self):
        rows = [self.rows[name] for name in self.order if name in self.rows]
        everything = plain({**self.head, "rows": rows})
        replace(self.folder / "results.json", (json.dumps(everything, indent=1, allow_nan=False) + "\n").encode())
        try:
            text = table(everything)
        except Exception as problem:  # figures are worth more than their table
            text = f"# {everything['title']}\n\nNo table: {problem!r}\n"
        replace(self.folder / "table.md", text.encode())
        if not (self.folder / "raw.tar").exists():
            self.append([])

    def append(self, members):
        path = self.folder / "raw.tar"
        buffer = io.BytesIO(path.read_bytes() if path.exists() else b"")
        with tarfile.open(fileobj=buffer, mode="a" if buffer.getbuffer().nbytes else "w") as tar:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(data), int(time.time())
                tar.addfile(info, io.BytesIO(data))
        replace(path, buffer.getvalue())

    def keep_raw(self, row, folder):
        room = min(RAW_BYTES_OF_ROW, RAW_BYTES - (self.folder / "raw.tar").stat().st_size)
        members, left_out = [], []
        files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors" and path.stat().st_size]
        for path in sorted(files, key=lambda path: path.stat().st_size):
            with open(path, "rb") as file:
                data = gzip.compress(file.read(64 << 20))
            room -= len(data) + 2048
            if room < 0:
                left_out.append(path.name)
            else:
                members.append((f"{row['call']}/{row['name']}/{path.relative_to(folder)}.gz", data))
        self.append(members)
        if left_out:
            row["raw_left_out"] = left_out


# --- the table ------------------------------------------------------------------


def table(results):
    rows = results["rows"]
    count = lambda *states: sum(row["state"] in states for row in rows)
    lines = [f"# {results['title']}", "",
             f"{count('ok')} rows are right, {count('failed')} failed, {count('timed out', 'cut', 'absent')} were not measured to their end."]
    if results["stand_in"]:
        lines += ["", "On the stand-in of the CUDA libraries, without a GPU: no figure here counts."]
    parts = [f"pack of commit {results['pack']['commit']} for {results['pack']['arch']}", *results["devices"]]
    parts += [f"driver {results['driver']}"] if results["driver"] else []
    lines += ["", ", ".join(parts + [f"{name} {version}" for name, version in results["versions"].items()])]
    lines += ["", "| row | | s | |", "|---|---|---|---|"]
    for row in rows:
        state = row["state"] if row["state"] in ("ok", "absent") else f"**{row['state']}**"
        lines.append(f"| {row['name']} | {state} | {row['seconds']:.1f} | {row['note'].replace('|', '/')} |")
    return "\n".join(lines + training(rows) + kernels(rows)) + "\n"


def training(rows):
    """Compares every program with PyTorch's, and shows where its time goes."""
    by_name = {row["name"]: row for row in rows}
    timed = [row for row in rows if row["kind"] == "train" and "tokens_per_second" in row]
    if not timed:
        return []
    lines = ["", "| training | tokens/s | ms a step (10th to 90th percentile) | times eager | times torch.compile | of the bf16 peak |",
             "|---|---|---|---|---|---|"]
    peaks = {row["call"]: row["roofs"]["bf16_flops_per_second"] for row in rows if "bf16_flops_per_second" in row.get("roofs", {})}
    for row in timed:
        cells = []
        for mode in ("eager", "compile"):
            theirs = by_name.get(f"{row['name']}/{mode}", {})
            cells.append(f"{row['tokens_per_second'] / theirs['tokens_per_second']:.2f}" if "tokens_per_second" in theirs else "")
        peak, flops = peaks.get(row["call"]), row.get("flops_per_step")
        cells.append(f"{flops / row['step_seconds'] / peak:.0%}" if peak and flops else "")
        low, high = row["step_seconds_spread"]
        lines.append(f"| {row['name']} | {row['tokens_per_second']:.0f} | {row['step_seconds'] * 1e3:.2f} ({low * 1e3:.2f} to {high * 1e3:.2f}) "
                     f"| {' | '.join(cells)} |")
    for row in timed:
        if row.get("longest_calls"):
            lines += ["", f"| {row['name']}: longest calls of a step | calls | ms |", "|---|---|---|"]
            lines += [f"| {call['name']} | {call['calls']} | {call['seconds'] * 1e3:.3f} |" for call in row["longest_calls"][:15]]
    return lines


def kernels(rows):
    lines = []
    for row in rows:
        shares = [case for case in row.get("cases", []) if "share" in case]
        if not shares:
            continue
        lines += ["", f"{row['name']}: copy {row['roofs']['copy_bytes_per_second']:.3g} bytes/s, bf16 product of 8192 "
                  f"{row['roofs']['bf16_flops_per_second']:.3g} flops/s in the same call", "",
                  "| kernel or product | us | share of its peak | error |", "|---|---|---|---|"]
        for case in sorted(shares, key=lambda case: -case["seconds"])[:40]:
            name = case.get("kernel") or f"{case['product']} {'x'.join(map(str, case['shape']))}"
            lines.append(f"| {name} | {case['seconds'] * 1e6:.1f} | {case['share']:.0%} | {case['error']} |")
    return lines
