"""The command line of pc_torch."""

from __future__ import annotations

import argparse

from pc_program.cli import main as command_line
from pc_program.program import Exported

RETURNS = """FUNCTION() returns (module, inputs): an nn.Module whose forward takes the inputs by name and returns the loss, or a tuple with it,
and a dict of example tensors, whose first dim is the batch. Shapes of the examples are those of the program."""


def main(arguments: list[str] | None = None) -> int:
    return command_line("pc_torch", "PyTorch", RETURNS, arguments, export, check, drops=True)


def export(given: argparse.Namespace) -> Exported:
    from . import export as of

    name, module, inputs = of.build(given.what)
    return of.export(module, inputs, name, given.dropout)


def check(given: argparse.Namespace) -> int:
    from . import check as of

    return of.check(given.what, given.directory, given.tolerance, given.bin)
