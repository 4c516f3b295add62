"""A loss as a program: the jaxpr, the walk, rewrites, text; and the files that pc-compile and pc-run start from."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pc_torch.axes import DimClass
from pc_torch.errors import NeedsReshape, Refused
from pc_torch.text import Printer, quoted
from pc_torch.tidy import check_whole, fold_transposes, partly_used
from pc_torch.values import Tensor, Value, letter_of, users_of

from . import ops  # noqa: F401 - it fills the table
from .checkpoint import is_trained, named_leaves
from .walk import Walk

DIRECTORY = '"@directory@"'  # in the text, until it is known


@dataclass
class Built:
    """What the user's function returns: loss(params, **inputs) is a scalar, or a tuple with the scalar first."""

    name: str
    loss: Any
    params: Any
    inputs: dict[str, Any]

    def trained(self) -> tuple[list[str], list[Any]]:
        rows = [(name, leaf) for name, leaf in named_leaves(self.params)[0] if is_trained(leaf)]
        return [name for name, _ in rows], [leaf for _, leaf in rows]

    def of_leaves(self, given: list[Any], inputs: dict[str, Any]) -> Any:
        """The loss for these values of the leaves that are trained."""
        rows, tree = named_leaves(self.params)
        values = iter(given)
        params = jax.tree_util.tree_unflatten(tree, [next(values) if is_trained(leaf) else leaf for _, leaf in rows])
        result = self.loss(params, **inputs)
        return result[0] if isinstance(result, tuple) else result


