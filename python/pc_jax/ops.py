"""The rules of the primitives. Norms, softmax, attention and losses stay in pieces, which pc-raise joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pc_program.axes import leaves, new_axis, product, unify
from pc_program.builder import letters_for
from pc_program.errors import Refused
from pc_program.rows import embedding, negative_log_likelihood, recurrence
from pc_program.slices import absolute, concatenate, slice_dim, window
from pc_program.values import Letters, Tensor, Value

from .table import op, row
from .walk import Condition, Erfc, Places, Walk, compact

NOTHING = "nothing: only the grouping or the order of axes changes"


def number_of(x: Any) -> float | None:
    """Returns the number that fills an array of constants."""
    if not isinstance(x, np.ndarray):
        return None
    own = compact(x)
    return float(own.flat[0]) if own.size and (own == own.flat[0]).all() else None


def squared(m: Walk, x: Tensor) -> Tensor:
    result = m.multiply(x, x)
    m.squares[result.value] = x
    return result


def scaled(m: Walk, x: Any, factor: float) -> Any:
    if isinstance(x, Erfc):
        return Erfc(x.x, x.factor * factor, x.is_erf)
    x = m.lift(x)
    result = m.scale(x, factor)
    if x.value in m.sums:
        given, dims = m.sums[x.value]
        if abs(factor * product(axis for i in dims for axis in given.dim(i)) - 1) < 1e-6:
            m.means[result.value] = given, dims
    return result


# --- pointwise ---


@op("add add_any", "pc.add", True)
def add(m: Walk, n: Any, a: Any, b: Any) -> Any:
    a, b = (b, a) if isinstance(a, np.ndarray) else (a, b)
    number = number_of(b)
    if isinstance(a, Erfc):
        if a.is_erf and number == a.factor:  # c (1 + erf(x)) = c erfc(-x)
            return Erfc(m.scale(a.x, -1), a.factor)
        raise Refused("erf outside of gelu", "Write gelu as x * (1 + erf(x / sqrt(2))) / 2.")
    if number is not None:
        return m.add_number(m.lift(a), number)
    if isinstance(b, np.ndarray) and set(np.unique(compact(b) < -1e4)) == {False, True} and not compact(b)[compact(b) >= -1e4].any():
        return m.choice(b < -1e4, np.broadcast_to(np.float32(-1e30), b.shape), a)  # a mask that is added to scores
    return m.pointwise("add", m.lift(a), m.lift(b))


@op("sub", "pc.sub", True)
def sub(m: Walk, n: Any, a: Any, b: Any) -> Tensor:
    if (number := number_of(b)) is not None:
        return m.add_number(m.lift(a), -number)
    if (number := number_of(a)) is not None:
        return m.add_number(m.scale(m.lift(b), -1), number)
    a, b = m.lift(a), m.lift(b)
    return m.centered.get((a.value, b.value)) or m.pointwise("sub", a, b)


@op("mul", "pc.einsum, or pc.scale for a number", True)
def mul(m: Walk, n: Any, a: Any, b: Any) -> Any:
    a, b = (b, a) if isinstance(a, (np.ndarray, Erfc)) else (a, b)
    if (number := number_of(b)) is not None:
        return scaled(m, a, number) if number else np.broadcast_to(np.float32(0), n.outvars[0].aval.shape)
    if isinstance(b, Erfc):
        a = m.lift(a)
        (x, by), (same, of) = unscaled(a.value), unscaled(b.x.value)
        if x is not same or b.is_erf or abs(of + 0.5**0.5) > 1e-5:
            raise Refused("erf outside of gelu", "Write gelu as x * (1 + erf(x / sqrt(2))) / 2.")
        return m.scale(m.activation("gelu", m.scale(a, 1 / by)), 2 * b.factor * by)  # x erfc(-x / sqrt(2)) = 2 gelu(x)
    if isinstance(a, Tensor) and a is b:
        return squared(m, a)
    return m.multiply(m.lift(a), m.lift(b))


def unscaled(value: Value) -> tuple[Value, float]:
    factor = 1.0
    while value.op == "scale":
        factor, value = factor * value.attrs["factor"], value.operands[0]
    return value, factor


@op("div", "pc.recip and pc.einsum, or pc.scale for a number", True)
def div(m: Walk, n: Any, a: Any, b: Any) -> Any:
    if number := number_of(b):
        return scaled(m, a, 1.0 / number)
    inverse = m.recip(m.lift(b))
    number = number_of(a)
    return m.scale(inverse, number) if number is not None else m.multiply(m.lift(a), inverse)


def powered(m: Walk, x: Tensor, exponent: float) -> Tensor:
    if exponent < 0:
        return m.recip(powered(m, x, -exponent))
    if exponent == 0.5:
        return m.pointwise("sqrt", x)
    if exponent != int(exponent) or not 1 <= exponent <= 8:
        raise Refused(f"a power of {exponent}", "Use whole powers up to 8, or exp and log.")
    if exponent == 2:
        return squared(m, x)
    result = x
    for _ in range(int(exponent) - 1):
        result = m.multiply(result, x)
    return result


@op("pow", "as integer_pow", True)
def power(m: Walk, n: Any, x: Any, exponent: Any) -> Tensor:
    number = number_of(exponent)
    if number is None:
        raise Refused("a power with a computed exponent", "Use exp and log.")
    return powered(m, m.lift(x), number)


for name in ("exp", "log", "sqrt", "cos", "sin"):
    row(name, f"pc.{name}", lambda m, n, x, name=name: m.pointwise(name, m.lift(x)), True)
row("neg", "pc.scale", lambda m, n, x: scaled(m, x, -1), True)
row("tanh", "pc.activation", lambda m, n, x: m.activation("tanh", m.lift(x)), True)
row("logistic", "pc.activation sigmoid", lambda m, n, x: m.activation("sigmoid", m.lift(x)), True)
row("rsqrt", "pc.sqrt and pc.recip", lambda m, n, x: powered(m, m.lift(x), -0.5), True)
row("square", "pc.einsum", lambda m, n, x: squared(m, m.lift(x)), True)
row("integer_pow", "products of x for powers up to 8; pc.recip for negative ones", lambda m, n, x: powered(m, m.lift(x), n.params["y"]), True)
row("log1p", "log(1 + x)", lambda m, n, x: m.pointwise("log", m.add_number(m.lift(x), 1.0)), True)
row("expm1", "exp(x) - 1", lambda m, n, x: m.add_number(m.pointwise("exp", m.lift(x)), -1.0), True)
row("erf", "1 - erfc", lambda m, n, x: Erfc(m.lift(x), is_erf=True), True)
row("erfc", "only in a product: pc.activation gelu", lambda m, n, x: Erfc(m.lift(x)), True)


@op("abs", "relu(x) + relu(-x); of a sum of exponentials: nothing", True)
def magnitude(m: Walk, n: Any, x: Tensor) -> Tensor:
    value = x.value
    while value.is_("einsum", 1):
        value = value.operands[0]
    return x if value.op == "exp" else absolute(m, m.lift(x))


@op("max min", "pc.select; equal values share the gradient. max(E[x^2] - E[x]^2, 0) becomes the mean of (x - E[x])^2", True)
def extreme(m: Walk, n: Any, a: Any, b: Any) -> Tensor:
    a, b = (b, a) if isinstance(a, np.ndarray) else (a, b)
    is_max, number = n.primitive.name == "max", number_of(b)
    if number is not None and np.isinf(number) and (number < 0) == is_max:
        return a
    if is_max and number == 0 and (found := variance(m, a)):
        return found
    a, b = m.lift(a), m.lift(b)
    first = m.choose("less", *((b, a) if is_max else (a, b)), a, b)
    return m.choose("equal", a, b, m.scale(m.pointwise("add", a, b), 0.5), first)


def variance(m: Walk, difference: Tensor) -> Tensor | None:
    """Returns the mean of (x - mean)^2, if `difference` is the mean of x^2 minus the square of the mean."""
    value = difference.value
    if value.op != "sub" or value.operands[0] not in m.means or value.operands[1] not in m.squares:
        return None
    (square, dims), mean = m.means[value.operands[0]], m.squares[value.operands[1]]
    x, known = m.squares.get(square.value), m.means.get(mean.value)
    if not x or not known or known[0].value is not x.value or known[1] != dims:
        return None
    kept = iter(mean.dims)
    centered = m.pointwise("sub", x, Tensor(mean.value, [[] if i in dims else next(kept) for i in range(len(x.dims))]))
    m.centered[x.value, mean.value] = centered
    return m.mean(m.multiply(centered, centered), dims)


@op("clamp", "pc.select", True)
def clamp(m: Walk, n: Any, low: Any, x: Any, high: Any) -> Tensor:
    return m.clamp(m.lift(x), number_of(low), number_of(high))


# --- conditions ---


@op("lt le gt ge eq ne", "pc.select in the op that reads it", True)
def compare(m: Walk, n: Any, a: Any, b: Any) -> Any:
    name = n.primitive.name
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.value is b.value and name in ("eq", "ne"):
        return np.broadcast_to(np.bool_(name == "eq"), a.shape)  # a test for NaN
    x, y = (v if isinstance(v, Tensor) else m.lift(v) for v in (a, b))
    kind = "equal" if name in ("eq", "ne") else "less" if name[1] == "t" else "less_equal"
    return Condition(kind, *((y, x) if name[0] == "g" else (x, y)), negated=name == "ne")


@op("select_n", "pc.select; a constant triangle becomes a comparison of positions", True)
def select(m: Walk, n: Any, which: Any, *cases: Any) -> Any:
    number = number_of(which)
    if number is not None:
        return cases[int(number)]
    if len(cases) != 2:
        raise Refused("a choice among more than two values", "Use jnp.where.")
    if isinstance(which, Condition) and which.x.value.dtype == "i32" and isinstance(cases[0], Tensor) and cases[0].value is which.x.value:
        return cases[0]  # indices below 0 count from the end: tokens are none
    if n.outvars[0].aval.dtype == bool and [number_of(case) for case in cases] in ([0, 1], [1, 0]):
        found = m.condition(which)
        return Condition(found.kind, found.x, found.y, found.negated != bool(number_of(cases[0])))
    return m.choice(which, cases[1], cases[0])


@op("not", "the opposite condition", True)
def opposite(m: Walk, n: Any, x: Any) -> Any:
    found = logical(m, n, x)[0]
    return Condition(found.kind, found.x, found.y, not found.negated)


@op("and or", "a product or a sum of 1 and 0", True)
def both(m: Walk, n: Any, a: Any, b: Any) -> Any:
    is_and = n.primitive.name == "and"
    for x, other in ((a, b), (b, a)):
        if (number := number_of(x)) is not None:
            return other if bool(number) == is_and else x
    x, y = map(m.lift, logical(m, n, a, b))
    return Condition("less", m.constant(0), m.multiply(x, y) if is_and else m.pointwise("add", x, y))


def logical(m: Walk, n: Any, *xs: Any) -> list[Condition]:
    if n.outvars[0].aval.dtype != bool:
        raise Refused("a logical op on numbers", "Compare them first.")
    return [m.condition(x) for x in xs]


row("is_finite", "true", lambda m, n, x: np.broadcast_to(np.True_, x.shape), True)


@op("convert_element_type reduce_precision", "nothing: --precision decides the number format; a condition becomes 1 and 0", True)
def convert(m: Walk, n: Any, x: Any) -> Any:
    given, wanted = n.invars[0].aval.dtype, n.outvars[0].aval.dtype
    if wanted == np.dtype(bool):
        return x if given == np.dtype(bool) else Condition("equal", m.lift(x), m.constant(0), negated=True)
    if np.issubdtype(given, np.floating) and np.issubdtype(wanted, np.integer):
        raise Refused("rounding numbers to integers", "They have no gradient; compare them instead.")
    return x if np.issubdtype(wanted, np.integer) and isinstance(x, Tensor) else m.lift(x)


@op("stop_gradient", "nothing, if pc-raise recognises the softmax or logsumexp whose maximum this is; otherwise an error")
def stop_gradient(m: Walk, n: Any, x: Any) -> Any:
    if isinstance(x, Tensor) and x.value.op not in ("reduce_max", "input", "iota", "constant"):
        raise Refused("stop_gradient of a computed value", "It is supported only for the maximum that a softmax subtracts.")
    return x


# --- sums and products ---


@op("reduce_sum", "pc.einsum")
def reduce_sum(m: Walk, n: Any, x: Any) -> Tensor:
    x, dims = m.lift(x), tuple(int(i) for i in n.params["axes"])
    result = m.sum(x, dims)
    m.sums[result.value] = x, dims
    return result


@op("cumsum", "pc.recurrence")
def cumsum(m: Walk, n: Any, x: Any) -> Tensor:
    if n.params["reverse"]:
        raise Refused("a sum that begins at the end", "Subtract the running sum from the sum.")
    return recurrence(m, m.constant(1.0), m.lift(x), n.params["axis"])


@op("reduce_max", "pc.reduce_max, which pc-raise joins to a softmax or logsumexp")
def reduce_max(m: Walk, n: Any, x: Any) -> Tensor:
    x = m.lift(x)
    dims = [int(i) for i in n.params["axes"]]
    whole = m.in_order(x.value, x.axes) if any(a not in set(x.value.axes) for i in dims for a in x.dim(i)) else x.value
    x = m.renamed(x, x.axes, whole) if whole is not x.value else x
    letters: Letters = dict(zip(x.axes, letters_for(x.axes)))
    kept = [d for i, d in enumerate(x.dims) if i not in dims]
    own = [a for a in x.value.axes if any(a in leaves(d) for d in kept)]
    axes = [a.like() for a in own]
    named = {new: letters[old] for new, old in zip(axes, own)}
    value = m.make("reduce_max", [x.value], axes, maps=[{a: letters[a] for a in x.value.axes}], letters=named)
    return m.renamed(Tensor(x.value, kept), own, value)


@op("dot_general", "pc.einsum")
def dot_general(m: Walk, n: Any, a: Any, b: Any) -> Tensor:
    (of_a, of_b), (batch_a, batch_b) = n.params["dimension_numbers"]
    x, y = m.lift(a), m.lift(b)
    for i, j in zip([*of_a, *batch_a], [*of_b, *batch_b]):
        if x.dim(i) and y.dim(j):
            unify(x.dims[i], y.dims[j])
    maps: tuple[Letters, Letters] = ({}, {})
    result: list[list[Any]] = []

    def name(pairs: Sequence[tuple[int, list]]) -> list[Any]:
        letters = letters_for(pairs[0][1])
        for k, axes in pairs:
            maps[k].update(zip(axes, letters))
        return letters

    for i, j in zip(batch_a, batch_b):
        result.append(name([(0, x.dim(i)), (1, y.dim(j))]))
    for i, j in zip(of_a, of_b):
        name([(0, x.dim(i)), (1, y.dim(j))])
        m.check_summed(x.dim(i), x, y.dim(j), y)
    result += [name([(0, x.dim(i))]) for i in range(len(x.dims)) if i not in (*of_a, *batch_a)]
    result += [name([(1, y.dim(j))]) for j in range(len(y.dims)) if j not in (*of_b, *batch_b)]
    return m.einsum([(x, maps[0]), (y, maps[1])], result)


# --- views and parts ---


def moved(x: Any, f: Any) -> Any:
    """Views a tensor, or both tensors that a condition compares."""
    return Condition(x.kind, f(x.x), f(x.y), x.negated) if isinstance(x, Condition) else f(x)


@op("broadcast_in_dim", "nothing: the reader broadcasts it")
def broadcast(m: Walk, n: Any, x: Any, *_: Any) -> Any:
    shape, places = n.params["shape"], {int(at): i for i, at in enumerate(n.params["broadcast_dimensions"])}

    def view(t: Tensor) -> Tensor:
        given = [t.dim(places[i]) if i in places and t.dims else [] for i in range(len(shape))]
        return Tensor(t.value, [axes or ([new_axis(size)] if size > 1 else []) for axes, size in zip(given, shape)])

    return moved(x, view)


@op("reshape", NOTHING)
def reshape(m: Walk, n: Any, x: Any, *_: Any) -> Any:
    return moved(x, lambda t: m.view(t, n.params["new_sizes"]) if t.dims else t)


row("transpose", NOTHING, lambda m, n, x: moved(x, lambda t: Tensor(t.value, [t.dims[i] for i in n.params["permutation"]] if t.dims else [])))
row("squeeze", NOTHING, lambda m, n, x: moved(x, lambda t: squeezed(t, n.params["dimensions"])))
row("expand_dims", NOTHING, lambda m, n, x: moved(x, lambda t: m.view(t, n.outvars[0].aval.shape) if t.dims else t))
row("copy copy_p name sharding_constraint optimization_barrier reduce_and_p", "nothing", lambda m, n, *xs: list(xs))


def squeezed(x: Tensor, dims: Sequence[int]) -> Tensor:
    return Tensor(x.value, [d for i, d in enumerate(x.dims) if i not in dims]) if x.dims else x


@op("slice", "a part of a parameter, or pc.columns of a computed value")
def slice_(m: Walk, n: Any, x: Tensor) -> Tensor:
    p = n.params
    if p["strides"] and any(step != 1 for step in p["strides"]):
        raise Refused("a slice with a step", "Reshape, and slice the entry.")
    for dim, (first, last) in enumerate(zip(p["start_indices"], p["limit_indices"])):
        x = slice_dim(m, x, dim, first, last - first)
    return x


@op("split", "as slice")
def split(m: Walk, n: Any, x: Tensor) -> list[Any]:
    sizes = [int(size) for size in n.params["sizes"]]
    return [slice_dim(m, x, n.params["axis"], sum(sizes[:i]), size) for i, size in enumerate(sizes)]


@op("dynamic_slice", "at constant positions, as slice")
def dynamic_slice(m: Walk, n: Any, x: Tensor, *starts: Any) -> Tensor:
    for dim, (start, size) in enumerate(zip(starts, n.params["slice_sizes"])):
        if size < x.shape[dim]:
            if not isinstance(start, np.ndarray):
                raise Refused("a slice at a computed position", "Use a mask.")
            x = slice_dim(m, x, dim, min(max(int(start), 0), x.shape[dim] - size), size)
    return x


@op("concatenate", "pc.columns pads the parts with zeros, and their sum joins them")
def concatenated(m: Walk, n: Any, *parts: Any) -> Any:
    if np.issubdtype(n.outvars[0].aval.dtype, np.integer):
        return Places(list(parts))
    return concatenate(m, [m.lift(part) for part in parts], n.params["dimension"])


@op("pad", "pc.columns, with zeros")
def pad(m: Walk, n: Any, x: Tensor, value: Any) -> Tensor:
    if number_of(value) or any(inner for *_, inner in n.params["padding_config"]):
        raise Refused("padding with other numbers than 0, or between entries", "Pad with zeros.")
    for dim, (low, high, _) in enumerate(n.params["padding_config"]):
        if low or high:
            x = window(m, x, dim, -low, x.shape[dim] + low + high)
    return x


# --- rows by index ---


@op("gather", "rows of a table: pc.embedding, with pc.iota for consecutive rows; the target's entry: pc.pick; constant positions: a slice")
def gather(m: Walk, n: Any, x: Any, places: Any) -> Tensor:
    p, sizes = n.params["dimension_numbers"], n.params["slice_sizes"]
    table, collapsed = m.lift(x), tuple(p.collapsed_slice_dims)
    rank = len(table.dims)
    if isinstance(places, np.ndarray) and places.ndim == 1:
        for start, dim in zip(places, p.start_index_map):
            table = slice_dim(m, table, dim, min(max(int(start), 0), table.shape[dim] - sizes[dim]), sizes[dim])
        return squeezed(table, collapsed)
    parts = places.parts if isinstance(places, Places) else [places]
    trailing = tuple(range(len(n.outvars[0].aval.shape)))[-len(p.offset_dims) :]
    is_row = sizes[0] == 1 and tuple(sizes[1:]) == tuple(table.shape[1:]) and tuple(p.offset_dims) == trailing
    if is_row and p.start_index_map[0] == 0 and not p.operand_batching_dims and all(number_of(part) == 0 for part in parts[1:]):
        found = rows_of(m, table, parts[0])
        at = len(found.dims) - rank + 1
        return found if collapsed else Tensor(found.value, [*found.dims[:at], [], *found.dims[at:]])
    *before, last = parts
    counts = all(counts_along(part, i) for i, part in enumerate(before)) and tuple(p.start_index_map[:-1]) == tuple(range(len(before)))
    along = (*p.operand_batching_dims, *p.start_index_map)
    if not counts or sorted(along) != list(range(rank)) or p.start_index_map[-1] != rank - 1 or set(sizes) != {1} or last.value.op != "input":
        raise Refused("entries at computed positions", "Only inputs and constants choose rows of a table; inputs choose entries along the last dim.")
    found, read = negative_log_likelihood(m, table, last)
    found.value.op = "pick"
    if not isinstance(m.logits, Value) and (read.operands[0] if read.is_("einsum", 1) else read).op != "sub":
        m.logits = read
    spare = len(n.outvars[0].aval.shape) - len(found.dims)
    return Tensor(found.value, [*found.dims, *([] for _ in range(spare))])


def counts_along(part: Any, dim: int) -> bool:
    """Returns True if the constants are 0, 1, 2, ... along one dim."""
    if not isinstance(part, np.ndarray):
        return False
    own = compact(part)
    return own.size == own.shape[dim] == part.shape[dim] and bool((own.ravel() == np.arange(own.size)).all())


def rows_of(m: Walk, table: Tensor, ids: Any) -> Tensor:
    rows = m.single(table.dim(0), "a table by rows of")
    if isinstance(ids, np.ndarray):
        own = compact(ids).ravel()
        if not np.array_equal(own, np.arange(own[0], own[0] + own.size)):
            raise Refused("constant rows of a table that are not consecutive", "Read consecutive rows of the table.")
        value = m.make("iota", [], [new_axis(own.size)], dtype="i32", first=int(own[0]))
        long = [i for i, n in enumerate(compact(ids).shape) if n > 1]
        given = [value.axes if i in long else [new_axis(n)] if n > 1 else [] for i, n in enumerate(ids.shape)]
        rows.dim.roles.add("position")
        return embedding(m, table, Tensor(value, given[:-1]), -1)
    if not isinstance(ids, Tensor) or ids.value.op != "input":
        raise Refused("rows of a table at computed positions", "Only inputs and constants may choose rows.")
    rows.dim.roles.add("vocab")
    return embedding(m, table, Tensor(ids.value, ids.dims[:-1]), -1)
