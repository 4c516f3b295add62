"""The table of primitives, by name: what is not in it is refused. Rows are in ops.py.

A rule gets the walk, the equation and its operands: tensors, conditions, or arrays of constants. Not all operands are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
ROWS: list[tuple[str, str]] = []  # names and how, for the page
POINTWISE: set[str] = set()  # primitives that constants can go through before they are broadcast


def op(names: str, how: str, pointwise: bool = False) -> Callable[[Rule], Rule]:
    """A row for the function below it: primitives separated by blanks, how they are computed, as docs/own-models.md says it."""

    def add(rule: Rule) -> Rule:
        ROWS.append((names, how))
        RULES.update(dict.fromkeys(names.split(), rule))
        POINTWISE.update(names.split() if pointwise else [])
        return rule

    return add


def row(names: str, how: str, rule: Rule, pointwise: bool = False) -> None:
    op(names, how, pointwise)(rule)
