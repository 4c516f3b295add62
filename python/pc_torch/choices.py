"""topk, and the ops that read its choices: experts that are chosen by index. The dim of k choices becomes a dim of all
n entries, with a mask of the chosen ones. A mask has no order, so a program may not depend on the order of the
choices: values must be computed for each choice separately, and then summed. Experts that sort the pairs of a row
and a choice (as transformers does, for a grouped product) compute on pairs in another order, which is recorded until
the pairs are restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from pc_program.axes import Axis, DimClass, leaves, unify
from pc_program.builder import letters_for
from pc_program.errors import Refused
from pc_program.values import Letters, Special, Tensor

from .ops_math import dims_of, one_hot
from .recognise import name_of, shape_of
from .table import RULES, op, row
from .walk import Walk

ADVICE = "Compare the indices, multiply or divide the values, take their softmax or sum, or use gather and scatter."


@dataclass
class Choices(Special):
    """A tensor with a dim of all n entries instead of a dim of k choices. Entries that are not chosen are undefined, or 0."""

    tensor: Tensor
    mask: Tensor
    chosen: Axis  # of the mask
    k: int
    index: bool = False  # whether it is the numbers of what is chosen
    zero: bool = False
    order: object = None  # the sort that gave the pairs another order

    def read(self, m: Walk, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return read(m, node, args, kwargs)

    @property
    def kind(self) -> DimClass:
        return self.chosen.dim

    def place(self) -> int:
        """The dim of the choices."""
        found = [i for i, dim in enumerate(self.tensor.dims) for axis in leaves(dim) if axis.dim is self.kind]
        if len(found) != 1:
            raise Refused("choices of topk along a dim that a view cuts or joins", ADVICE)
        return found[0]

    def size(self, axes: Sequence[Axis]) -> int:
        result = 1
        for axis in leaves(axes):
            result *= self.k if axis.dim is self.kind else axis.size
        return result

    def masked(self, m: Walk) -> Tensor:
        """Returns the tensor, with 0 for entries that are not chosen."""
        return self.tensor if self.zero else m.multiply(self.tensor, self.beside(self.mask))

    def is_of_rows(self, dim: int) -> bool:
        """Returns True if the choices differ along a dim."""
        return any(axis.dim in {own.dim for own in self.mask.axes} for axis in self.tensor.dim(dim))

    def beside(self, x: Tensor) -> Tensor:
        """Returns x as PyTorch would broadcast it, with the dims up to that of the choices."""
        place, at = self.place(), next(i for i, dim in enumerate(x.dims) for axis in leaves(dim) if axis.dim is self.kind)
        dims = x.dims if len(self.tensor.dim(place)) == 1 else [[axis for dim in x.dims[: at + 1] for axis in leaves(dim)]]
        return Tensor(x.value, [*dims, *([[]] * (len(self.tensor.dims) - place - 1))])


@dataclass
class Pairs(Special):
    """A fact about the pairs of a row and a choice that a sort by choices has ordered. `what` is their order, its
    inverse, their rows, or the number of pairs with each choice."""

    of: Choices
    what: str

    def read(self, m: Walk, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return read(m, node, args, kwargs)


def best(m: Walk, x: Tensor, k: int, dim: int, largest: bool = True) -> list[Choices]:
    ranked = x if largest else m.scale(x, -1)
    order, value = m.ends_with(ranked, dim % len(x.dims), "topk along")
    mask = m.renamed(ranked, order, m.make("top_k", [value], [axis.like() for axis in order], k=k))
    chosen = mask.dim(dim)[0]
    count = m.count(chosen.size)
    numbers = Tensor(count.value, [count.dims[0] if i == dim % len(x.dims) else d for i, d in enumerate(mask.dims)])
    unify(count.dims[0], [chosen])
    return [Choices(m.multiply(x, mask), mask, chosen, k, zero=True), Choices(numbers, mask, chosen, k, index=True)]


@op("topk.default", "pc.top_k, a mask. Choices may be compared, computed one by one and summed, and may sort the rows of experts")
def topk(m: Walk, n: Node, x: Tensor, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> list[Choices]:
    return best(m, x, k, dim, largest)


@op("max.dim", "topk with k = 1")
def maximum(m: Walk, n: Node, x: Tensor, dim: int, keep: bool = False) -> list[Any]:
    values, numbers = best(m, x, 1, dim)
    return [m.sum(values.tensor, [dim], keep), numbers if keep else None]


# --- ops on choices ---

ONE_BY_ONE = set(
    "add sub mul div neg exp log sqrt rsqrt reciprocal pow square silu gelu relu tanh sigmoid eq ne lt le gt ge to _to_copy type_as clone "
    "contiguous unsqueeze linear split chunk slice glu".split()
)
KEEP_ZERO = set("mul neg to _to_copy type_as clone contiguous unsqueeze split chunk slice".split())
VIEWS = set("view reshape _unsafe_view flatten unflatten".split())


def read(m: Walk, node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Reads an op with an operand that is chosen."""
    name = name_of(node).split(".")[1] if "." in name_of(node) else ""
    if name in SPECIAL:
        found = SPECIAL[name](m, node, *args, **kwargs)
        if found is not None:
            return found
    given = [x for x in args if isinstance(x, Choices)]
    if name not in ONE_BY_ONE or not given or any(isinstance(x, Pairs) for x in args):
        raise Refused("this op has no rule for choices of topk", ADVICE)
    first = max(given, key=lambda x: len(x.tensor.dims))
    if any(x.mask.value is not first.mask.value or x.order is not first.order for x in given):
        raise Refused("one op with choices of two topk, or with two orders", "Bring them into the same order first.")
    place, rank = first.place(), len(first.tensor.dims)
    if name == "linear" and first.is_of_rows(rank - 1) or name in ("split", "chunk", "slice", "glu") and (args[2:] or [0])[0] % rank == place:
        raise Refused("a part, or a product, along the choices of topk", ADVICE)
    others = [x if name == "linear" and i else alone(first, x, rank - place) for i, x in enumerate(args)]
    result = RULES[name_of(node)](m, node, *others, **kwargs)
    zero = name in KEEP_ZERO and any(x.zero for x in given) or name == "div" and args[0] in given and args[0].zero
    wrapped = [replace(first, tensor=x, index=False, zero=zero) for x in (result if isinstance(result, list) else [result])]
    if name in ("unsqueeze", "to", "_to_copy", "clone", "contiguous"):
        wrapped[0].index = first.index and node.meta["val"].dtype != torch.bool
    return wrapped if isinstance(result, list) else wrapped[0]


