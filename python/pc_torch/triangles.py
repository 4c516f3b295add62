"""torch.export unrolls forward substitution row by row. This module replaces it by products of blocks.

    for i in range(1, n):                                             x = eye + l * blocks(1)
        x[i, :i] = x[i, :i] + (x[i, :i, None] * x[:i, :i]).sum(0)  ->  x = x + x @ (l * blocks(b)) @ x for b = 2, 4, 8, ..

x begins as the strict lower triangle l, and the loop makes it (1 - l)^-1 - 1. `blocks(b)` selects the lower left quarter of each block of 2 b rows
on the diagonal, so each product inverts blocks that are twice as large. The result is exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from .recognise import call, shape_of

aten = torch.ops.aten


def blocks(n: int, size: int) -> torch.Tensor:
    row, column = torch.arange(n)[:, None] // size, torch.arange(n) // size
    return ((row == column + 1) & (column % 2 == 0)).float()


def invert_triangles(graph: Graph) -> None:
    for last in graph.find_nodes(op="call_function", target=aten.select_scatter.default):
        lower: Any = last
        while lower.target == last.target:
            lower = lower.args[0]
        strict = lower
        while strict.target in (aten.neg.default, aten.clone.default):
            strict = strict.args[0]
        is_square = shape_of(last)[-2:] == (last.args[3] + 1,) * 2  # and this is its last row
        if is_square and strict.target == aten.tril.default and strict.args[1:] == (-1,) and inverts(graph, lower, last):
            replace(graph, lower, last)


def inverts(graph: Graph, lower: Any, last: Node) -> bool:
    """Tries on random numbers whether `last` is (1 - lower)^-1 - 1."""
    needed = {last}
    for node in reversed(graph.nodes):
        needed |= set(node.all_input_nodes) if node in needed and node is not lower else set()
    if any(node.op != "call_function" for node in needed):
        return False
    rows: Any = last.args[3]
    values = {lower: torch.rand(shape_of(lower), dtype=torch.float64).tril(-1) / rows}
    for node in graph.nodes:
        if node in needed and node not in values:
            values[node] = call(node, values.__getitem__)
    one = torch.eye(rows + 1, dtype=torch.float64)
    return torch.allclose(values[last], torch.linalg.inv(one - values[lower]) - one)


def replace(graph: Graph, lower: Any, last: Node) -> None:
    def add(op: Any, *args: Any) -> Node:
        node = graph.call_function(op, args)
        with detect_fake_mode(lower.meta["val"]):  # type: ignore[union-attr]
            node.meta = last.meta | {"val": op(*map_arg(args, lambda x: x.meta["val"]))}
        return node

    with graph.inserting_before(last):
        n = shape_of(lower)[-1]
        one = add(aten.eye.default, n)
        x = add(aten.add.Tensor, one, add(aten.mul.Tensor, lower, add(blocks, n, 1)))
        for size in (2**i for i in range(1, (n - 1).bit_length())):
            part = add(aten.mul.Tensor, lower, add(blocks, n, size))
            x = add(aten.add.Tensor, x, add(aten.matmul.default, x, add(aten.matmul.default, part, x)))
        last.replace_all_uses_with(add(aten.sub.Tensor, x, one))
