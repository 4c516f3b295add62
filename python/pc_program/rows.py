"""Ops that know some of their dims by position: norms, softmax, cross-entropy, embedding, attention, rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .axes import Axis, flat, leaves, new_axis, unify
from .builder import Builder, letters_for, unit_axis
from .errors import NeedsReshape, Refused
from .slices import reshape
from .values import Letters, Tensor, Value


def norm(b: Builder, op: str, x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
    """Adds layer_norm or rms_norm over the last dim. If views have cut this dim, the norm becomes sums and products."""
    last = x.dim(-1)
    if len(last) != 1:
        b.note("a norm over a dim that views cut becomes sums and products, which are slower than one op")
        return composed_norm(b, op, x, gamma, beta, eps)
    last[0].dim.roles.add("normed")

    def vector(given: Tensor | None, default: float) -> Value:
        if given is None:
            return b.in_order(b.constant(default).value, [last[0].like()])
        unify(given.dims[0], x.dims[-1])
        return b.in_order(given.value, given.dims[0])

    vectors = [vector(gamma, 1.0)] + ([vector(beta, 0.0)] if op == "layer_norm" else [])
    order, value = b.ends_with(x, -1, f"pc.{op} over")
    return b.renamed(x, order, b.make(op, [value, *vectors], [axis.like() for axis in order], eps=eps))


def composed_norm(b: Builder, op: str, x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
    if op == "layer_norm":
        x = b.pointwise("sub", x, b.mean(x, [len(x.dims) - 1], True))
    square = b.add_number(b.mean(b.multiply(x, x), [len(x.dims) - 1], True), eps)
    y = b.multiply(x, b.recip(b.pointwise("sqrt", square)))
    y = y if gamma is None else b.multiply(y, gamma)
    return y if beta is None else b.pointwise("add", y, beta)


def softmax(b: Builder, x: Tensor, dim: int) -> Tensor:
    order, value = b.ends_with(x, dim, "a softmax over")
    return b.renamed(x, order, b.make("softmax", [value], [axis.like() for axis in order]))


def log_sum_exp(b: Builder, x: Tensor, dim: int, keep: bool) -> Tensor:
    order, value = b.ends_with(x, dim, "logsumexp over")
    dims = [[] if i == dim else d for i, d in enumerate(x.dims) if keep or i != dim]
    value = b.make("logsumexp", [value], [axis.like() for axis in order[:-1]])
    return b.renamed(Tensor(x.value, dims), order[:-1], value)


def recurrence(b: Builder, a: Tensor, x: Tensor, dim: int) -> Tensor:
    """Adds h_t = a_t h_{t-1} + x_t along a dim of x, from h = 0. a is broadcast to x."""
    rows = b.broadcast(a.dims, x.dims)
    along = b.single(rows[dim][1], "a recurrence along")
    letters: Letters = {}
    for own, full in rows:
        letters |= dict(zip(full, letters_for(full)))
        letters |= {axis: letters[other] for axis, other in zip(own, full)}
    used = {letters[axis] for t in (a, x) for axis in t.value.axes}
    missing = [axis for _, full in rows for axis in full if axis not in set(x.value.axes) and (letters[axis] in used or axis is along)]
    order = [*x.value.axes, *missing]
    value = b.in_order(x.value, order)
    maps = [{axis: letters[axis] for axis in a.value.axes}, {new: letters[old] for old, new in zip(order, value.axes)}]
    axes = [axis.like() for axis in order]
    named = {new: letters[old] for old, new in zip(order, axes)}
    return b.renamed(x, order, b.make("recurrence", [a.value, value], axes, maps=maps, letters=named, along=order.index(along)))


def embedding(b: Builder, table: Tensor, ids: Tensor, padding: int) -> Tensor:
    rows = b.single(table.dim(0), "a table by rows of")
    columns = [axis for axis in table.value.axes if axis is not rows]
    for axis in columns:
        axis.dim.roles.add("normed")
    held = ids.value.axes
    axes = [axis.like() for axis in [*held, *columns]]
    value = b.make("embedding", [b.in_order(table.value, [rows, *columns]), ids.value], axes, padding=padding, rows=len(held))
    new = dict(zip([*held, *columns], axes))
    return Tensor(value, [[new.get(a) or a.like() for a in leaves(d)] for d in [*ids.dims, *table.dims[1:]]])


def constant_rows(b: Builder, table: Tensor, numbers: Sequence[int], shape: Sequence[int], padding: int = -1) -> Tensor:
    """Returns the rows of a table with these numbers, an array of this shape."""
    following = [number - numbers[0] for number in numbers] == list(range(len(numbers)))
    starts = [] if following else [i for i, number in enumerate(numbers) if not i or number != numbers[i - 1]]
    pieces = {} if following else dict(pieces=starts, values=[numbers[i] for i in starts])
    value = b.make("iota", [], [new_axis(len(numbers))], dtype="i32", first=numbers[0] if following else 0, **pieces)
    if following:
        b.single(table.dim(0), "a table by rows of").dim.roles.add("position")
    rows = embedding(b, table, Tensor(value, [value.axes]), padding)
    return reshape(b, rows, [*shape, *rows.shape[1:]])


def negative_log_likelihood(b: Builder, logits: Tensor, targets: Tensor) -> tuple[Tensor, Value]:
    """Adds -log softmax(logits)[target] for each row of logits, whose last dim is the classes. Also returns the logits
    as the op reads them."""
    b.layer = "loss"
    classes = b.single(logits.dim(-1), "cross-entropy over")
    classes.dim.roles.add("vocab")
    unify(flat(logits.dims[:-1]), targets.axes)
    of_target = dict(zip(targets.axes, flat(logits.dims[:-1])))
    order = [of_target.get(axis) or unit_axis() for axis in targets.value.axes]
    read = b.in_order(logits.value, [*order, classes])
    axes = [axis.like() for axis in order]
    value = b.make("cross_entropy", [read, targets.value], axes)
    new = dict(zip(order, axes))
    dims = [[new[axis] for axis in leaves(dim)] for dim in logits.dims[:-1]]
    named = set(flat(dims))
    return Tensor(value, dims[:-1] + [dims[-1] + [axis for axis in axes if axis not in named]] if dims else dims), read


def mean_of_targets(b: Builder, losses: Tensor) -> Tensor:
    """Returns the mean over the targets that count."""
    axes = losses.value.axes
    weights = b.make("input", [], [axis.like() for axis in axes], kind="loss_weights", layer="loss")
    letters = letters_for(axes)
    maps = [dict(zip(axes, letters)), dict(zip(weights.axes, letters))]
    return Tensor(b.make("einsum", [losses.value, weights], [], maps=maps, letters={}, layer="loss"), [])


@dataclass
class Mask:
    """The keys that a query of attention sees."""

    causal: bool = False
    window: int | None = None


@dataclass
class Rotation:
    """A rotary embedding: the channels that it rotates, and their multiples of the position."""

    sequence: int  # the dim that counts positions
    frequencies: tuple[float, ...]
    scale: float
    first: int = 0
    interleaved: bool = False
    inverse: bool = False


def rotate(b: Builder, x: Tensor, rotation: Rotation, tables: dict[object, list[Value]]) -> Tensor:
    """Adds a rotary embedding of x, which has four dims: the batch first, the channels last, sequence and heads between
    them."""
    sequence, heads = x.dims[rotation.sequence], x.dims[3 - rotation.sequence]
    s, d = b.single(sequence, "a rotary embedding along"), b.single(x.dims[3], "a rotary embedding of")
    key = (rotation.frequencies, rotation.scale, s.size)
    if key not in tables:
        tables[key] = [
            b.make(
                "rope_table",
                [],
                [new_axis(s.size), new_axis(len(rotation.frequencies))],
                layer="rotary",
                kind=kind,
                frequencies=rotation.frequencies,
                scale=rotation.scale,
            )
            for kind in ("cos", "sin")
        ]
    order = [*x.dim(0), s, *leaves(heads), d]
    flags = dict(inverse=rotation.inverse, interleaved=rotation.interleaved, first=rotation.first)
    value = b.make("rope", [b.in_order(x.value, order), *tables[key]], [axis.like() for axis in order], **flags)
    return b.renamed(x, order, value)


@dataclass
class Heads:
    """Divides the axes of attention's heads into those of keys, and those along which several queries share a key."""

    kv: list[tuple[Axis, Axis, Axis]] = field(default_factory=list)
    group: list[tuple[Axis, Axis, Axis]] = field(default_factory=list)


