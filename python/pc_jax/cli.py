"""The command line of pc_jax."""

from __future__ import annotations

import argparse

from pc_program.cli import main as command_line
from pc_program.program import Exported

RETURNS = """FUNCTION() returns (loss, params, inputs): loss(params, **inputs) is a scalar, or a tuple with it first; params is a pytree, or a
model that is one (Flax nnx, Equinox); inputs is a dict of example arrays, whose first dim is the batch. Shapes of the examples
are those of the program."""


def main(arguments: list[str] | None = None) -> int:
    return command_line("pc_jax", "JAX", RETURNS, arguments, export, check)


def export(given: argparse.Namespace) -> Exported:
    from . import export as of

    return of.export(of.build(given.what))


def check(given: argparse.Namespace) -> int:
    from . import check as of
    from .export import build

    built = build(given.what)
    return of.check(built, given.directory, given.tolerance, given.bin)