def alone(first: Choices, x: Any, from_right: int) -> Any:
    """Returns an operand that is used together with choices. It must be equal for all of them."""
    if isinstance(x, Choices):
        if len(x.tensor.dims) - x.place() != from_right:
            raise Refused("choices of topk along two dims", ADVICE)
        return x.tensor
    shape = x.shape if isinstance(x, (Tensor, torch.Tensor)) else []
    if len(shape) >= from_right and shape[-from_right] != 1:
        raise Refused("an operand that differs for each choice of topk", ADVICE)
    return x


def softmax(m: Walk, n: Node, x: Choices, dim: int, *_: Any, **__: Any) -> Choices:
    if dim % len(x.tensor.dims) != x.place() or len(x.tensor.dim(dim)) != 1:
        raise Refused("a softmax of choices along a dim that is not that of the choices", ADVICE)
    seen = m.choose("equal", x.beside(x.mask), m.constant(1), x.tensor, m.constant(-1e30))
    return replace(x, tensor=RULES["aten.softmax.int"](m, n, seen, dim), index=False, zero=True)


def summed(m: Walk, n: Node, x: Choices, dims: Any = None, keep: bool = False, **_: Any) -> Any:
    dims = dims_of(x.tensor, dims)
    if x.place() not in dims:
        if any(x.is_of_rows(dim) for dim in dims):
            raise Refused("a sum over rows of values that differ for each choice", ADVICE)
        return replace(x, tensor=m.sum(x.tensor, dims, keep), index=False)
    if len(x.tensor.dim(x.place())) != 1:
        raise Refused("a sum over pairs of rows and choices", "View them as rows and choices first.")
    return m.sum(x.masked(m), dims, keep)


