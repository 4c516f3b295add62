"""The command line: exit status 0, 1 where `check` finds a difference, 2 for a wrong command line, 3 for what is refused."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .errors import Refused

EXPORT = """usage: python -m pc_torch MODULE:FUNCTION -o DIR [--dropout P]
       python -m pc_torch check MODULE:FUNCTION DIR [--tolerance T] [--bin DIR]

FUNCTION() returns (module, inputs): an nn.Module whose forward takes the inputs by name and returns the loss, or a tuple with it,
and a dict of example tensors, whose first dim is the batch. Shapes of the examples are those of the program.

The first form writes model.mlir, model.safetensors and config.json, which pc-compile and pc-run start from. The second compiles
DIR/model.mlir for one rank, runs one step and compares the loss and the gradient of every parameter with PyTorch."""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser("python -m pc_torch", usage=EXPORT.removeprefix("usage: "), add_help=True)
    parser.add_argument("what", metavar="MODULE:FUNCTION")
    checks = arguments[:1] == ["check"]
    if checks:
        parser.add_argument("directory", type=Path)
        parser.add_argument("--tolerance", type=float, default=1e-4, help="largest relative difference (default: 1e-4)")
        parser.add_argument("--bin", type=Path, help="the folder of pc-compile and pc-run (default: those in PATH)")
    else:
        parser.add_argument("-o", dest="directory", type=Path, required=True, metavar="DIR")
        parser.add_argument(
            "--dropout", type=float, metavar="P", help="the rate of every op that drops; 0: no dropout (default: the module's own rates)"
        )
    given = parser.parse_args(arguments[checks:])
    if not checks and given.dropout is not None and not 0 <= given.dropout < 1:
        parser.error("--dropout is at least 0 and below 1")
    try:
        if checks:
            from .check import check

            return check(given.what, given.directory, given.tolerance, given.bin)
        return export_to(given.what, given.directory, given.dropout)
    except Refused as error:
        print(error.message(), file=sys.stderr)
        return 3


def export_to(what: str, directory: Path, dropout: float | None) -> int:
    from .export import build, export

    name, module, inputs = build(what)
    exported = export(module, inputs, name, dropout)
    exported.write(directory)
    for note in exported.notes:
        print("note:", note, file=sys.stderr)
    print(
        f"{directory}/model.mlir: {exported.text.count(' = pc.')} ops, {len(exported.tensors)} tensors, "
        f"inputs {', '.join(f'{n} ({k})' for n, k in exported.kinds.items())}",
        file=sys.stderr,
    )
    return 0
