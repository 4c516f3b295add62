"""Compares one step on one rank with PyTorch's: the loss, and the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pc_program import check as shared
from pc_program.check import Array, Row, compare, relative, run
from pc_program.errors import Refused
from pc_program.program import Exported

from .export import Inputs, build, export

__all__ = ["check", "gradient_differences", "named_gradients", "run", "write_data"]


def named_gradients(module: torch.nn.Module) -> Inputs:
    return {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}


def gradient_differences(file: Path, want: Inputs) -> list[Row]:
    from safetensors.torch import load_file

    got, rows = load_file(file), []
    for name, gradient in want.items():
        norm, label = float(gradient.norm()), f"{name} {list(gradient.shape)}"
        if name in got:
            rows.append((label, float((got[name].view_as(gradient) - gradient).norm()), norm))
        else:
            rows.append((label + " (no gradient in the program)", float("inf") if norm else 0.0, norm))
    return relative(rows)


def array(x: torch.Tensor) -> Array:
    numbers = x.float() if x.is_floating_point() else x.int()
    return Array(x.is_floating_point(), x.shape, bytes(numbers.contiguous().view(torch.uint8).flatten().tolist()))


def write_data(folder: Path, exported: Exported, steps: Sequence[Inputs]) -> list[str]:
    return shared.write_data(folder, exported, [{name: array(x) for name, x in step.items()} for step in steps])


def check(what: str, directory: Path, tolerance: float, binaries: Path | None) -> int:
    name, module, inputs = build(what)
    exported = export(module, inputs, name)
    if exported.dropout:
        raise Refused(
            "the module has dropout, whose random numbers are not PyTorch's",
            "Let FUNCTION build it with rates of 0, for example by an environment variable; --dropout at export sets the rates of the program.",
        )
    step = {key: value.clone() for key, value in inputs.items()}
    result = module(**step)
    loss = next(r for r in result if isinstance(r, torch.Tensor) and r.dim() == 0) if isinstance(result, (tuple, list)) else result
    loss.backward()
    gradients = named_gradients(module)
    arrays = {key: array(value) for key, value in step.items()}
    return compare(exported, directory, arrays, tolerance, binaries, "PyTorch", float(loss), lambda file: gradient_differences(file, gradients))
