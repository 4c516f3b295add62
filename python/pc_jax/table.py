"""The table of primitives, whose rules are in ops.py. Operands are tensors, conditions, or arrays of constants. At
least one operand is not constant."""

from __future__ import annotations

from collections.abc import Callable

from pc_program.table import Rule, Table

TABLE = Table()
RULES, ROWS = TABLE.rules, TABLE.rows
POINTWISE: set[str] = set()  # primitives that constants can go through before they are broadcast


def row(names: str, how: str, rule: Rule, pointwise: bool = False) -> Rule:
    POINTWISE.update(names.split() if pointwise else [])
    return TABLE.row(names, how, rule)


def op(names: str, how: str, pointwise: bool = False) -> Callable[[Rule], Rule]:
    return lambda rule: row(names, how, rule, pointwise)
