"""A table of ops by name. An op without a row is refused. The arguments of a rule are the walk, the node and the op's
operands."""

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
        """Adds ops with their rule. `names` are separated by blanks, and a full name has two dots. `how` is the text in
        docs/own-models.md."""
        self.rows.append((names, how))
        self.rules.update({name if name.count(".") == 2 else self.prefix + name: rule for name in names.split()})
        return rule

    def op(self, names: str, how: str) -> Callable[[Rule], Rule]:
        """Adds a row for the function below."""
        return lambda rule: self.row(names, how, rule)