@dataclass
class Exported:
    """A program. `text` is model.mlir, `config` config.json, `tensors` the parameters by name."""

    text: str
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    kinds: dict[str, str]
    rows: dict[str, list[int]]  # data: the shape in which a run reads a sample
    notes: list[str]

    def write(self, directory: Path) -> None:
        from safetensors.numpy import save_file

        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.mlir").write_text(self.text.replace(DIRECTORY, quoted(str(directory.resolve()))))
        (directory / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        save_file(self.tensors, directory / "model.safetensors")


def build(what: str) -> Built:
    """MODULE:FUNCTION, as in my_model:build, imported from the current directory or the path."""
    file, colon, function = what.partition(":")
    if not colon or not function:
        raise Refused(f"'{what}' names no function", "Write MODULE:FUNCTION, as in my_model:build.")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(file), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise Refused(f"'{what}' is not found: {error}", "The module must be in the current directory or on PYTHONPATH.") from None
    made = make()
    if not (isinstance(made, tuple) and len(made) == 3 and callable(made[0]) and isinstance(made[2], dict)):
        raise Refused(f"{what}() returns no (loss, params, inputs)", "Return a function, a pytree, and a dict of example arrays.")
    inputs = {name: np.asarray(value) for name, value in made[2].items()}
    batches = {name: value.shape[0] if value.ndim else 0 for name, value in inputs.items()}
    if len(set(batches.values())) != 1 or 0 in batches.values():
        raise Refused(f"inputs differ in their first dim, the batch: {batches}", "Each input has one entry a sample.")
    return Built(function.removeprefix("build_") if function != "build" else file, *made[:2], inputs)


def trace(built: Built) -> Any:
    try:
        return jax.make_jaxpr(lambda given, inputs: built.of_leaves(given, dict(zip(built.inputs, inputs))))(
            built.trained()[1], list(built.inputs.values())
        )
    except Exception as error:  # noqa: BLE001 - JAX raises whatever the user's code and its own tracing raise
        text = next((line for line in str(error).strip().splitlines() if line.strip()), "no message")
        advice = "Control flow and sizes must not depend on data; JAX's documentation says what can be traced."
        raise Refused(f"JAX cannot trace the loss: {type(error).__name__}: {text}", advice) from error


def walk_over(closed: Any, built: Built) -> tuple[Walk, Tensor]:
    """Walks until no reshape is left that must become an op, and no parameter that is only partly used is taken apart."""
    reshapes: set[int] = set()
    whole: set[str] = set()
    while True:
        walk = Walk(*built.trained(), built.inputs, reshapes, whole)
        try:
            loss = walk.run(closed)
            if not isinstance(loss, Tensor) or loss.dims or loss.value.axes:
                raise Refused("the loss is no scalar that depends on the parameters", "Return its mean or sum.")
            check_whole(loss.value)
            if partly := partly_used(loss.value) - whole:
                whole |= partly
                continue
            return walk, loss
        except NeedsReshape as error:
            place = walk.view_to_blame(error)
            if place is None:
                raise
            reshapes.add(place)
        finally:
            DimClass.reading = None


def find_kinds(users: dict[Value, list[Value]]) -> dict[str, str]:
    """Tokens and targets by what reads them; where there is anything else, all inputs are data, read by name."""
    inputs = [value for value in users if value.op == "input"]
    kinds: dict[Value, set[str]] = {}
    for value in inputs:
        reads = {(user.op, user.operands.index(value)) for user in users[value]}
        kinds[value] = {{("embedding", 1): "tokens", ("pick", 1): "targets"}.get(read, "data") for read in reads}
        tables = [user.operands[0].axes for user in users[value] if user.op in ("embedding", "pick")]
        if tables and "data" not in kinds[value]:
            value.attrs["below"] = min(axes[0 if kinds[value] == {"tokens"} else -1].size for axes in tables)
        if value.dtype == "i32" and not value.attrs["below"]:
            value.attrs["below"] = 2**31 - 1  # compared with numbers only
    usual = sorted(map(sorted, kinds.values())) == [["targets"], ["tokens"]] and all(len(value.axes) == 2 for value in inputs)
    for value in inputs if usual else []:
        value.attrs["kind"] = kinds[value].pop()
        value.attrs["below"] = None
    return {value.attrs["name"]: value.attrs["kind"] for value in inputs}


def name_heads(users: dict[Value, list[Value]]) -> None:
    """Roles of dims: a product of two values that keeps the sequence of both is one of queries and keys."""
    for value in users:
        if value.is_("einsum", 2) and value.operands[0] is not value.operands[1]:
            result = {value.letter(axis) for axis in value.axes}
            sides = [{letter_of(letters, axis): axis.dim for axis in operand.axes} for operand, letters in zip(value.operands, value.maps)]
            own = [[dim for letter, dim in a.items() if letter in result and letter not in b] for a, b in (sides, sides[::-1])]
            both = {letter: dim for letter, dim in sides[0].items() if letter in sides[1]}
            queries = [any("sequence" in dim.roles for dim in dims) for dims in own]
            if any(queries) and any("sequence" in dim.roles for letter, dim in both.items() if letter not in result):
                for dim in own[queries.index(False)] if not all(queries) else []:
                    dim.roles |= set() if dim.roles else {"head_dim"}  # weights times values
            if not all(queries):
                continue
            for letter, dim in both.items():
                if not dim.roles & {"batch", "sequence"}:
                    dim.roles.add("kv_heads" if letter in result else "head_dim")
            for dim in [dim for dims in own for dim in dims if not dim.roles]:
                dim.roles.add("group")


def export(built: Built) -> Exported:
    closed = trace(built)
    walk, loss = walk_over(closed, built)
    fold_transposes(loss.value)
    users = users_of(loss.value)
    name_heads(users)
    kinds = find_kinds(users)
    printer = Printer(loss.value, walk.logits)
    if printer.layers < 2:
        walk.note(f"{printer.layers} layers found: pipelines need parameters of layers by number, as in h.0.attn, or named scopes h.0, h.1")
    rows = {value.attrs["name"]: printer.sizes(value)[1:] for value in printer.order if value.attrs.get("kind") == "data"}
    for key, row in rows.items():
        if row != list(built.inputs[key].shape[1:]):
            walk.note(f"files of '{key}' have rows of shape {row}, as views cut it: reshape(-1, {', '.join(map(str, row))}) keeps the order")
    for unused in [key for key in built.inputs if key not in kinds]:
        walk.note(f"input '{unused}' is not used")
    tokens = next((key for key, kind in kinds.items() if kind == "tokens"), None)
    batch = next(iter(built.inputs.values())).shape[0]
    sequence = built.inputs[tokens].shape[1] if tokens else 1
    vocabulary = next((user.operands[0].axes[-1].size for user in printer.order if user.op == "pick"), 1)
    config = {"exported_by": "pc_jax", "module": built.name, "vocab_size": vocabulary}
    sizes = f"batch {batch} sequence {sequence} vocabulary {vocabulary}"
    head = f"pc.program {quoted(built.name)} {sizes} config {quoted(json.dumps(config))} weights {DIRECTORY}"
    used = {value.attrs["name"] for value in printer.order if value.op == "parameter"}
    tensors = {name: array for name, array in walk.tensors.items() if name in used}
    return Exported(printer.module(head), config, tensors, kinds, rows, walk.notes)
