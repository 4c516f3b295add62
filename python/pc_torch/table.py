"""The table of ATen ops, by name: what is not in it is refused. Rows are in ops_views.py, ops_math.py and ops_layers.py.

A rule gets the walk, the node and the op's arguments, where tensors are `Tensor`s or constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
ROWS: list[tuple[str, str]] = []  # names and how, for the page


def row(names: str, how: str, rule: Rule) -> Rule:
    """Ops of ATen (or of a library, by whole name), separated by blanks; how they are computed, as docs/own-models.md says it; their rule."""
    ROWS.append((names, how))
    RULES.update({name if name.count(".") == 2 else f"aten.{name}": rule for name in names.split()})
    return rule


def op(names: str, how: str) -> Callable[[Rule], Rule]:
    """A row for the function below it."""
    return lambda rule: row(names, how, rule)
