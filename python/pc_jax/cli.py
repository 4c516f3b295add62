"""The command line: exit status 0, 1 where `check` finds a difference, 2 for a wrong command line, 3 for what is refused."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pc_torch.errors import Refused

USAGE = """python -m pc_jax MODULE:FUNCTION -o DIR
       python -m pc_jax check MODULE:FUNCTION DIR [--tolerance T] [--bin DIR]

FUNCTION() returns (loss, params, inputs): loss(params, **inputs) is a scalar, or a tuple with it first; params is a pytree, or a
model that is one (Flax nnx, Equinox); inputs is a dict of example arrays, whose first dim is the batch. Shapes of the examples
are those of the program.

The first form writes model.mlir, model.safetensors and config.json, which pc-compile and pc-run start from. The second compiles
DIR/model.mlir for one rank, runs one step and compares the loss and the gradient of every parameter with JAX."""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser("python -m pc_jax", usage=USAGE, add_help=True)
    parser.add_argument("what", metavar="MODULE:FUNCTION")
    checks = arguments[:1] == ["check"]
    if checks:
        parser.add_argument("directory", type=Path)
        parser.add_argument("--tolerance", type=float, default=1e-4, help="largest relative difference (default: 1e-4)")
        parser.add_argument("--bin", type=Path, help="the folder of pc-compile and pc-run (default: those in PATH)")
    else:
        parser.add_argument("-o", dest="directory", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments[checks:])
    try:
        from .export import build, export

        built = build(given.what)
        exported = export(built)
        if checks:
            from .check import check

            return check(built, exported, given.directory, given.tolerance, given.bin)
        exported.write(given.directory)
    except Refused as error:
        print(error.message(), file=sys.stderr)
        return 3
    for note in exported.notes:
        print("note:", note, file=sys.stderr)
    inputs = ", ".join(f"{name} ({kind})" for name, kind in exported.kinds.items())
    print(f"{given.directory}/model.mlir: {exported.text.count(' = pc.')} ops, {len(exported.tensors)} tensors, inputs {inputs}", file=sys.stderr)
    return 0