def attention(b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, drop: float, random: int | None) -> Tensor:
    """Adds attention. q is [batch, heads, sequence, channels]; k and v have as many heads, or one."""
    for i in (0, 2, 3):
        if i != 2:
            unify(q.dims[i], k.dims[i])
        if v.shape[i] != k.shape[i]:
            raise Refused(f"attention with values of {v.shape[i]} channels and keys of {k.shape[i]}", "Use values as wide as keys.")
        unify(k.dims[i], v.dims[i])
    if not k.dim(1) and q.dim(1):
        k, v = (t.with_dim(1, [axis.like() for axis in q.dim(1)]) for t in (k, v))
    unify(q.dims[1], k.dims[1])
    unify(k.dims[1], v.dims[1])
    heads = Heads()
    held = set(k.value.axes) | set(v.value.axes)
    for row in zip(q.dim(1), k.dim(1), v.dim(1)):
        (heads.kv if row[1] in held or row[2] in held else heads.group).append(row)
    if len(heads.kv) > 1 or len(heads.group) > 1:
        found = heads.kv if len(heads.kv) > 1 else heads.group
        raise NeedsReshape("attention with heads that views cut", [axis for row in found for axis in row])
    batch, s, d = (b.single(q.dim(i), "attention along") for i in (0, 2, 3))
    b.single(k.dim(2), "attention along")
    kv, group = (rows[0] if rows else None for rows in (heads.kv, heads.group))
    order = [batch, s, kv[0] if kv else unit_axis(), group[0] if group else unit_axis(), d]
    for axis, role in ((order[2], "kv_heads"), (order[3], "group"), (d, "head_dim")):
        axis.dim.roles.add(role)
    keys = []
    for t, i in ((k, 1), (v, 2)):
        t.dim(3)[0].dim.roles.add("head_dim")
        keys.append(b.in_order(t.value, [*t.dim(0), *t.dim(2), kv[i] if kv else unit_axis(), *t.dim(3)]))
        if kv:
            kv[i].dim.roles.add("kv_heads")
    axes = [axis.like() for axis in order]
    value = b.make(
        "attention", [b.in_order(q.value, order), *keys], axes, causal=mask.causal, window=mask.window, scale=scale, drop=drop, random=random
    )
    lost = [axis for axis, row in ((axes[2], kv), (axes[3], group)) if not row]
    new = dict(zip(order, axes))
    if lost:  # the dims of size 1 go
        letters: Letters = dict(zip(axes, letters_for(axes)))
        kept = [axis for axis in axes if axis not in lost]
        shorter = [axis.like() for axis in kept]
        value = b.make("einsum", [value], shorter, maps=[letters], letters={n: letters[o] for n, o in zip(shorter, kept)}, unit=True)
        new = {old: dict(zip(kept, shorter)).get(axis, axis) for old, axis in new.items()}
    return Tensor(value, [[new[batch]], [new[axis] for axis in q.dim(1)], [new[s]], [new[d]]])
