"""A table of ops by name: what is not in it is refused. A rule gets the walk, the node and the op's operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


class Table:
    def __init__(self, prefix: str = ""):
        self.prefix = prefix
        self.rules: dict[str, Rule] = {}
        self.rows: list[tuple[str, str]] = []  # names and how, for the page

    def row(self, names: str, how: str, rule: Rule) -> Rule:
        """Ops, separated by blanks; how they are computed, as docs/own-models.md says it; their rule. A whole name has two dots."""
        self.rows.append((names, how))
        self.rules.update({name if name.count(".") == 2 else self.prefix + name: rule for name in names.split()})
        return rule

    def op(self, names: str, how: str) -> Callable[[Rule], Rule]:
        """A row for the function below it."""
        return lambda rule: self.row(names, how, rule)
