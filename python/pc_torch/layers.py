"""Which layer a node belongs to: the path of its module, up to its first number. Pipelines cut between layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .values import Value

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

LEAVES = ("parameter", "input", "rope_table", "constant", "iota")


class Modules:
    """Paths of modules. Siblings of one class with equal parameters are layers: those that have no numbers get some."""

    def __init__(self, module: torch.nn.Module):
        self._numbered: dict[str, str] = {}
        for path, parent in module.named_modules():
            alike: dict[tuple, list[str]] = {}
            for name, child in parent.named_children():
                shapes = tuple((n, tuple(p.shape)) for n, p in child.named_parameters())
                if shapes and next(child.children(), None) is not None and not name.isdigit():
                    alike.setdefault((type(child).__name__.lower(), shapes), []).append(name)
            for (kind, _), names in alike.items():
                if len(names) > 1:
                    self._numbered |= {join(path, name): join(path, f"{kind}.{i}") for i, name in enumerate(names)}

    def layer(self, node: Node) -> str:
        stack = node.meta.get("nn_module_stack")
        path = list(stack.values())[-1][0] if stack else ""
        path = path.replace("L['self'].", "").replace("L['self']", "")
        for own, numbered in self._numbered.items():
            if path == own or path.startswith(own + "."):
                path = numbered + path[len(own) :]
        return path or "model"


def join(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")


def layer_of(path: str) -> str | None:
    found = re.match(r"(.*?\.)?\d+(?=\.|$)", path)
    return found[0] if found else None


def assign_layers(order: Sequence[Value], users: dict[Value, list[Value]]) -> int:
    """What the model's own forward computes between layers belongs to the layer before it. Returns the number of layers."""
    layers = {value: layer_of(value.layer) for value in order if value.op not in LEAVES}
    leads: dict[Value, bool] = {}  # to a layer
    for value in reversed(order):
        leads[value] = bool(layers.get(value)) or any(leads[user] for user in users[value])
    current = None
    for value in order:
        if value not in layers:
            continue
        if layers[value]:
            current = layers[value]
        elif current and leads[value]:
            value.layer = f"{current}.{value.layer if value.layer != 'model' else 'rest'}"
    return len({layer for layer in layers.values() if layer})
