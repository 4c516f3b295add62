"""The rules of pointwise ops, sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from pc_program.axes import leaves, unify
from pc_program.builder import letters_for
from pc_program.errors import Refused
from pc_program.rows import recurrence
from pc_program.slices import absolute, slice_dim, spread, window
from pc_program.values import Letters, Tensor

from .recognise import shape_of
from .table import op, row
from .walk import Walk

Number = (int, float)


@op("add.Tensor add.Scalar", "pc.add")
def add(m: Walk, n: Node, a: Any, b: Any, alpha: float = 1) -> Tensor:
    if isinstance(b, Number):
        return m.add_number(m.lift(a, n.args[0]), b * alpha)
    b = m.scale(m.lift(b, n.args[1]), alpha)
    return m.add_number(b, a) if isinstance(a, Number) else m.pointwise("add", m.lift(a, n.args[0]), b)


@op("sub.Tensor sub.Scalar", "pc.sub")
def sub(m: Walk, n: Node, a: Any, b: Any, alpha: float = 1) -> Tensor:
    if isinstance(b, Number) or isinstance(a, Number) or alpha != 1:
        return add(m, n, a, b, -alpha)
    return m.pointwise("sub", m.lift(a, n.args[0]), m.lift(b, n.args[1]))


@op("mul.Tensor mul.Scalar", "pc.einsum, or pc.scale for a number")
def mul(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    if isinstance(b, Number):
        return m.scale(m.lift(a, n.args[0]), b)
    return m.scale(m.lift(b, n.args[1]), a) if isinstance(a, Number) else m.multiply(m.lift(a, n.args[0]), m.lift(b, n.args[1]))


@op("div.Tensor div.Scalar", "pc.recip and pc.einsum, or pc.scale for a number")
def div(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    if isinstance(b, torch.Tensor) and b.numel() == 1:
        b = float(b)
    if isinstance(b, Number):
        return m.scale(m.lift(a, n.args[0]), 1.0 / b)
    inverse = m.recip(m.lift(b, n.args[1]))
    return m.scale(inverse, a) if isinstance(a, Number) else m.multiply(m.lift(a, n.args[0]), inverse)


@op("pow.Tensor_Scalar", "products of x for powers up to 8; pc.sqrt for 1/2; pc.recip for negative ones")
def power(m: Walk, n: Node, x: Tensor, exponent: float) -> Tensor:
    if exponent < 0:
        return m.recip(power(m, n, x, -exponent))
    if exponent == 0.5:
        return m.pointwise("sqrt", x)
    if exponent != int(exponent) or not 1 <= exponent <= 8:
        raise Refused(f"a power of {exponent}", "Use whole powers up to 8, or exp and log.")
    result = x
    for _ in range(int(exponent) - 1):
        result = m.multiply(result, x)
    return result


@op("softplus.default", "relu(x) + log(1 + exp(-|x|))")
def softplus(m: Walk, n: Node, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    x = m.scale(x, beta)
    negative = m.choose("less", m.constant(0), x, m.scale(x, -1), x)  # at 0 the gradient is that of x
    log = m.pointwise("log", m.add_number(m.pointwise("exp", negative), 1.0))
    return m.scale(m.pointwise("add", m.activation("relu", x), log), 1 / beta)


@op("elu.default", "relu(x) + alpha (exp(min(x, 0)) - 1)")
def elu(m: Walk, n: Node, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    low = m.add_number(m.pointwise("exp", m.choose("less", m.constant(0), x, m.constant(0), m.scale(x, input_scale))), -1.0)
    return m.scale(m.pointwise("add", m.activation("relu", x), m.scale(low, alpha)), scale)


@op("glu.default", "one half times the sigmoid of the other half")
def glu(m: Walk, n: Node, x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return m.multiply(slice_dim(m, x, dim, 0, half), m.activation("sigmoid", slice_dim(m, x, dim, half, half)))


def leaky(m: Walk, n: Node, x: Tensor, slope: float = 0.01) -> Tensor:
    return m.choose("less", m.constant(0), x, x, m.scale(x, slope))


def hardsigmoid(m: Walk, x: Tensor) -> Tensor:
    return m.clamp(m.add_number(m.scale(x, 1 / 6), 0.5), 0.0, 1.0)


for name in ("exp", "log", "sqrt", "cos", "sin"):
    row(f"{name}.default", f"pc.{name}", lambda m, n, x, name=name: m.pointwise(name, x))
for name in ("silu", "relu", "tanh", "sigmoid"):
    row(f"{name}.default", "pc.activation", lambda m, n, x, name=name: m.activation(name, x))
row("gelu.default", "pc.activation", lambda m, n, x, approximate="none": m.activation("gelu_tanh" if approximate == "tanh" else "gelu", x))
row("neg.default", "pc.scale", lambda m, n, x: m.scale(x, -1))
row("rsub.Scalar rsub.Tensor", "pc.sub", lambda m, n, a, b, alpha=1: add(m, n, m.scale(m.lift(a), -alpha), b))
row("reciprocal.default", "pc.recip", lambda m, n, x: m.recip(x))
row("rsqrt.default", "pc.sqrt and pc.recip", lambda m, n, x: power(m, n, x, -0.5))
row("square.default", "pc.einsum", lambda m, n, x: m.multiply(x, x))
row("abs.default", "relu(x) + relu(-x)", lambda m, n, x: absolute(m, x))
row("clamp.default hardtanh.default clamp_min.default", "pc.select", lambda m, n, x, low=None, high=None: m.clamp(x, low, high))
row("clamp_max.default", "pc.select", lambda m, n, x, high: m.clamp(x, None, high))
row("relu6.default", "pc.select", lambda m, n, x: m.clamp(m.activation("relu", x), None, 6.0))
row("log_sigmoid.default", "-softplus(-x)", lambda m, n, x: m.scale(softplus(m, n, m.scale(x, -1)), -1))
row("leaky_relu.default", "pc.select", leaky)
row("hardsigmoid.default", "clamp(x / 6 + 1 / 2)", lambda m, n, x: hardsigmoid(m, x))
row("hardswish.default", "x hardsigmoid(x)", lambda m, n, x: m.multiply(x, hardsigmoid(m, x)))
row("mish.default", "x tanh(softplus(x))", lambda m, n, x: m.multiply(x, m.activation("tanh", softplus(m, n, x))))
row("log1p.default", "log(1 + x)", lambda m, n, x: m.pointwise("log", m.add_number(x, 1.0)))
row("expm1.default", "exp(x) - 1", lambda m, n, x: m.add_number(m.pointwise("exp", x), -1.0))


@op("max.other maximum.default min.other minimum.default", "pc.select; equal values share the gradient")
def extreme(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    a, b = m.lift(a, n.args[0]), m.lift(b, n.args[1])
    first = m.choose("less", *((b, a) if "max" in str(n.target) else (a, b)), a, b)
    return m.choose("equal", a, b, m.scale(m.pointwise("add", a, b), 0.5), first)


@op("where.self where.ScalarOther where.ScalarSelf where.Scalar", "pc.select")
def where(m: Walk, n: Node, condition: Any, a: Any, b: Any) -> Tensor:
    condition = condition.float() if isinstance(condition, torch.Tensor) else condition
    return m.choose("less", m.constant(0), m.lift(condition), m.lift(a, n.args[1]), m.lift(b, n.args[2]))


@op("masked_fill.Scalar masked_fill.Tensor", "pc.select")
def masked_fill(m: Walk, n: Node, x: Any, mask: Any, value: Any) -> Tensor:
    mask = mask.float() if isinstance(mask, torch.Tensor) else mask
    return m.choose("less", m.constant(0), m.lift(mask), m.lift(value), m.lift(x, n.args[0]))


@op(" ".join(f"{name}.{kind}" for name in ("lt", "le", "gt", "ge", "eq", "ne") for kind in ("Tensor", "Scalar")), "pc.select of 1 and 0")
def compare(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    name = str(n.target).split(".")[1]
    kind = "equal" if name in ("eq", "ne") else "less" if name[1] == "t" else "less_equal"
    x, y = (m.floats(m.lift(value, at)) for value, at in zip((a, b), n.args))
    found = m.compare(kind, *((y, x) if name[0] == "g" else (x, y)))
    return m.opposite(found) if name == "ne" else found


@op("one_hot.default", "pc.select of 1 and 0")
def one_hot(m: Walk, n: Node, x: Tensor, classes: int = -1) -> Tensor:
    return m.compare("equal", m.floats(Tensor(x.value, [*x.dims, []])), m.count(shape_of(n)[-1]))


def conditions(m: Walk, n: Node, *xs: Any) -> list[Tensor]:
    if any(not isinstance(at, Node) or at.meta["val"].dtype != torch.bool for at in n.args):
        raise Refused("a logical op on numbers", "Compare them first.")
    return [m.lift(x.float() if isinstance(x, torch.Tensor) else x) for x in xs]


CONDITIONS = "products and sums of 1 and 0"
NOT, AND = "logical_not.default bitwise_not.default", "logical_and.default bitwise_and.Tensor __and__.Tensor"
OR = "logical_or.default bitwise_or.Tensor __or__.Tensor"
row(NOT, CONDITIONS, lambda m, n, *xs: m.opposite(*conditions(m, n, *xs)))
row(AND, CONDITIONS, lambda m, n, *xs: m.multiply(*conditions(m, n, *xs)))
row(OR, CONDITIONS, lambda m, n, *xs: m.compare("less", m.constant(0), m.pointwise("add", *conditions(m, n, *xs))))


@op("tril.default triu.default", "a product with a table of ones")
def triangle(m: Walk, n: Node, x: Tensor, diagonal: int = 0) -> Tensor:
    ones = torch.ones(shape_of(n)[-2:])
    return m.multiply(x, m.lift(ones.tril(diagonal) if "tril" in str(n.target) else ones.triu(diagonal)))


# --- sums and products ---


def dims_of(x: Tensor, dims: Any) -> list[int]:
    chosen = range(len(x.dims)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [dim % len(x.dims) for dim in chosen]


def linear(m: Walk, n: Node, x: Any, weight: Any, bias: Any = None) -> Tensor:
    return m.linear(m.lift(x), m.lift(weight), None if bias is None else m.lift(bias))


def addmm(m: Walk, n: Node, c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Tensor:
    return m.pointwise("add", m.scale(m.matmul(m.lift(a), m.lift(b)), alpha), m.scale(m.lift(c), beta))


ATTENTION = "pc.einsum; softmax(q k^T + mask) v becomes pc.attention if the mask is causal, a window or none"
row("mean.dim mean.default", "pc.einsum and pc.scale", lambda m, n, x, dims=None, keep=False, **_: m.mean(x, dims_of(x, dims), keep))
row("sum.dim_IntList sum.default", "pc.einsum", lambda m, n, x, dims=None, keep=False, **_: m.sum(x, dims_of(x, dims), keep))
row("linear.default", "pc.einsum and pc.add", linear)
row("matmul.default bmm.default mm.default", ATTENTION, lambda m, n, a, b: m.matmul(m.lift(a, n.args[0]), m.lift(b, n.args[1])))
row("addmm.default baddbmm.default", "pc.einsum and pc.add", addmm)


@op("var.correction var.dim", "the mean of the squared differences from the mean")
def var(m: Walk, n: Node, x: Tensor, dims: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Tensor:
    dims = dims_of(x, dims)
    centred = m.pointwise("sub", x, m.mean(x, dims, True))
    count = math.prod(x.shape[dim] for dim in dims)
    return m.scale(m.mean(m.multiply(centred, centred), dims, keepdim), count / (count - (1 if correction is None else int(correction))))


@op("linalg_vector_norm.default", "the root of the sum of squares")
def vector_norm(m: Walk, n: Node, x: Tensor, order: float = 2, dims: Any = None, keep: bool = False, **_: Any) -> Tensor:
    if order != 2:
        raise Refused(f"a norm of order {order}", "Use the Euclidean norm.")
    return m.pointwise("sqrt", m.sum(m.multiply(x, x), dims_of(x, dims), keep))


@op("einsum.default", "pc.einsum")
def einsum(m: Walk, n: Node, spec: str, operands: Sequence[Any], path: Any = None) -> Tensor:
    if "." in spec or "->" not in spec or any(len(set(term)) < len(term) for term in spec.split("->")[0].replace(" ", "").split(",")):
        raise Refused(f"the einsum '{spec}'", "Name all dims, also those of the result, and no dim twice in one operand.")
    terms, result = spec.replace(" ", "").split("->")
    rows = list(zip(terms.split(","), [m.lift(x) for x in operands]))
    by_name: dict[str, list] = {}
    for term, x in rows:
        for name, dim in zip(term, x.dims):
            if leaves(dim) and by_name.get(name):
                unify(by_name[name], dim)
            by_name[name] = by_name.get(name) or dim
    letters = {name: letters_for(leaves(dim)) for name, dim in by_name.items()}
    maps: list[tuple[Tensor, Letters]] = []
    for term, x in rows:
        maps.append((x, {axis: letter for name, dim in zip(term, x.dims) for axis, letter in zip(leaves(dim), letters[name])}))
    held = {of[axis] for x, of in maps for axis in x.held()}
    for name, group in letters.items():
        if name not in result and not set(group) <= held:
            raise Refused(f"a sum over '{name}' of '{spec}', along which all operands are broadcast", "Multiply by its size instead.")
    return m.einsum(maps, [letters[name] for name in result])


@op("cumsum.default", "pc.recurrence")
def cumsum(m: Walk, n: Node, x: Tensor, dim: int, **_: Any) -> Tensor:
    return recurrence(m, m.constant(1.0), m.floats(x), dim % len(x.dims))


row("pc_torch.recurrence.default", "pc.recurrence", lambda m, n, a, b, dim: recurrence(m, m.lift(a), m.lift(b), dim % len(shape_of(n))))


@op("cumprod.default", "pc.recurrence from the first entry")
def cumprod(m: Walk, n: Node, x: Tensor, dim: int, **_: Any) -> Tensor:
    dim %= len(x.dims)
    return recurrence(m, x, window(m, spread(m, slice_dim(m, x, dim, 0, 1), dim), dim, 0, x.shape[dim], x.dim(dim)[0].dim), dim)
