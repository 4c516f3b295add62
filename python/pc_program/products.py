"""Gives products of many matrices the form that a library computes: in all three tensors, the dims that number the
matrices come first. Otherwise an einsum such as "b s h d, b t h d -> b h s t" would be a loop over its elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from .values import Letter, Value, letter_of, users_of

Order = Sequence[Letter]


def letters_of(value: Value) -> list[list[Letter]]:
    """The letters of the dims of each operand and of the result."""
    operands = [[letter_of(letters, axis) for axis in operand.axes] for operand, letters in zip(value.operands, value.maps)]
    return [*operands, [value.letter(axis) for axis in value.axes]]


def is_matrix_product(tensors: Sequence[Order], groups: Sequence[Order], size: Mapping[Letter, int]) -> bool:
    """Returns True if in each tensor the dims of each group have a common stride, and the rows or columns of the
    matrices are contiguous."""
    for order in tensors:
        stride = {letter: math.prod(size[inner] for inner in order[i + 1 :]) for i, letter in enumerate(order)}
        held = [[letter for letter in group if letter in stride and size[letter] > 1] for group in groups]
        if any(stride[x] != stride[y] * size[y] for group in held for x, y in zip(group, group[1:])):
            return False
        if min([stride[group[-1]] for group in held[1:] if group], default=1) != 1:
            return False
    return True


def transposed(value: Value, x: Value, letters: Order, order: Order, users: Mapping[Value, Sequence[Value]]) -> Value:
    """Returns x, whose dims have these letters, with its dims in another order. The op that computes x writes it in
    this order if possible; otherwise x is copied."""
    if x.op == "einsum" and len(users[x]) == 1 and not {letter for row in letters_of(x)[:-1] for letter in row} - set(map(x.letter, x.axes)):
        x.axes = [x.axes[letters.index(letter)] for letter in order]
        return x
    axes = {letter: axis.like() for letter, axis in zip(letters, x.axes)}
    maps, named = [dict(zip(x.axes, letters))], {axes[letter]: letter for letter in order}
    return Value("einsum", [x], list(named), value.key, value.layer, maps=maps, letters=named)


def put_matrices_last(root: Value) -> None:
    """Transposes tensors of products that a library could not compute. Chooses the tensors and orders that need the
    fewest copies."""
    users = users_of(root)
    for value in users:
        if not value.is_("einsum", 2):
            continue
        a, b, c = tensors = letters_of(value)
        size = {letter: axis.size for row, x in zip(tensors, (*value.operands, value)) for letter, axis in zip(row, x.axes)}
        shared = [letter for letter in a if letter in b]
        batch, summed = [x for x in shared if x in c], [x for x in shared if x not in c]
        rows, columns = [x for x in a if x not in b], [x for x in b if x not in a]
        plain = all(len(set(row)) == len(row) for row in tensors) and set(rows + columns) <= set(c)
        matrices = summed and math.prod(size[x] for x in rows + columns) > 1
        if not plain or not matrices or is_matrix_product(tensors, (batch, rows, columns, summed), size):
            continue
        candidates = [[sorted(group, key=row.index) for row in tensors if set(group) <= set(row)] for group in (batch, rows, columns, summed)]
        forms = [[[p + m + k, p + k + m], [p + k + n, p + n + k], [p + m + n, p + n + m]] for p, m, n, k in itertools.product(*candidates)]
        copied = [sum(math.prod(size[x] for x in row) for row, good in zip(tensors, form) if row not in good) for form in forms]
        form = forms[copied.index(min(copied))]
        for i, (x, row) in enumerate(zip(list(value.operands), (a, b))):
            if row not in form[i]:
                value.operands[i] = transposed(value, x, row, form[i][0], users)
                value.maps[i] = dict(zip(value.operands[i].axes, form[i][0]))
        if c not in form[2]:
            axes = {letter: axis.like() for letter, axis in zip(c, value.axes)}
            named = {axes[letter]: letter for letter in form[2][0]}
            inner = Value("einsum", value.operands, list(named), value.key, value.layer, maps=value.maps, letters=named)
            value.operands, value.maps = [inner], [named]
