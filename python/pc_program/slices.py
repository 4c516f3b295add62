"""Parts of dims. Slices become parts of parameters if possible, and otherwise pc.columns. Also concatenation, padding,
and reshapes as ops."""

from __future__ import annotations

from collections.abc import Sequence

from .axes import Axis, DimClass, leaves, new_axis, product, sizes, unify
from .builder import LINEAR_OR_POINTWISE, Builder, letters_for, unit_axis
from .errors import NeedsReshape, Refused
from .values import Letters, Tensor, Value, letter_of

Part = tuple[Value, dict[Axis, Axis]]  # a value of a part of another one, and its axes by those of that one
DEPTH = 6  # through so many ops a slice goes into parameters; beyond, too much would be computed twice


def slice_dim(b: Builder, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Returns the entries [start, start + length) of a dim."""
    axes = x.dim(dim)
    if start == 0 and length == product(axes):
        return x
    if not set(axes) & set(x.value.axes):
        return x.with_dim(dim, [new_axis(length)] if length > 1 else [])
    inner = product(axes[1:])
    if start % inner or length % inner:
        raise NeedsReshape(f"a slice from {start} to {start + length} of a dim that views cut into {sizes(axes)}", axes)
    axis, start, length = axes[0], start // inner, length // inner
    if axis not in set(x.value.axes):
        part = [new_axis(length)] if length > 1 else []
        return x.with_dim(dim, part + axes[1:])
    to = DimClass(length) if length > 1 else None
    value, new = push(b, x.value, axis, start, to, length, {}, DEPTH) or columns(b, x, axis, start, to)
    return Tensor(value, [[new.get(a) or a for a in leaves(d) if a is not axis or to] for d in x.dims])


def columns(b: Builder, x: Tensor, axis: Axis, start: int, to: DimClass | None) -> Part:
    """Returns entries of an axis. If the part has no class, because it has one entry, the dim is removed."""
    if x.value.dtype == "i32":
        raise Refused("a part of whole numbers that a run reads", "Make the part an input.")
    value, new = along(b, x.value, axis, start, Axis(to) if to else unit_axis())
    if to:
        return value, new
    held = [a for a in x.value.axes if a is not axis]
    return drop_unit(b, value, [new[a] for a in held], held)


def along(b: Builder, x: Value, axis: Axis, start: int, to: Axis, layer: str | None = None) -> Part:
    """Adds pc.columns from one axis to another."""
    axes = [to if a is axis else a.like() for a in x.axes]
    value = b.make("columns", [x], axes, start=start, along=x.axes.index(axis), layer=layer or b.layer)
    return value, dict(zip(x.axes, axes))


def drop_unit(b: Builder, value: Value, kept: Sequence[Axis], names: Sequence[Axis]) -> Part:
    letters: Letters = dict(zip(value.axes, letters_for(value.axes)))
    axes = [axis.like() for axis in kept]
    result = b.make("einsum", [value], axes, maps=[letters], letters={new: letters[old] for new, old in zip(axes, kept)})
    return result, dict(zip(names, axes))


def push(
    b: Builder, value: Value, axis: Axis, start: int, to: DimClass | None, length: int, memo: dict[tuple[Value, Axis], Part | None], depth: int
) -> Part | None:
    """Returns a part of a value along an axis, computed from parts of its operands, down to parameters. Returns None if
    that is not possible."""
    if (value, axis) in memo:
        return memo[value, axis]
    memo[value, axis] = found = _push(b, value, axis, start, to, length, memo, depth) if depth else None
    return found


def _push(
    b: Builder, value: Value, axis: Axis, start: int, to: DimClass | None, length: int, memo: dict[tuple[Value, Axis], Part | None], depth: int
) -> Part | None:
    if value.op == "parameter":
        if value.attrs["name"] in b.whole:
            return None
        cuts = value.attrs.setdefault("cuts", {})
        if (axis, start, length) not in cuts:
            cuts[axis, start, length] = cut_parameter(b, value, axis, start, length, to), to
        part, known = cuts[axis, start, length]
        if part and to and known:
            unify([Axis(known)], [Axis(to)])
        if not part:
            return None
        # Views may have cut the other axes since an earlier use of the parameter.
        rest = [(old, new) for old, new in part[1].items() if old is not axis]
        new = dict(zip(leaves(old for old, _ in rest), leaves(new for _, new in rest)))
        return part[0], new | ({axis: part[1][axis]} if axis in part[1] else {})
    if value.op == "columns" and to and axis is value.uncut()[value.attrs["along"]]:  # a part of a part
        source, first = value.operands[0], value.attrs["start"] + start
        own = source.axes[value.axes.index(axis)]
        if first == 0 and length == own.size:
            unify([own], [Axis(to)])
            return source, dict(zip(value.axes, source.axes))
        part, _ = along(b, source, own, first, Axis(to), value.layer)
        return part, dict(zip(value.axes, part.axes))
    new = {a: Axis(to) if a is axis and to else a.like() for a in value.axes if a is not axis or to}
    if value.op in LINEAR_OR_POINTWISE:
        at = value.axes.index(axis)
        parts = [push(b, o, o.axes[at], start, to, length, memo, depth - 1) for o in value.operands]
        if not all(parts):
            return None
        result = b.make(value.op, [part[0] for part in parts if part], list(new.values()), layer=value.layer, **value.attrs)
        return result, new
    if value.op != "einsum":
        return None
    letter, operands, maps = value.letter(axis), [], []
    for operand, letters in zip(value.operands, value.maps):
        hit = [a for a in operand.axes if letter_of(letters, a) == letter]
        part = push(b, operand, hit[0], start, to, length, memo, depth - 1) if len(hit) == 1 else None
        if hit and not part:
            return None
        operands.append(part[0] if part else operand)
        maps.append({n: letter_of(letters, old) for old, n in part[1].items()} if part else letters)
    named = {n: value.letter(old) for old, n in new.items()}
    return b.make("einsum", operands, list(new.values()), layer=value.layer, maps=maps, letters=named), new


def cut_parameter(b: Builder, value: Value, axis: Axis, start: int, length: int, to: DimClass | None) -> Part | None:
    """A part of a parameter: for each dim of a view of the tensor [its size, start, length, axes of the parameter]."""
    boxes: list[list] = []
    new: dict[Axis, Axis] = {}
    for full, first, size, group in value.attrs["boxes"]:
        group = leaves(group)
        at = group.index(axis) if axis in group else None
        if at:  # what is outside of the axis becomes a dim of the view
            inner = product(group[at:])
            if first % inner or full % inner:
                return None
            boxes.append([full // inner, first // inner, size // inner, [a.like() for a in group[:at]]])
            new.update(zip(group[:at], boxes[-1][3]))
            full, first, group, at = inner, 0, group[at:], 0
        if at is None:
            boxes.append([full, first, size, [a.like() for a in group]])
            new.update(zip(group, boxes[-1][3]))
        else:
            inner = product(group[1:])
            rest = [a.like() for a in group[1:]]
            own = [Axis(to)] if to else []
            boxes.append([full, first + start * inner, length * inner, own + rest])
            new.update(zip(group if to else group[1:], own + rest))
    axes = [axis for box in boxes for axis in box[3]]
    attrs = {k: v for k, v in value.attrs.items() if k not in ("cuts", "boxes", "part")}
    return b.make("parameter", [], axes, layer=value.layer, boxes=boxes, part=True, **attrs), new


def concatenate(b: Builder, parts: Sequence[Tensor], dim: int) -> Tensor:
    """Pads each part with zeros, and adds up the results."""
    lengths = [part.shape[dim] for part in parts]
    whole = DimClass(sum(lengths))
    for part in parts[1:]:
        for i, (one, other) in enumerate(zip(parts[0].dims, part.dims)):
            if i != dim and leaves(one) and leaves(other):
                unify(one, other)
    result: Tensor | None = None
    start = 0
    for part, length in zip(parts, lengths):
        if part.value.op != "constant" or part.value.attrs["number"]:
            axis = b.single(part.dim(dim), "concatenation along") if part.dim(dim) else unit_axis()
            dims = [[axis] if i == dim else part.dim(i) for i in range(len(part.dims))]
            order = leaves([a for d in dims for a in d])
            ordered = b.in_order(part.value, order)
            value, _ = along(b, ordered, ordered.axes[order.index(axis)], -start, Axis(whole))
            rest = iter(value.axes)
            laid = Tensor(value, [[next(rest) for _ in d] for d in dims])
            result = laid if result is None else b.pointwise("add", result, laid)
        start += length
    if result is None:  # zeros alone
        return parts[0].with_dim(dim, [Axis(whole)])
    return result


def window(b: Builder, x: Tensor, dim: int, start: int, length: int, to: DimClass | None = None) -> Tensor:
    """Returns the entries start + i of a dim for i below length, and 0 for entries that do not exist."""
    if start == 0 and length == x.shape[dim]:
        return x
    axis = b.single(x.dim(dim), "entries along")
    if axis not in set(x.value.axes):  # as many copies as the dim has entries
        order = [*x.value.axes, axis]
        x = b.renamed(x, order, b.in_order(x.value, order))
        axis = x.dim(dim)[0]
    value, new = columns(b, x, axis, start, to or DimClass(length))
    return Tensor(value, [[new.get(a) or a for a in leaves(d)] for d in x.dims])


def replace(b: Builder, x: Tensor, part: Tensor, dim: int, start: int) -> Tensor:
    """Returns x, in which `part` replaces the entries [start, start + length of part) of a dim."""
    end, size = start + part.shape[dim], x.shape[dim]
    if x.value.op == "constant" and x.value.attrs["number"] == 0 and size > 1:
        return window(b, spread(b, part, dim), dim, -start, size, x.dim(dim)[0].dim)
    pieces = [slice_dim(b, x, dim, 0, start)] if start else []
    pieces.append(part)
    pieces += [slice_dim(b, x, dim, end, size - end)] if end < size else []
    return concatenate(b, pieces, dim) if len(pieces) > 1 else part


def spread(b: Builder, x: Tensor, dim: int) -> Tensor:
    """Returns x with an axis of size 1 for a dim that has none."""
    if x.dim(dim):
        return x
    order = [*x.value.axes, axis := unit_axis()]
    return b.renamed(x.with_dim(dim, [axis]), order, b.in_order(x.value, order))


def reshape(b: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Makes a view an op: dims that it joins or cuts get separate axes."""
    old, i = [x.dim(k) for k in range(len(x.dims))], 0
    result: list[list[Axis]] = []
    j = 0
    while j < len(shape):
        if shape[j] == 1:
            unit = i < len(old) and product(old[i]) == 1
            result.append(old[i] if unit else [])
            i, j = i + unit, j + 1
            continue
        first_old, first_new = i, j
        while product(old[i]) == 1:
            i += 1
        n, m, i, j = product(old[i]), shape[j], i + 1, j + 1
        while n != m:
            if n < m:
                n, i = n * product(old[i]), i + 1
            else:
                m, j = m * shape[j], j + 1
        group = [axis for dim in old[first_old:i] for axis in dim]
        new = [new_axis(size) for size in shape[first_new:j] if size > 1]
        if sizes(new) == sizes(group):
            new = group
        elif set(group) & set(x.value.axes):  # else it is broadcast along the new axes, too
            x, renamed, new = regroup(b, x, group, new)
            old = [[renamed.get(axis, axis) for axis in dim] for dim in old]
            result = [[renamed.get(axis, axis) for axis in dim] for dim in result]
        rest = iter(new)
        result += [[next(rest)] if size > 1 else [] for size in shape[first_new:j]]
    result[-1:] = [[axis for dim in result[-1:] + old[i:] for axis in dim]]
    return Tensor(x.value, result)


def regroup(b: Builder, x: Tensor, group: list[Axis], new: list[Axis]) -> tuple[Tensor, dict[Axis, Axis], list[Axis]]:
    """Returns x with the axes `new` instead of `group`: a pc.reshape, or two if neither is a single axis."""
    if missing := [axis for axis in group if axis not in set(x.value.axes)]:
        order = [*x.value.axes, *missing]
        value = b.in_order(x.value, order)
        names = dict(zip(order, value.axes))
        x, second, new = regroup(b, Tensor(value, x.dims), [names[axis] for axis in group], new)
        return x, {old: second[axis] for old, axis in names.items() if axis in second}, new
    if len(group) > 1 and len(new) > 1:
        x, first, merged = regroup(b, x, group, [new_axis(product(group))])
        x, second, new = regroup(b, x, merged, new)
        return x, {old: second[axis] for old, axis in first.items()}, new
    at = x.value.axes.index(group[0])
    front = [axis for axis in x.value.axes[:at] if axis not in group]
    back = [axis for axis in x.value.axes[at:] if axis not in group]
    renamed = {axis: axis.like() for axis in front + back}
    axes = [renamed[axis] for axis in front] + new + [renamed[axis] for axis in back]
    ordered = b.in_order(x.value, front + group + back)
    value = b.make("reshape", [ordered], axes, along=len(front), from_axes=len(group), to_axes=len(new))
    return Tensor(value, x.dims), renamed, new


def absolute(b: Builder, x: Tensor) -> Tensor:
    return b.pointwise("add", b.activation("relu", x), b.activation("relu", b.scale(x, -1)))
