"""The command line. The exit status is 0, 1 if `check` finds a difference, 2 for a wrong command line, and 3 for a
model that is refused."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from .errors import Refused
from .program import Exported

FORMS = """python -m {package} MODULE:FUNCTION -o DIR{options}
       python -m {package} check MODULE:FUNCTION DIR [--tolerance T] [--bin DIR]

{function}

The first form writes model.mlir, model.safetensors and config.json, which pc-compile and pc-run start from. The second compiles
DIR/model.mlir for one rank, runs one step and compares the loss and the gradient of every parameter with {library}."""


def main(
    package: str,
    library: str,
    function: str,  # what FUNCTION returns
    arguments: list[str] | None,
    export: Callable[[argparse.Namespace], Exported],
    check: Callable[[argparse.Namespace], int],
    drops: bool = False,
) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = " [--dropout P]" if drops else ""
    parser = argparse.ArgumentParser(
        f"python -m {package}", usage=FORMS.format(package=package, options=options, function=function, library=library), add_help=True
    )
    parser.add_argument("what", metavar="MODULE:FUNCTION")
    checks = arguments[:1] == ["check"]
    if checks:
        parser.add_argument("directory", type=Path)
        parser.add_argument("--tolerance", type=float, default=1e-4, help="largest relative difference (default: 1e-4)")
        parser.add_argument("--bin", type=Path, help="the folder of pc-compile and pc-run (default: those in PATH)")
    else:
        parser.add_argument("-o", dest="directory", type=Path, required=True, metavar="DIR")
        if drops:
            text = "rate of all dropouts, where 0 means none (default: the rates of the module)"
            parser.add_argument("--dropout", type=float, metavar="P", help=text)
    given = parser.parse_args(arguments[checks:])
    if not checks and drops and given.dropout is not None and not 0 <= given.dropout < 1:
        parser.error("--dropout must be at least 0 and below 1")
    try:
        if checks:
            return check(given)
        exported = export(given)
        exported.write(given.directory)
    except Refused as error:
        print(error.message(), file=sys.stderr)
        return 3
    for note in exported.notes:
        print("note:", note, file=sys.stderr)
    inputs = ", ".join(f"{name} ({kind})" for name, kind in exported.kinds.items())
    print(f"{given.directory}/model.mlir: {exported.text.count(' = pc.')} ops, {len(exported.tensors)} tensors, inputs {inputs}", file=sys.stderr)
    return 0
