"""Compares one step on one rank with JAX's: the loss, and the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pc_program import check as shared
from pc_program.check import Array, Row, compare, relative, run
from pc_program.program import Exported

from .export import Built, export

__all__ = ["check", "differences", "run", "write_data"]


def differences(file: Path, names: Sequence[str], gradients: Sequence[Any], floor: float = 1e-3) -> list[Row]:
    from safetensors.numpy import load_file

    got, rows = load_file(file), []
    for name, gradient in zip(names, map(np.asarray, gradients)):
        found = got[name].reshape(gradient.shape) if name in got else np.zeros_like(gradient)
        rows.append((f"{name} {list(gradient.shape)}", float(np.linalg.norm(found - gradient)), float(np.linalg.norm(gradient))))
    return relative(rows, floor)


def array(x: Any) -> Array:
    x = np.asarray(x)
    is_float = not np.issubdtype(x.dtype, np.integer)
    return Array(is_float, x.shape, x.astype(np.float32 if is_float else np.int32).tobytes())


def write_data(folder: Path, exported: Exported, steps: Sequence[dict[str, Any]]) -> list[str]:
    return shared.write_data(folder, exported, [{name: array(x) for name, x in step.items()} for step in steps])


def check(built: Built, directory: Path, tolerance: float, binaries: Path | None) -> int:
    exported = export(built)
    names, values = built.trained()
    loss, gradients = jax.value_and_grad(built.of_leaves)(values, built.inputs)
    arrays = {name: array(value) for name, value in built.inputs.items()}
    return compare(exported, directory, arrays, tolerance, binaries, "JAX", float(loss), lambda file: differences(file, names, gradients))