def view(m: Walk, n: Node, x: Choices, *_: Any) -> Choices:
    """Turns rows and choices into pairs, or back."""
    axes, dims = [axis for dim in x.tensor.dims for axis in leaves(dim)], []
    for size in shape_of(n):
        group: list[Axis] = []
        while x.size(group) < size and axes:
            group.append(axes.pop(0))
        if x.size(group) != size:
            raise Refused("a view that cuts choices of topk", ADVICE)
        dims.append(group)
    if x.size(axes) == 1 and dims:  # one choice
        dims[-1] += axes
    elif axes:
        raise Refused("a view that cuts choices of topk", ADVICE)
    return replace(x, tensor=Tensor(x.tensor.value, dims))


def sort(m: Walk, n: Node, x: Any, *_: Any, **__: Any) -> list[Any] | None:
    if isinstance(x, Pairs) and x.what == "order":
        return [None, replace(x, what="inverse")]
    if not isinstance(x, Choices) or not x.index or x.order or len(x.tensor.dims) != 1:
        return None
    pairs = replace(x, order=object())
    return [pairs, Pairs(pairs, "order")]


def index(m: Walk, n: Node, x: Any, places: Sequence[Any], *_: Any) -> Any:
    at = places[0]
    if len(places) != 1:
        return None
    if isinstance(at, Choices) and at.index and isinstance(x, Tensor) and x.shape[0] == at.kind.size:  # rows of a table, as of an expert's weights
        unify(x.dims[0], [at.chosen])
        rows = [x.dim(0)[0] if axis.dim is at.kind else axis for axis in at.tensor.axes]
        return replace(at, tensor=Tensor(x.value, [rows, *x.dims[1:]]), index=False) if len(at.tensor.dims) == 1 else None
    if not isinstance(at, Pairs):
        return None
    pairs = at.of
    if isinstance(x, Choices) and x.mask.value is pairs.mask.value and at.what != "rows":
        before, after = (None, pairs.order) if at.what == "order" else (pairs.order, None)
        return replace(x, order=after) if x.order is before and x.place() == 0 else None
    if isinstance(x, Tensor) and at.what == "rows" and [a.dim for a in x.dim(0)] == [a.dim for a in pairs.mask.axes if a.dim is not pairs.kind]:
        return replace(pairs, tensor=Tensor(x.value, [[*x.dim(0), pairs.chosen.like()], *x.dims[1:]]), index=False)
    return None


def grouped(m: Walk, n: Node, x: Any, weights: Any, ends: Any, *_: Any, **__: Any) -> Choices | None:
    """Multiplies each pair, sorted by choice, by the matrix of its choice."""
    if not isinstance(x, Choices) or not isinstance(ends, Pairs) or ends.what != "ends" or x.order is None or x.mask.value is not ends.of.mask.value:
        return None
    unify(weights.dims[0], [x.chosen])
    unify(weights.dims[1], x.tensor.dims[1])
    of_x: Letters = dict(zip(x.tensor.axes, letters_for(x.tensor.axes)))
    features = letters_for(weights.dim(2))
    of_weights: Letters = dict(zip(weights.dim(1), [of_x[axis] for axis in x.tensor.dim(1)])) | dict(zip(weights.dim(2), features))
    of_weights[m.single(weights.dim(0), "a grouped product along")] = next(of_x[axis] for axis in x.tensor.dim(0) if axis.dim is x.kind)
    m.check_summed(x.tensor.dim(1), x.tensor, weights.dim(1), weights)
    y = m.einsum([(x.tensor, of_x), (weights, of_weights)], [[of_x[axis] for axis in x.tensor.dim(0)], features])
    return replace(x, tensor=y, index=False, zero=False)


