"""Builds ops on tensors: einsums, pointwise ops, contractions, sums. rows.py has the ops that know a dim by its
position, and slices.py those that take parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .axes import Axis, flat, leaves, new_axis, product, unify
from .errors import NeedsReshape, Refused
from .values import Letter, Letters, Tensor, Value

LINEAR_OR_POINTWISE = ("add", "sub", "scale", "activation", "recip", "sqrt", "exp", "log", "sin", "cos", "select")


def letters_for(axes: Sequence[Axis]) -> list[Letter]:
    return [object() for _ in axes]


def unit_axis() -> Axis:
    return new_axis(1)


class Builder:
    """Makes values. `layer` and `place` are those of the node that is being read."""

    def __init__(self) -> None:
        self.layer, self.place, self._made = "model", 0, 0
        self.notes: list[str] = []
        self.whole: set[str] = set()  # parameters that are not taken apart

    def make(self, op: str, operands: Sequence[Value], axes: Sequence[Axis], **attrs: Any) -> Value:
        self._made += 1
        return Value(op, operands, axes, (self.place, self._made), attrs.pop("layer", self.layer), **attrs)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # --- einsums ---

    def einsum(self, terms: Sequence[tuple[Tensor, Letters]], result: Sequence[Sequence[Letter]]) -> Tensor:
        """Adds an einsum. `result` has the letters of each dim of the result. The result is broadcast along letters
        that no operand has."""
        maps: list[Letters] = []
        classes: dict[Letter, Axis] = {}
        held: set[Letter] = set()
        for tensor, letters in terms:
            assert len(tensor.held()) == len(tensor.value.axes), "a value has axes that its tensor lacks"
            maps.append({axis: letters[axis] for axis in tensor.value.axes})
            held.update(maps[-1].values())
            classes.update({letter: axis for axis, letter in letters.items()})
        dims = [[classes[letter].like() for letter in group] for group in result]
        named = {axis: letter for axes, group in zip(dims, result) for axis, letter in zip(axes, group) if letter in held}
        full = next((letters for letters in maps if len(letters) == len(held) == len(named)), None)
        if full:  # an elementwise product: in the order of an operand
            of = {letter: axis for axis, letter in named.items()}
            named = {of[letter]: letter for letter in full.values()}
        return Tensor(self.make("einsum", [t.value for t, _ in terms], list(named), maps=maps, letters=named), dims)

    def in_order(self, value: Value, order: Sequence[Axis]) -> Value:
        """Returns the value with its axes in this order. It is broadcast along axes that it lacks."""
        order = leaves(order)
        if value.axes == order:
            return value
        letters: Letters = dict(zip(order, letters_for(order)))
        axes = [axis.like() for axis in order]
        assert all(axis in letters for axis in value.axes), "an axis would be lost"
        maps = [{axis: letters[axis] for axis in value.axes}]
        return self.make("einsum", [value], axes, maps=maps, letters={new: letters[old] for new, old in zip(axes, order)})

    def renamed(self, tensor: Tensor, order: Sequence[Axis], value: Value) -> Tensor:
        """Returns the tensor of `value`, which was computed with axes in this order."""
        new = dict(zip(order, value.axes))
        return Tensor(value, [[new.get(axis) or axis.like() for axis in leaves(dim)] for dim in tensor.dims])

    # --- pointwise ---

    def constant(self, number: float) -> Tensor:
        return Tensor(self.make("constant", [], [], number=min(max(float(number), -1e30), 1e30)), [])

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x if factor == 1 else self.pointwise("scale", x, factor=float(factor))

    def add_number(self, x: Tensor, number: float) -> Tensor:
        return x if number == 0 else self.pointwise("add", x, self.constant(number))

    def pointwise(self, op: str, *xs: Tensor, **attrs: Any) -> Tensor:
        """Gives all operands the order of the operand with the most axes."""
        rows = self.broadcast(*(x.dims for x in xs))
        dims = [[axis.like() for axis in next(filter(None, row), [])] for row in rows]
        news = [{old: axis for row, new in zip(rows, dims) for old, axis in zip(row[i], new)} for i in range(len(xs))]
        orders = [[new[axis] for axis in x.value.axes] for x, new in zip(xs, news)]
        order, held = max(orders, key=len), {axis for order in orders for axis in order}
        if held != set(order):
            order = [axis for axis in flat(dims) if axis in held]
        operands = []
        for x, new in zip(xs, news):
            old = {axis: own for own, axis in new.items()}
            operands.append(self.in_order(x.value, [old.get(axis) or axis.like() for axis in order]))
        return self.renamed(Tensor(xs[0].value, dims), order, self.make(op, operands, [axis.like() for axis in order], **attrs))

    def floats(self, x: Tensor) -> Tensor:
        return self.pointwise("cast", x) if x.value.dtype == "i32" else x

    def choose(self, kind: str, x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Returns a where x and y compare as `kind` says, and b elsewhere."""
        return self.pointwise("select", *map(self.floats, (x, y, a, b)), kind=kind)

    def compare(self, kind: str, x: Tensor, y: Tensor) -> Tensor:
        return self.choose(kind, x, y, self.constant(1.0), self.constant(0.0))

    def opposite(self, x: Tensor) -> Tensor:
        return self.add_number(self.scale(x, -1), 1.0)

    def activation(self, kind: str, x: Tensor) -> Tensor:
        return self.pointwise("activation", x, kind=kind)

    def clamp(self, x: Tensor, low: float | None, high: float | None) -> Tensor:
        """Clamps x. As in PyTorch, x has no gradient where it equals a bound."""
        if low is not None and not math.isinf(low):
            x = self.choose("less_equal", x, self.constant(low), self.constant(low), x)
        if high is not None and not math.isinf(high):
            x = self.choose("less_equal", self.constant(high), x, self.constant(high), x)
        return x

    def recip(self, x: Tensor) -> Tensor:
        return self.pointwise("recip", x)

    def broadcast(self, *many: list[list[Axis]]) -> list[tuple[list[Axis], ...]]:
        """Joins the classes of the operands' dims, and returns the dims of all operands, aligned from the last one as
        in PyTorch."""
        n, none = max(map(len, many)), list[list[Axis]]([[]])
        rows = list(zip(*(none * (n - len(dims)) + dims for dims in many)))
        for row in rows:
            own = [dim for dim in row if leaves(dim)]
            for dim in own[1:]:
                unify(own[0], dim)
        return [tuple(leaves(dim) for dim in row) for row in rows]

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        of_a: Letters = {}
        of_b: Letters = {}
        result = []
        for x, y in self.broadcast(a.dims, b.dims):
            result.append(letters_for(x or y))
            of_a.update(zip(x, result[-1]))
            of_b.update(zip(y, result[-1]))
        return self.einsum([(a, of_a), (b, of_b)], result)

    def count(self, size: int, first: int = 0) -> Tensor:
        """Returns the numbers first, first + 1, ... as floats."""
        ids = self.make("iota", [], [new_axis(size)], dtype="i32", first=first)
        return self.floats(Tensor(ids, [ids.axes]))

    # --- contractions and sums ---

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiplies the last dim of a by the last but one of b. If b is a matrix, a has all other dims."""
        if len(a.dims) < 2 or len(b.dims) < 2:
            raise Refused("a product with a vector has no rule", "Use einsum, or unsqueeze the vector to a matrix.")
        unify(a.dims[-1], b.dims[-2])
        of_a: Letters = {}
        of_b: Letters = {}
        result = []
        for x, y in self.broadcast(a.dims[:-2], b.dims[:-2]):
            result.append(letters_for(x or y))
            of_a.update(zip(x, result[-1]))
            of_b.update(zip(y, result[-1]))
        for letters, dim in ((of_a, a.dim(-2)), (of_b, b.dim(-1))):
            result.append(letters_for(dim))
            letters.update(zip(dim, result[-1]))
        summed = letters_for(a.dim(-1))
        of_a.update(zip(a.dim(-1), summed))
        of_b.update(zip(b.dim(-2), summed))
        self.check_summed(a.dim(-1), a, b.dim(-2), b)
        return self.einsum([(a, of_a), (b, of_b)], result)

    def check_summed(self, x: Sequence[Axis], a: Tensor, y: Sequence[Axis], b: Tensor) -> None:
        held = set(a.value.axes) | set(b.value.axes)
        if any(i not in held and j not in held for i, j in zip(x, y)):
            raise Refused("a product that sums over a dim along which both tensors are broadcast")

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if len(x.dims) == 1:
            raise Refused("a linear layer of a vector has no rule", "Give it a batch dim.")
        y = self.matmul(x, Tensor(weight.value, [weight.dims[1], weight.dims[0]]))
        return y if bias is None else self.pointwise("add", y, bias)

    def sum(self, x: Tensor, dims: Sequence[int], keep: bool = False) -> Tensor:
        dims = [dim % len(x.dims) for dim in dims]
        letters: Letters = dict(zip(x.axes, letters_for(x.axes)))
        kept = [[] if i in dims else [letters[axis] for axis in x.dim(i)] for i in range(len(x.dims)) if keep or i not in dims]
        own = set(x.value.axes)
        times = product(axis for i in dims for axis in x.dim(i) if axis not in own)
        return self.scale(self.einsum([(x, letters)], kept), times)

    def mean(self, x: Tensor, dims: Sequence[int], keep: bool = False) -> Tensor:
        return self.scale(self.sum(x, dims, keep), 1.0 / product(axis for i in dims for axis in x.dim(i)))

    # --- dims that must be whole ---

    def single(self, axes: Sequence[Axis], what: str) -> Axis:
        axes = leaves(axes)
        if len(axes) != 1:
            raise NeedsReshape(f"{what} a dim that views cut into {[axis.size for axis in axes]}", axes)
        return axes[0]

    def ends_with(self, x: Tensor, dim: int, what: str) -> tuple[list[Axis], Value]:
        """Returns the axes and the value of x, with the single axis of `dim` last."""
        last = self.single(x.dim(dim), what)
        order = [axis for axis in x.value.axes if axis is not last] + [last]
        return order, self.in_order(x.value, order)
