"""Compares one step on one rank with the library in which the model is written: the loss, and the gradient of every
parameter."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Refused
from .program import Exported

Row = tuple[float, str]  # relative difference, name


@dataclass
class Array:
    """An array of numbers of four bytes, floats or integers."""

    is_float: bool
    shape: Sequence[int]
    data: bytes


def write_npy(path: Path, is_float: bool, shape: Sequence[int], data: bytes) -> None:
    """Writes NumPy's format, version 1, without NumPy."""
    head = f"{{'descr': '{'<f4' if is_float else '<i4'}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)


def write_data(folder: Path, exported: Exported, steps: Sequence[dict[str, Array]]) -> list[str]:
    """Writes files with the inputs of these steps. Returns the flags of a run that reads them."""
    flags, given = [], []
    for name, kind in exported.kinds.items():
        arrays = [step[name] for step in steps]
        data = b"".join(array.data for array in arrays)
        if kind == "data":
            given.append(f"{name}={folder / (name + '.npy')}")
            shape = [sum(array.shape[0] for array in arrays), *exported.rows[name]]
            write_npy(folder / f"{name}.npy", arrays[0].is_float, shape, data)
        else:  # a run reads one token more than samples have
            write_npy(folder / f"{kind}.npy", False, [len(data) // 4 + 1], data + data[:4])
            flags += ["--data" if kind == "tokens" else "--targets", str(folder / f"{kind}.npy")]
    return flags + (["--data", ",".join(given)] if given else [])


def relative(rows: Sequence[tuple[str, float, float]], floor: float = 1e-3) -> list[Row]:
    """Returns the ratio for (name, norm of a difference, norm of the gradient). The gradient counts as at least `floor`
    times the largest one, because a gradient that is 0 except for rounding, such as that of a key's bias, has no
    correct digits."""
    least = floor * max((norm for *_, norm in rows), default=0.0)
    return [(difference / max(norm, least, 1e-30) if math.isfinite(difference) else difference, name) for name, difference, norm in rows]


def run(binaries: Path | None, tool: str, *arguments: Any) -> None:
    found = str(binaries / tool) if binaries else shutil.which(tool)
    if not found:
        raise Refused(f"{tool} is not in PATH", "Add the folder of pc's tools to PATH, or give --bin.")
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{tool} ended with {done.returncode}:\n{done.stderr.strip()}", "The program in the directory does not run on one rank.")


def compare(
    exported: Exported,
    directory: Path,
    step: dict[str, Array],
    tolerance: float,
    binaries: Path | None,
    library: str,
    loss: float,
    differences: Callable[[Path], list[Row]],  # of the gradients in a file
) -> int:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        run(binaries, "pc-compile", directory / "model.mlir", "-o", folder / "train")
        flags = [*write_data(folder, exported, [step]), "--init", directory, *"--steps 1 --lr 0 --weight-decay 0".split()]
        flags += ["--metrics", folder / "metrics", "--dump-grads", folder / "gradients.safetensors"]
        run(binaries, "pc-run", "-n", 1, folder / "train", "--", *flags)
        got = json.loads((folder / "metrics").read_text().splitlines()[0])["loss"]
        rows = [(abs(got - loss) / abs(loss), f"loss: {got:.7g}, {library} {loss:.7g}"), *differences(folder / "gradients.safetensors")]
    for difference, label in rows:
        print(f"{'ok  ' if difference <= tolerance else 'FAIL'}  {difference:.1e}  {label}")
    wrong = sum(difference > tolerance for difference, _ in rows)
    print(f"{len(rows) - wrong} of {len(rows)} within {tolerance:g}")
    return int(wrong > 0)
