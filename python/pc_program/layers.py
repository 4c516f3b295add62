"""Finds the layer of a value: its path up to the first number. Pipelines cut the program between layers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .values import Value

LEAVES = ("parameter", "input", "rope_table", "constant", "iota")


def layer_of(path: str) -> str | None:
    found = re.match(r"(.*?\.)?\d+(?=\.|$)", path)
    return found[0] if found else None


def assign_layers(order: Sequence[Value], users: dict[Value, list[Value]]) -> int:
    """Assigns values that the model's own forward computes between layers to the layer before them. Returns the number
    of layers."""
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
