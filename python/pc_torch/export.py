"""Exports a module as a program: torch.export, the walk, rewrites, text."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch
from torch.export import ExportedProgram

from pc_program.errors import Refused
from pc_program.products import put_matrices_last
from pc_program.program import Exported, called, exported, untraced, walked
from pc_program.text import Printer
from pc_program.tidy import UnitDims, find_norms, fold_transposes

from . import choices, ops_layers, ops_math, ops_views  # noqa: F401 - they fill the op table
from .errors import refused
from .layers import Modules
from .loops import roll_loops
from .triangles import invert_triangles
from .walk import Walk

Inputs = dict[str, torch.Tensor]


def build(what: str) -> tuple[str, torch.nn.Module, Inputs]:
    """Returns the name of the user's function, and its result."""
    advice = 'Return the module and a dict of example tensors: {"idx": .., "targets": ..}.'
    torch.manual_seed(0)  # check builds the weights that were exported
    name, made = called(what, returns_module, "(module, inputs)", advice)
    return name, *made


def returns_module(made: object) -> bool:
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module) and isinstance(made[1], dict)


def check_inputs(inputs: Inputs) -> None:
    names: dict[int, str] = {}
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise Refused(f"input '{name}' is not a tensor", "Make it a constant of the module.")
        if (other := names.setdefault(id(value), name)) != name:
            raise Refused(f"inputs '{other}' and '{name}' are one tensor, which torch.export would merge", "Give a clone() of it.")


def trace(module: torch.nn.Module, inputs: Inputs) -> ExportedProgram:
    warnings.filterwarnings("ignore")
    module.train()
    try:
        program = torch.export.export(module, (), dict(inputs), strict=False).run_decompositions({})
    except Exception as error:  # noqa: BLE001 - torch.export raises whatever the user's code and its own tracing raise
        raise untraced("torch.export", "the module", error, user_frame(error)) from error
    signature, nodes = program.graph_signature, {node.name: node for node in program.graph.nodes}
    for output, target in [*signature.buffers_to_mutate.items(), *signature.user_inputs_to_mutate.items()]:
        advice = "State that a step changes (running means, EMA, caches) does not compile: keep it outside of the module, or use a layer without it."
        raise refused(nodes.get(output), f"'{target}' is changed by forward", advice)
    for node in program.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(value, torch.Tensor) and any(not isinstance(n, int) for n in value.shape):
                raise refused(node, "a size that depends on data", "Compute all entries and multiply with a mask.")
    invert_triangles(program.graph)
    roll_loops(program.graph)
    return program


def user_frame(error: BaseException) -> str:
    """Returns the innermost line of an error's traceback that is outside of PyTorch and of this package."""
    import traceback

    own = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    return f'File "{frames[-1].filename}", line {frames[-1].lineno}, in {frames[-1].name}: {frames[-1].line}' if frames else ""


def save(tensors: Inputs, path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: t.detach().contiguous().clone() for name, t in tensors.items()}, path)


def export(module: torch.nn.Module, inputs: Inputs, name: str = "model", dropout: float | None = None) -> Exported:
    check_inputs(inputs)
    program, modules = trace(module, inputs), Modules(module)
    walk, loss = walked(lambda reshapes, whole: Walk(program, inputs, modules, reshapes, whole, dropout), Walk.loss)
    fold_transposes(loss.value)
    find_norms(loss.value)
    UnitDims(loss.value).run()
    put_matrices_last(loss.value)
    printer = Printer(loss.value, walk.logits)
    for alias, own in walk.tied.items():
        walk.note(f"'{alias}' is tied to '{own}'")
    vocabulary = walk.logits.axes[-1].size if walk.logits else 1
    shapes = {key: value.shape for key, value in inputs.items()}
    layers = "a list of blocks, or siblings of one class"
    return exported("pc_torch", name, printer, walk, shapes, save, vocabulary, layers, walk.dropped, tied=walk.tied)
