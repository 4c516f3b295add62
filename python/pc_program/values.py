"""Results of ops, and torch tensors as values with grouped axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .axes import Axis, flat, leaves, product

Letter = Any  # what einsums match their axes by: any object, equal where axes are the same factor
Letters = dict[Axis, Letter]


class Value:
    """The result of one op. For an einsum, `maps` has the letter of each axis of each operand, and `letters` those of
    the result."""

    def __init__(self, op: str, operands: Sequence[Value], axes: Sequence[Axis], key: tuple[int, int], layer: str, **attrs: Any):
        self.op, self.operands, self._axes = op, list(operands), list(axes)
        self.key, self.layer = key, layer
        self.dtype: str = attrs.pop("dtype", "f32")
        self.maps: list[Letters] = attrs.pop("maps", [])
        self.letters: Letters = attrs.pop("letters", {})
        self.attrs: dict[str, Any] = attrs

    @property
    def axes(self) -> list[Axis]:
        return leaves(self._axes)

    @axes.setter
    def axes(self, axes: list[Axis]) -> None:
        self._axes = axes

    def uncut(self) -> list[Axis]:
        """The axes as they were when the op was made."""
        return self._axes

    def letter(self, axis: Axis) -> tuple[Letter, ...]:
        return letter_of(self.letters, axis)

    def is_(self, op: str, operands: int | None = None) -> bool:
        return self.op == op and operands in (None, len(self.operands))


def letter_of(letters: Mapping[Axis, Letter], axis: Axis) -> tuple[Letter, ...]:
    """Returns the letter of an axis, which may be a part of the axis that has the letter."""
    path: list[int] = []
    while axis not in letters:
        path.append(axis.index)
        assert axis.parent is not None, "an axis without a letter"
        axis = axis.parent
    letter = letters[axis]
    return (letter if isinstance(letter, tuple) else (letter,)) + tuple(reversed(path))


@dataclass
class Tensor:
    """A torch tensor: a value and, for each torch dim, its axes in row-major order. The value is broadcast along axes
    that it lacks."""

    value: Value
    dims: list[list[Axis]]

    @property
    def shape(self) -> list[int]:
        return [product(leaves(dim)) for dim in self.dims]

    @property
    def axes(self) -> list[Axis]:
        return flat(self.dims)

    def dim(self, i: int) -> list[Axis]:
        return leaves(self.dims[i])

    def with_dim(self, i: int, axes: list[Axis]) -> Tensor:
        return Tensor(self.value, [axes if j == i % len(self.dims) else d for j, d in enumerate(self.dims)])

    def held(self) -> list[Axis]:
        """Returns the axes that the value has, in the tensor's order."""
        own = set(self.value.axes)
        return [axis for axis in self.axes if axis in own]


class Special:
    """An operand that is not a tensor. The node to which it is passed reads it."""

    def read(self, walk: Any, node: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


def users_of(root: Value) -> dict[Value, list[Value]]:
    """Returns each value from which the root is computed, operands first, with its readers."""
    users: dict[Value, list[Value]] = {}
    opened: set[Value] = set()
    waiting = [root]
    while waiting:
        value = waiting[-1]
        if value not in opened:
            opened.add(value)
            waiting += [operand for operand in reversed(value.operands) if operand not in opened]
            continue
        waiting.pop()
        if value not in users:
            users[value] = []
            for operand in value.operands:
                users[operand].append(value)
    return users
