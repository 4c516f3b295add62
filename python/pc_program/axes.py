"""Dims without reshapes: a view divides and groups axes, and does not change values. A `DimClass` is one iteration dim
of the whole program (a union-find set). If a view cuts a dim of the class, the class has two parts, and so does each
of its dims, in all values. An `Axis` is a dim of one value. A dim of a torch tensor is a list of axes, row major."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from .errors import Refused

ADVICE = "Choose sizes that divide each other, or write this view as a slice or an einsum."


class DimClass:
    reading: ClassVar[Any] = None  # the node that is being read: it causes the cuts of now

    def __init__(self, size: int, *roles: str):
        self.size, self.roles = size, set(roles)
        self.parts: list[DimClass] = []
        self.cause: Any = None
        self.wholes: list[DimClass] = []  # what it is a part of
        self._same: DimClass | None = None

    def find(self) -> DimClass:
        found = self
        while found._same:
            found = found._same
        return found

    def split(self, major: int) -> None:
        assert not self.parts and self.size % major == 0
        self.cause = DimClass.reading
        self.parts = [DimClass(major), DimClass(self.size // major)]
        for part in self.parts:
            part.wholes = [self]

    def join(self, other: DimClass) -> None:
        if self is not other:
            self._same = other
            other.roles |= self.roles
            other.wholes += self.wholes


class Axis:
    def __init__(self, dim: DimClass, parent: Axis | None = None, index: int = 0):
        self._dim, self.parent, self.index = dim, parent, index
        self._parts: list[Axis] = []

    @property
    def dim(self) -> DimClass:
        return self._dim.find()

    @property
    def size(self) -> int:
        return self.dim.size

    def leaves(self) -> list[Axis]:
        """Returns the axis, or the axes into which views have cut it."""
        parts = self.dim.parts
        if not parts:
            return [self]
        if not self._parts:
            self._parts = [Axis(part, self, i) for i, part in enumerate(parts)]
        return [leaf for part in self._parts for leaf in part.leaves()]

    def like(self) -> Axis:
        """Returns an axis of the same class, for another value."""
        return Axis(self.dim)

    def causes(self) -> Iterator[Any]:
        """Returns the nodes that cut the classes of which this axis is a part, the innermost first."""
        waiting, seen = [self.dim], set[DimClass]()
        for dim in waiting:
            if dim not in seen:
                seen.add(dim)
                if dim.cause is not None:
                    yield dim.cause
                waiting += dim.find().wholes


def new_axis(size: int, *roles: str) -> Axis:
    return Axis(DimClass(size, *roles))


def leaves(axes: Iterable[Axis]) -> list[Axis]:
    return [leaf for axis in axes for leaf in axis.leaves()]


def flat(dims: Iterable[Iterable[Axis]]) -> list[Axis]:
    return [leaf for dim in dims for leaf in leaves(dim)]


def product(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def sizes(axes: Iterable[Axis]) -> list[int]:
    return [axis.size for axis in axes]


def unify(one: Sequence[Axis], other: Sequence[Axis]) -> None:
    """Makes two lists of axes the same dims: cuts classes if their sizes differ, and joins them."""
    while True:
        a, b = leaves(one), leaves(other)
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x.dim is not y.dim), min(len(a), len(b)))
        a, b = a[at:], b[at:]
        if not a and not b:
            return
        if not a or not b:
            raise Refused(f"dims of sizes {sizes(leaves(one))} and {sizes(leaves(other))} differ")
        x, y = a[0].dim, b[0].dim
        if x.size == y.size:
            x.join(y)
            continue
        big, small = (x, y) if x.size > y.size else (y, x)
        if small.size == 1:  # it would be cut forever
            raise Refused(f"dims of sizes {sizes(leaves(one))} and {sizes(leaves(other))} differ in a dim of size 1")
        if big.size % small.size:
            raise Refused(f"a dim of {big.size} cannot be cut into pieces of {small.size}", ADVICE)
        big.split(small.size)


def regroup(axes: Iterable[Axis], shape: Sequence[int]) -> list[list[Axis]]:
    """Regroups the axes to dims of these sizes, row major. Cuts a class if a dim ends within an axis."""
    rest = leaves(axes)
    whole, groups = sizes(rest), []
    for size in shape:
        group = [rest.pop(0)] if size == 1 and rest and rest[0].size == 1 else []
        while (have := product(group)) < size:
            axis = rest.pop(0)
            need = size // have
            if axis.size <= need and size % (have * axis.size) == 0:
                group.append(axis)
            elif axis.size > need and size % have == 0 and axis.size % need == 0:
                axis.dim.split(need)
                rest = leaves([axis, *rest])
            else:
                raise Refused(f"dims of sizes {whole} do not regroup into {list(shape)}", ADVICE)
        groups.append(group)
    assert product(rest) == 1
    return groups
