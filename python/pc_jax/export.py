"""Exports a loss as a program: traces the jaxpr, walks it, rewrites the program, writes its text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pc_program.program import Exported, batch_of, called, exported, untraced, walked
from pc_program.text import Printer
from pc_program.tidy import fold_transposes
from pc_program.values import Value, letter_of, users_of

from . import ops  # noqa: F401 - it fills the table
from .checkpoint import is_trained, named_leaves
from .walk import Walk


@dataclass
class Built:
    """The result of the user's function: loss(params, **inputs) is a scalar, or a tuple that begins with the scalar."""

    name: str
    loss: Any
    params: Any
    inputs: dict[str, Any]

    def trained(self) -> tuple[list[str], list[Any]]:
        rows = [(name, leaf) for name, leaf in named_leaves(self.params)[0] if is_trained(leaf)]
        return [name for name, _ in rows], [leaf for _, leaf in rows]

    def of_leaves(self, given: list[Any], inputs: dict[str, Any]) -> Any:
        """Computes the loss for these values of the trained leaves."""
        rows, tree = named_leaves(self.params)
        values = iter(given)
        params = jax.tree_util.tree_unflatten(tree, [next(values) if is_trained(leaf) else leaf for _, leaf in rows])
        result = self.loss(params, **inputs)
        return result[0] if isinstance(result, tuple) else result


def build(what: str) -> Built:
    """Returns the name of the user's function, and its result."""
    advice = "Return a function, a pytree, and a dict of example arrays."
    name, made = called(what, returns_loss, "(loss, params, inputs)", advice)
    inputs = {key: np.asarray(value) for key, value in made[2].items()}
    batch_of({key: value.shape for key, value in inputs.items()})
    return Built(name, made[0], made[1], inputs)


def returns_loss(made: object) -> bool:
    return isinstance(made, tuple) and len(made) == 3 and callable(made[0]) and isinstance(made[2], dict)


def trace(built: Built) -> Any:
    try:
        return jax.make_jaxpr(lambda given, inputs: built.of_leaves(given, dict(zip(built.inputs, inputs))))(
            built.trained()[1], list(built.inputs.values())
        )
    except Exception as error:  # noqa: BLE001 - JAX raises whatever the user's code and its own tracing raise
        raise untraced("JAX", "the loss", error) from error


def find_kinds(users: dict[Value, list[Value]]) -> dict[str, str]:
    """Tells tokens and targets from other inputs by the ops that read them. If there are other inputs, all are data,
    read by name."""
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
    """Gives dims their roles: if a product of two values keeps the sequence of both, it is a product of queries and
    keys."""
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


def save(tensors: dict[str, np.ndarray], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(tensors, path)


def export(built: Built) -> Exported:
    closed = trace(built)
    walk, loss = walked(lambda reshapes, whole: Walk(*built.trained(), built.inputs, reshapes, whole), lambda walk: walk.run(closed))
    fold_transposes(loss.value)
    users = users_of(loss.value)
    name_heads(users)
    walk.kinds = find_kinds(users)
    printer = Printer(loss.value, walk.logits)
    vocabulary = next((user.operands[0].axes[-1].size for user in printer.order if user.op == "pick"), 1)
    shapes = {key: value.shape for key, value in built.inputs.items()}
    layers = "parameters of layers by number, as in h.0.attn, or named scopes h.0, h.1"
    return exported("pc_jax", built.name, printer, walk, shapes, save, vocabulary, layers)
