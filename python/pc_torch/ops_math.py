"""Rows of the op table: pointwise ops, sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from .axes import leaves, unify
from .builder import letters_for
from .errors import Refused
from .recognise import shape_of
from .slices import absolute, slice_dim
from .table import op, row
from .values import Letters, Tensor
from .walk import Walk

Number = (int, float)
COMPARE = "The dialect has no comparison yet: compute the mask from constants."


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


@op("mul.Tensor mul.Scalar", "pc.einsum; with a number pc.scale")
def mul(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    if isinstance(b, Number):
        return m.scale(m.lift(a, n.args[0]), b)
    return m.scale(m.lift(b, n.args[1]), a) if isinstance(a, Number) else m.multiply(m.lift(a, n.args[0]), m.lift(b, n.args[1]))


@op("div.Tensor div.Scalar", "pc.recip and pc.einsum; by a number pc.scale")
def div(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    if isinstance(b, torch.Tensor) and b.numel() == 1:
        b = float(b)
    if isinstance(b, Number):
        return m.scale(m.lift(a, n.args[0]), 1.0 / b)
    inverse = m.recip(m.lift(b, n.args[1]))
    return m.scale(inverse, a) if isinstance(a, Number) else m.multiply(m.lift(a, n.args[0]), inverse)


@op("pow.Tensor_Scalar", "products with itself for powers up to 8; pc.sqrt and pc.recip")
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
    small = m.add_number(m.pointwise("exp", m.scale(absolute(m, x), -1)), 1.0)
    return m.scale(m.pointwise("add", m.activation("relu", x), m.pointwise("log", small)), 1 / beta)


@op("elu.default", "relu(x) + alpha (exp(min(x, 0)) - 1)")
def elu(m: Walk, n: Node, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    low = m.add_number(m.pointwise("exp", m.clamp(m.scale(x, input_scale), None, 0.0)), -1.0)
    return m.scale(m.pointwise("add", m.activation("relu", x), m.scale(low, alpha)), scale)


@op("glu.default", "a slice times the sigmoid of the other one")
def glu(m: Walk, n: Node, x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return m.multiply(slice_dim(m, x, dim, 0, half), m.activation("sigmoid", slice_dim(m, x, dim, half, half)))


def leaky(m: Walk, n: Node, x: Tensor, slope: float = 0.01) -> Tensor:
    return m.pointwise("sub", m.activation("relu", x), m.scale(m.activation("relu", m.scale(x, -1)), slope))


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
row("clamp.default hardtanh.default clamp_min.default", "pc.clamp", lambda m, n, x, low=None, high=None: m.clamp(x, low, high))
row("clamp_max.default", "pc.clamp", lambda m, n, x, high: m.clamp(x, None, high))
row("relu6.default", "pc.clamp", lambda m, n, x: m.clamp(x, 0.0, 6.0))
row("log_sigmoid.default", "-softplus(-x)", lambda m, n, x: m.scale(softplus(m, n, m.scale(x, -1)), -1))
row("leaky_relu.default", "relu(x) - slope relu(-x)", leaky)
row("hardsigmoid.default", "clamp(x / 6 + 1 / 2)", lambda m, n, x: hardsigmoid(m, x))
row("hardswish.default", "x hardsigmoid(x)", lambda m, n, x: m.multiply(x, hardsigmoid(m, x)))
row("mish.default", "x tanh(softplus(x))", lambda m, n, x: m.multiply(x, m.activation("tanh", softplus(m, n, x))))
row("log1p.default", "log(1 + x)", lambda m, n, x: m.pointwise("log", m.add_number(x, 1.0)))
row("expm1.default", "exp(x) - 1", lambda m, n, x: m.add_number(m.pointwise("exp", x), -1.0))


@op("max.other maximum.default min.other minimum.default", "b + relu(a - b), b - relu(b - a); with a number pc.clamp")
def extreme(m: Walk, n: Node, a: Any, b: Any) -> Tensor:
    upper = "max" in str(n.target)
    a, b = (b, a) if isinstance(a, torch.Tensor) else (a, b)
    if isinstance(b, torch.Tensor) and bool((b == b.reshape(-1)[0]).all()):
        number = float(b.reshape(-1)[0])
        return m.clamp(a, number, None) if upper else m.clamp(a, None, number)
    d = m.activation("relu", m.pointwise("sub", *((a, m.lift(b)) if upper else (m.lift(b), a))))
    return m.pointwise("add" if upper else "sub", m.lift(b), d)


@op("where.self where.ScalarOther where.ScalarSelf where.Scalar", "with a constant condition: products with it, and their sum")
def where(m: Walk, n: Node, condition: Any, a: Any, b: Any) -> Tensor:
    if not isinstance(condition, torch.Tensor):
        raise Refused("a choice by values that are computed", COMPARE)
    parts = [m.multiply(m.lift(x, at), m.lift(c)) for x, at, c in ((a, n.args[1], condition.float()), (b, n.args[2], 1 - condition.float()))]
    return m.pointwise("add", *parts)


@op("masked_fill.Scalar masked_fill.Tensor", "with a constant mask: a product with it, and a sum")
def masked_fill(m: Walk, n: Node, x: Any, mask: Any, value: Any) -> Tensor:
    if not isinstance(mask, torch.Tensor):
        raise Refused("a mask that is computed", COMPARE)
    kept = m.multiply(m.lift(x, n.args[0]), m.lift(1 - mask.float()))
    return m.pointwise("add", kept, m.lift(mask.float() * max(float(value), -1e30)))


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


ATTENTION = "pc.einsum; softmax(q k^T + mask) v is pc.attention where the mask is causal, a window or none"
row("mean.dim mean.default", "pc.einsum and pc.scale", lambda m, n, x, dims=None, keep=False, **_: m.mean(x, dims_of(x, dims), keep))
row("sum.dim_IntList sum.default", "pc.einsum", lambda m, n, x, dims=None, keep=False, **_: m.sum(x, dims_of(x, dims), keep))
row("linear.default", "pc.einsum and pc.add", linear)
row("matmul.default bmm.default mm.default", ATTENTION, lambda m, n, a, b: m.matmul(m.lift(a, n.args[0]), m.lift(b, n.args[1])))
row("addmm.default baddbmm.default", "pc.einsum and pc.add", addmm)


@op("var.correction var.dim", "the mean of squares of what differs from the mean")
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
        raise Refused(f"the einsum '{spec}'", "Name all dims and those of the result, and none twice in one operand.")
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
            raise Refused(f"a sum over '{name}' of '{spec}', along which all operands are broadcast", "Multiply with its size instead.")
    return m.einsum(maps, [letters[name] for name in result])


@op("cumsum.default", "a product with a triangle of ones: quadratic in the size of the dim")
def cumsum(m: Walk, n: Node, x: Tensor, dim: int, **_: Any) -> Tensor:
    dim %= len(x.dims)
    axis = m.single(x.dim(dim), "a cumulative sum along")
    rows, columns = m.count(axis.size), m.count(axis.size)
    first, last = Tensor(rows.value, [rows.dims[0], []]), Tensor(columns.value, [[], columns.dims[0]])
    ones = m.clamp(m.add_number(m.pointwise("sub", last, first), 1.0), 0.0, 1.0)
    unify(ones.dims[0], x.dims[dim])
    letters: Letters = dict(zip(x.axes, letters_for(x.axes)))
    result = [[letters[a] for a in x.dim(i)] for i in range(len(x.dims))]
    result[dim] = [object()]
    return m.einsum([(x, letters), (ones, {ones.dim(0)[0]: letters[axis], ones.dim(1)[0]: result[dim][0]})], result)


class Choices:
    """Indices of topk: the dim of k choices is read as that of all n, of which a mask says which are chosen."""

    def __init__(self, mask: Tensor):
        self.mask = mask


@op("topk.default", "pc.top_k, a mask; the choices are compared with numbers, or summed")
def topk(m: Walk, n: Node, x: Tensor, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> list[Any]:
    if dim not in (-1, len(x.dims) - 1) or not largest:
        raise Refused("topk of the smallest, or along another dim than the last", "Transpose, or negate, first.")
    order, value = m.ends_with(x, dim, "topk along")
    mask = m.renamed(x, order, m.make("top_k", [value], [axis.like() for axis in order], k=k))
    return [m.multiply(x, mask), Choices(mask)]


@op("eq.Scalar", "choices of topk with a number: the mask of that choice")
def equal(m: Walk, n: Node, x: Any, i: int) -> Tensor:
    if not isinstance(x, Choices):
        raise Refused("a comparison of values that are computed", COMPARE)
    count = m.count(m.single(x.mask.dim(-1), "a comparison of").size, -i)
    return m.multiply(x.mask, m.add_number(m.scale(m.clamp(absolute(m, count), None, 1.0), -1), 1.0))
