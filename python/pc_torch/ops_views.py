"""The rules of views, which only relabel dims, and of slices, joins and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from pc_program.axes import Axis, leaves, new_axis, regroup
from pc_program.errors import Refused
from pc_program.rows import constant_rows
from pc_program.slices import concatenate, replace, slice_dim, spread, window
from pc_program.values import Tensor

from .recognise import shape_of
from .table import op, row
from .walk import Walk

NOTHING = "nothing: only the grouping or the order of axes changes"
SLICE = "a part of a parameter, or pc.columns of a computed value"
Dims = list[list[Axis]]


def front(dims: Dims, rank: int) -> Dims:
    """Adds dims of size 1 at the front, as PyTorch broadcasts."""
    none: Dims = [[]]
    return none * (rank - len(dims)) + dims


def broadcast(x: Tensor, shape: Sequence[int]) -> Tensor:
    dims = front(x.dims, len(shape))
    return Tensor(x.value, [[new_axis(n)] if n > 1 and not leaves(dim) else dim for n, dim in zip(shape, dims)])


def filled(m: Walk, n: Node, number: float) -> Tensor:
    return broadcast(m.constant(number), shape_of(n))


def squeeze(m: Walk, n: Node, x: Tensor, which: Any = None) -> Tensor:
    dims = range(len(x.dims)) if which is None else [which] if isinstance(which, int) else which
    gone = {i % len(x.dims) for i in dims}
    return Tensor(x.value, [dim for i, dim in enumerate(x.dims) if i not in gone or x.shape[i] > 1])


def transpose(m: Walk, n: Node, x: Tensor, i: int, j: int) -> Tensor:
    dims = list(x.dims)
    dims[i], dims[j] = dims[j], dims[i]
    return Tensor(x.value, dims)


def unsqueeze(m: Walk, n: Node, x: Tensor, i: int) -> Tensor:
    i %= len(x.dims) + 1
    return Tensor(x.value, [*x.dims[:i], [], *x.dims[i:]])


def repeat(m: Walk, n: Node, x: Tensor, times: Sequence[int]) -> Tensor:
    dims = front(x.dims, len(times))
    counts = [1] * (len(dims) - len(times)) + list(times)
    return Tensor(x.value, [([new_axis(k)] if k > 1 else []) + list(dim) for k, dim in zip(counts, dims)])


def repeat_interleave(m: Walk, n: Node, x: Tensor, times: int, dim: int | None = None, **_: Any) -> Tensor:
    if dim is None:
        raise Refused("repeat_interleave without a dim", "Name the dim.")
    return x.with_dim(dim, [*x.dims[dim], new_axis(times)]) if times > 1 else x


VIEWS = "view.default reshape.default _unsafe_view.default view_as.default flatten.using_ints unflatten.int"
SAME = "contiguous.default clone.default alias.default detach_.default lift_fresh_copy.default"
row(VIEWS, NOTHING, lambda m, n, x, *_: m.view(n, x, shape_of(n)))
row("transpose.int", NOTHING, transpose)
row("t.default numpy_T.default mT.default", NOTHING, lambda m, n, x: Tensor(x.value, x.dims[:-2] + x.dims[-2:][::-1]))
row("permute.default", NOTHING, lambda m, n, x, order: Tensor(x.value, [x.dims[i] for i in order]))
row("unsqueeze.default", NOTHING, unsqueeze)
row("squeeze.dim squeeze.dims squeeze.default", NOTHING, squeeze)
row(SAME, "nothing", lambda m, n, x, *_, **__: x)
row("expand.default expand_as.default", "nothing: the reader broadcasts it", lambda m, n, x, *_, **__: broadcast(x, shape_of(n)))
row("repeat.default tile.default", "nothing: the reader broadcasts it along a new axis", repeat)
row("repeat_interleave.self_int", "nothing: the reader broadcasts it along a new axis", repeat_interleave)
row("broadcast_tensors.default", "nothing", lambda m, n, xs: [m.lift(x, at) for x, at in zip(xs, n.args[0])])
row("zeros_like.default new_zeros.default empty_like.default", "a constant, broadcast", lambda m, n, *_, **__: filled(m, n, 0))
row("ones_like.default new_ones.default", "a constant, broadcast", lambda m, n, *_, **__: filled(m, n, 1))
row("full_like.default", "a constant, broadcast", lambda m, n, x, number, **_: filled(m, n, number))
row("copy.default", "the value that is copied", lambda m, n, x, other, *_: broadcast(m.lift(other), shape_of(n)))


@op("to.dtype to.device to.dtype_layout type_as.default _to_copy.default", "nothing: --precision decides the number format")
def cast(m: Walk, n: Node, x: Tensor, *_: Any, **__: Any) -> Tensor:
    dtype = n.meta["val"].dtype
    if dtype not in (torch.float32, torch.int64, torch.int32, torch.bool):
        m.note(f"a cast to {str(dtype).removeprefix('torch.')} has no effect, because --precision decides number formats")
    if dtype == torch.bool:
        return m.opposite(m.compare("equal", m.floats(x), m.constant(0)))
    return m.floats(x) if isinstance(x, Tensor) and dtype.is_floating_point else x


# --- slices ---


@op("slice.Tensor", SLICE + "; with a step, a view and a slice")
def slice_(m: Walk, n: Node, x: Tensor, dim: int = 0, start: int | None = 0, end: int | None = None, step: int = 1) -> Tensor:
    size, dim = x.shape[dim], dim % len(x.dims)
    first = min(size, max(0, (start or 0) + (size if (start or 0) < 0 else 0)))
    last = size if end is None else min(size, end + (size if end < 0 else 0))
    if step == 1:
        return slice_dim(m, x, dim, first, last - first)
    if size % step or first >= step or last < size - step + 1:
        raise Refused(f"every {step}th entry of {size}, from {first}", "Use a step that divides the size of the dim.")
    apart = Tensor(x.value, [*x.dims[:dim], *regroup(x.dims[dim], [size // step, step]), *x.dims[dim + 1 :]])
    return select(m, n, apart, dim + 1, first)


@op("select.int", SLICE)
def select(m: Walk, n: Node, x: Tensor, dim: int, index: int) -> Tensor:
    dim %= len(x.dims)
    part = slice_dim(m, x, dim, index % x.shape[dim], 1)
    return Tensor(part.value, [d for i, d in enumerate(part.dims) if i != dim])


@op("split.Tensor split_with_sizes.default chunk.default", SLICE)
def split(m: Walk, n: Node, x: Tensor, size: Any, dim: int = 0) -> list[Tensor]:
    start, parts = 0, []
    for value in n.meta["val"]:
        parts.append(slice_dim(m, x, dim, start, value.shape[dim]))
        start += value.shape[dim]
    return parts


row("unbind.int", SLICE, lambda m, n, x, dim=0: [select(m, n, x, dim, i) for i in range(x.shape[dim])])


@op("index.Tensor", "for consecutive constant rows: a slice; for other constant rows: as embedding")
def index(m: Walk, n: Node, x: Tensor, places: Sequence[Any]) -> Tensor:
    given = [(i, at) for i, at in enumerate(places) if at is not None]
    if len(given) != 1 or not isinstance(given[0][1], torch.Tensor):
        raise Refused("indices that are computed, or along several dims", "Use embedding for rows of a table, or a mask.")
    dim, at = given[0][0], given[0][1] % x.shape[given[0][0]]
    if at.dim() == 1 and torch.equal(at, torch.arange(len(at)) + at[0]):
        return slice_dim(m, x, dim, int(at[0]), len(at))
    order = [dim, *(d for d in range(len(x.dims)) if d != dim)]
    rows = constant_rows(m, Tensor(x.value, [x.dims[d] for d in order]), at.flatten().tolist(), at.shape)
    front = [rows.dims[at.dim() + d] for d in range(dim)]
    return Tensor(rows.value, [*front, *rows.dims[: at.dim()], *rows.dims[at.dim() + dim :]])


@op("pad.default constant_pad_nd.default", "pc.columns, with zeros")
def pad(m: Walk, n: Node, x: Tensor, pads: Sequence[int], mode: Any = "constant", value: float | None = 0.0) -> Tensor:
    if mode not in ("constant", 0) or value:
        raise Refused("padding with numbers other than 0", "Pad with zeros.")
    for i in range(len(pads) // 2):
        dim, low, high = len(x.dims) - 1 - i, pads[2 * i], pads[2 * i + 1]
        if low or high:
            x = window(m, spread(m, x, dim), dim, -low, x.shape[dim] + low + high)
    return x


# --- joins ---


@op("cat.default", "pc.columns pads the parts with zeros, and their sum joins them")
def cat(m: Walk, n: Node, parts: Sequence[Any], dim: int = 0) -> Tensor:
    tensors = [m.lift(part, at) for part, at in zip(parts, n.args[0])]  # type: ignore[arg-type]
    return concatenate(m, [t for t in tensors if 0 not in t.shape], dim % len(shape_of(n)))


@op("stack.default", "as cat")
def stack(m: Walk, n: Node, parts: Sequence[Any], dim: int = 0) -> Tensor:
    dim %= len(shape_of(n))
    return concatenate(m, [unsqueeze(m, n, m.lift(part), dim) for part in parts], dim)


@op("roll.default", "two slices and cat")
def roll(m: Walk, n: Node, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        raise Refused("roll of a flattened tensor", "Name the dims.")
    for shift, dim in zip(shifts, dims):
        size = x.shape[dim]
        if at := -shift % size:
            x = concatenate(m, [slice_dim(m, x, dim, at, size - at), slice_dim(m, x, dim, 0, at)], dim % len(x.dims))
    return x


@op("select_scatter.default", "slices and cat, for x[.., index] = part")
def select_scatter(m: Walk, n: Node, x: Any, part: Any, dim: int, index: int) -> Tensor:
    x, dim = m.lift(x, n.args[0]), dim % len(shape_of(n))
    return replace(m, x, unsqueeze(m, n, m.lift(part, n.args[1]), dim), dim, index % x.shape[dim])


@op("slice_scatter.default", "slices and cat, for x[.., start:end] = part")
def slice_scatter(m: Walk, n: Node, x: Any, part: Any, dim: int = 0, start: int | None = 0, end: Any = None, step: int = 1) -> Tensor:
    if step != 1:
        raise Refused("an assignment to a slice with a step", "Stack the parts instead.")
    x = m.lift(x, n.args[0])
    return replace(m, x, m.lift(part, n.args[1]), dim % len(x.dims), (start or 0) % x.shape[dim])
