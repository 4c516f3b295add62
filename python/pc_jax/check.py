"""One step on one rank beside JAX: the loss, and the gradient of every parameter."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pc_torch.errors import Refused

from .export import Built, Exported


def run(binaries: Path | None, tool: str, *arguments: object) -> None:
    found = str(binaries / tool) if binaries else shutil.which(tool)
    if not found:
        raise Refused(f"{tool} is not in PATH", "Add the folder of pc's tools to PATH, or give --bin.")
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{tool} ended with {done.returncode}:\n{done.stderr.strip()}", "The program in the directory does not run.")


def write_data(folder: Path, exported: Exported, steps: Sequence[dict[str, Any]]) -> list[str]:
    """Files with the inputs of these steps, and the flags of a run that reads them."""
    flags, given = [], []
    for name, kind in exported.kinds.items():
        values = np.concatenate([np.asarray(step[name]) for step in steps])
        values = values.astype(np.int32 if np.issubdtype(values.dtype, np.integer) else np.float32)
        if kind == "data":
            given.append(f"{name}={folder / (name + '.npy')}")
            np.save(folder / f"{name}.npy", values.reshape(len(values), *exported.rows[name]))
        else:  # a run reads one token more than samples have
            np.save(folder / f"{kind}.npy", np.append(values, values.flat[0]))
            flags += ["--data" if kind == "tokens" else "--targets", str(folder / f"{kind}.npy")]
    return flags + (["--data", ",".join(given)] if given else [])


def differences(file: Path, names: Sequence[str], gradients: Sequence[Any], floor: float = 1e-3) -> list[tuple[float, str]]:
    """The norm of the difference relative to that of the gradient, or to `floor` times the largest gradient's norm if that is more."""
    from safetensors.numpy import load_file

    got = load_file(file)
    norms = [float(np.linalg.norm(gradient)) for gradient in gradients]
    rows = []
    for name, gradient, norm in zip(names, map(np.asarray, gradients), norms):
        found = got[name].reshape(gradient.shape) if name in got else np.zeros_like(gradient)
        rows.append((float(np.linalg.norm(found - gradient)) / max(norm, floor * max(norms), 1e-30), f"{name} {list(gradient.shape)}"))
    return rows


def check(built: Built, exported: Exported, directory: Path, tolerance: float, binaries: Path | None) -> int:
    names, values = built.trained()
    loss, gradients = jax.value_and_grad(built.of_leaves)(values, built.inputs)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        run(binaries, "pc-compile", directory / "model.mlir", "-o", folder / "train")
        flags = [*write_data(folder, exported, [built.inputs]), "--init", directory, "--steps", 1, "--lr", 0, "--weight-decay", 0]
        flags += ["--metrics", folder / "metrics", "--dump-grads", folder / "gradients.safetensors"]
        run(binaries, "pc-run", "-n", 1, folder / "train", "--", *flags)
        got = json.loads((folder / "metrics").read_text().splitlines()[0])["loss"]
        rows = [(abs(got - float(loss)) / abs(float(loss)), f"loss: {got:.7g}, JAX {float(loss):.7g}")]
        rows += differences(folder / "gradients.safetensors", names, gradients)
    for difference, label in rows:
        print(f"{'ok  ' if difference <= tolerance else 'FAIL'}  {difference:.1e}  {label}")
    wrong = sum(difference > tolerance for difference, _ in rows)
    print(f"{len(rows) - wrong} of {len(rows)} within {tolerance:g}")
    return int(wrong > 0)