def scatter(m: Walk, n: Node, x: Any, dim: int, at: Any, value: Any) -> Tensor | None:
    """Writes values to their positions among zeros."""
    if not isinstance(at, Choices) or not at.index or at.order or dim % len(at.tensor.dims) != at.place() or at.tensor.shape != list(shape_of(n)):
        return None
    inside = at.mask if not isinstance(value, Choices) else value.masked(m) if value.mask.value is at.mask.value and not value.order else None
    if inside is None or isinstance(value, (Tensor, torch.Tensor)):
        return None
    inside = inside if isinstance(value, Choices) else m.scale(inside, float(value))
    return inside if is_zero(x) else m.pointwise("add", inside, m.multiply(m.opposite(at.mask), m.lift(x)))


def is_zero(x: Any) -> bool:
    return not x.any() if isinstance(x, torch.Tensor) else x.value.op == "constant" and not x.value.attrs["number"]


def gather(m: Walk, n: Node, x: Any, dim: int, at: Any) -> Choices | None:
    if not isinstance(x, Tensor) or not isinstance(at, Choices) or not at.index or at.order or dim % len(x.dims) != at.place():
        return None
    return replace(at, tensor=x, index=False) if x.shape == at.tensor.shape else None


def count(m: Walk, n: Node, x: Any, *_: Any, **__: Any) -> Pairs | None:
    return Pairs(x, "counts") if isinstance(x, Choices) and x.index else None


def cumsum(m: Walk, n: Node, x: Any, *_: Any, **__: Any) -> Pairs | None:
    return replace(x, what="ends") if isinstance(x, Pairs) and x.what == "counts" else None


def divided(m: Walk, n: Node, x: Any, by: Any, **_: Any) -> Pairs | None:
    return replace(x, what="rows") if isinstance(x, Pairs) and x.what == "order" and by == x.of.k and m_last(x.of) else None


def m_last(x: Choices) -> bool:
    """Returns True if choices are the inner dim of the pairs."""
    return x.tensor.axes[-1].dim is x.kind


def put(m: Walk, n: Node, x: Any, places: Sequence[Any], value: Any, *_: Any) -> Pairs | None:
    """Reads x[order] = 0, 1, 2, ...: the inverse of an order."""
    counts = isinstance(value, torch.Tensor) and torch.equal(value, torch.arange(len(value)))
    return replace(places[0], what="inverse") if counts and isinstance(places[0], Pairs) and places[0].what == "order" else None


def scattered(m: Walk, n: Node, x: Any, dim: int, at: Any, value: Any, **_: Any) -> Tensor | None:
    """Sums the results for the choices of each row."""
    if not isinstance(at, Pairs) or at.what != "rows" or dim or not isinstance(value, Choices) or value.order is not at.of.order:
        return None
    rows = value.tensor.dim(0)
    parts = Tensor(value.tensor.value, [rows[:-1], rows[-1:], *value.tensor.dims[1:]])
    sums = m.sum(replace(value, tensor=parts).masked(m), [1])
    return sums if is_zero(x) else m.pointwise("add", m.lift(x), sums)


SPECIAL: dict[str, Any] = {
    "softmax": softmax,
    "sum": summed,
    **dict.fromkeys(VIEWS, view),
    "one_hot": lambda m, n, x, *_: replace(x, tensor=one_hot(m, n, x.tensor), index=False),
    "sort": sort,
    "argsort": lambda m, n, x, *_, **__: (sort(m, n, x) or [None, None])[1],
    "index": index,
    "grouped_mm_fallback": grouped,
    "_grouped_mm": grouped,
    "scatter": scatter,
    "gather": gather,
    "histc": count,
    "cumsum": cumsum,
    "floor_divide": divided,
    "empty_like": lambda m, n, x, **_: x,
    "index_put": put,
    "index_add": scattered,
}
PLACES = "only for indices of topk: the pairs in the order of their choices"
row("sort.default argsort.default histc.default floor_divide.default index_put.default index_add.default", PLACES, lambda m, n, *_, **__: refuse())
row(
    "_grouped_mm.default transformers.grouped_mm_fallback.default",
    "pc.einsum of all rows with each matrix, and a mask",
    lambda m, n, *_, **__: refuse(),
)
row("scatter.value scatter.src", "at indices of topk: the mask, or a product with the mask", lambda m, n, *_, **__: refuse())


def refuse() -> None:
    raise Refused("computed positions", ADVICE)
