"""A module as a program: torch.export, the walk, rewrites, text; and the files that pc-compile and pc-run start from."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from . import choices, ops_layers, ops_math, ops_views  # noqa: F401 - they fill the op table
from .axes import DimClass
from .errors import NeedsReshape, Refused
from .layers import Modules
from .text import Printer, quoted
from .tidy import UnitDims, check_whole, find_norms, fold_transposes, partly_used
from .values import Tensor
from .walk import Walk

Inputs = dict[str, torch.Tensor]


@dataclass
class Exported:
    """A module's program. `text` is model.mlir, `config` config.json, `tensors` the parameters by name."""

    name: str
    text: str
    config: dict[str, Any]
    tensors: Inputs
    kinds: dict[str, str]
    rows: dict[str, list[int]]  # data: the shape in which a run reads a sample
    notes: list[str]
    dropout: bool

    def write(self, directory: Path) -> None:
        from safetensors.torch import save_file

        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.mlir").write_text(self.text.replace(DIRECTORY, quoted(str(directory.resolve()))))
        (directory / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        save_file({name: t.detach().contiguous().clone() for name, t in self.tensors.items()}, directory / "model.safetensors")


DIRECTORY = '"@directory@"'  # in the text, until it is known


def build(what: str) -> tuple[str, torch.nn.Module, Inputs]:
    """MODULE:FUNCTION, as in my_model:build, imported from the current directory or the path: its name, and what it returns."""
    file, colon, function = what.partition(":")
    if not colon or not function:
        raise Refused(f"'{what}' names no function", "Write MODULE:FUNCTION, as in my_model:build.")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(file), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise Refused(f"'{what}' is not found: {error}", "The module must be in the current directory or on PYTHONPATH.") from None
    torch.manual_seed(0)
    made = make()
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module) and isinstance(made[1], dict)):
        raise Refused(f"{what}() returns no (module, inputs)", 'Return the module and a dict of example tensors: {"idx": .., "targets": ..}.')
    return function.removeprefix("build_") if function != "build" else file, made[0], made[1]


def check_inputs(inputs: Inputs) -> int:
    """The batch."""
    names: dict[int, str] = {}
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor):
            raise Refused(f"input '{name}' is no tensor", "Make what is no tensor a constant of the module.")
        if (other := names.setdefault(id(value), name)) != name:
            raise Refused(f"inputs '{other}' and '{name}' are one tensor, which torch.export would merge", "Give a clone() of it.")
    batches = {name: value.shape[0] if value.dim() else 0 for name, value in inputs.items()}
    if len(set(batches.values())) != 1:
        raise Refused(f"inputs differ in their first dim, the batch: {batches}", "Each input has one entry a sample.")
    return next(iter(batches.values()))


def trace(module: torch.nn.Module, inputs: Inputs) -> ExportedProgram:
    warnings.filterwarnings("ignore")
    module.train()
    try:
        program = torch.export.export(module, (), dict(inputs), strict=False).run_decompositions({})
    except Exception as error:  # noqa: BLE001 - torch.export raises whatever the user's code and its own tracing raise
        text = next((line for line in str(error).strip().splitlines() if line.strip()), "no message")
        raise Refused(
            f"torch.export cannot trace the module: {type(error).__name__}: {text}\n  {user_frame(error)}",
            "Control flow and sizes must not depend on data; torch.export's documentation says what can be traced.",
        ) from error
    signature, nodes = program.graph_signature, {node.name: node for node in program.graph.nodes}
    for output, target in [*signature.buffers_to_mutate.items(), *signature.user_inputs_to_mutate.items()]:
        raise Refused(
            f"'{target}' is changed by forward",
            "State that a step changes (running means, EMA, caches) does not compile: keep it outside of the module, or use a layer without it.",
            nodes.get(output),
        )
    for node in program.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(value, torch.Tensor) and any(not isinstance(n, int) for n in value.shape):
                raise Refused("a size that depends on data", "Compute all entries and multiply with a mask.", node)
    return program


def user_frame(error: BaseException) -> str:
    """The innermost line of an error's traceback that is not PyTorch's or this package's."""
    import traceback

    own = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
    return f'File "{frames[-1].filename}", line {frames[-1].lineno}, in {frames[-1].name}: {frames[-1].line}' if frames else ""


def read(program: ExportedProgram, inputs: Inputs, modules: Modules, dropout: float | None) -> tuple[Walk, Tensor]:
    """Walks until no view is left that must become an op, and no parameter that is only partly used is taken apart."""
    reshapes: list[str] = []
    whole: set[str] = set()
    while True:
        walk = Walk(program, inputs, modules, reshapes, whole, dropout)
        try:
            loss = walk.loss()
            check_whole(loss.value)
            if partly := partly_used(loss.value) - whole:
                whole |= partly
                continue
            return walk, loss
        except NeedsReshape as error:
            view = walk.view_to_blame(error)
            if view is None:
                raise
            reshapes.append(view)
        finally:
            DimClass.reading = None


def export(module: torch.nn.Module, inputs: Inputs, name: str = "model", dropout: float | None = None) -> Exported:
    batch = check_inputs(inputs)
    program = trace(module, inputs)
    walk, loss = read(program, inputs, Modules(module), dropout)
    if loss.value.axes or loss.dims:
        raise Refused("the loss is no scalar", "Return its mean or sum.")
    fold_transposes(loss.value)
    find_norms(loss.value)
    UnitDims(loss.value).run()
    printer = Printer(loss.value, walk.logits)
    if printer.layers < 2:
        walk.note(f"{printer.layers} layers found: pipelines need a list of blocks, or siblings of one class")
    for alias, own in walk.tied.items():
        walk.note(f"'{alias}' is tied to '{own}'")
    rows = {value.attrs["name"]: printer.sizes(value)[1:] for value in printer.order if value.attrs.get("kind") == "data"}
    for key, row in rows.items():
        if row != list(inputs[key].shape[1:]):
            walk.note(f"files of '{key}' have rows of shape {row}, as views cut it: reshape(-1, {', '.join(map(str, row))}) keeps the order")
    used = set(walk.kinds)
    for unused in [key for key in inputs if key not in used]:
        walk.note(f"input '{unused}' is not used")
    tokens = next((key for key, kind in walk.kinds.items() if kind == "tokens"), None)
    vocabulary = walk.logits.axes[-1].size if walk.logits else 1
    sequence = inputs[tokens].shape[1] if tokens else 1
    config = {"exported_by": "pc_torch", "module": name, "vocab_size": vocabulary, "tied": walk.tied}
    head = (
        f"pc.program {quoted(name)} batch {batch} sequence {sequence} vocabulary {vocabulary} config {quoted(json.dumps(config))} weights {DIRECTORY}"
    )
    used_names = {value.attrs["name"] for value in printer.order if value.op == "parameter"}
    tensors = {key: tensor for key, tensor in walk.tensors.items() if key in used_names}
    return Exported(name, printer.module(head), config, tensors, walk.kinds, rows, walk.notes, walk.dropped)
