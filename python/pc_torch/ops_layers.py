"""The rules of ATen ops that are the parts of transformers, and of convolutions, which become products by taps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from pc_program.axes import leaves, new_axis, regroup
from pc_program.errors import Refused
from pc_program.rows import Mask, constant_rows, embedding, log_sum_exp, mean_of_targets, norm, softmax
from pc_program.slices import absolute, window
from pc_program.values import Tensor

from .ops_math import softplus, where
from .ops_views import select
from .recognise import mask_of, shape_of
from .table import op
from .walk import Walk


@op("embedding.default", "pc.embedding, with pc.iota for constant rows")
def embed(m: Walk, n: Node, table: Any, ids: Any, padding: int = -1, *_: Any) -> Tensor:
    table = m.lift(table, n.args[0])
    rows = m.single(table.dim(0), "a table by rows of")
    if isinstance(ids, torch.Tensor):
        return constant_rows(m, table, ids.flatten().tolist(), ids.shape, padding if padding >= 0 else -1)
    if ids.value.attrs.get("kind") == "data":
        ids.value.attrs["below"] = min(rows.size, ids.value.attrs["below"] or rows.size)
    elif ids.value.op == "input":
        rows.dim.roles.add("vocab")
    else:
        raise Refused("rows of a table at computed positions", "Only inputs and constants may choose rows.")
    return embedding(m, table, ids, padding if padding >= 0 else -1)


@op("layer_norm.default", "pc.layer_norm")
def layer_norm(m: Walk, n: Node, x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Tensor:
    return several(m, "layer_norm", x, shape, weight, bias, eps)


@op("rms_norm.default", "pc.rms_norm; also if it is written out")
def rms_norm(m: Walk, n: Node, x: Tensor, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Tensor:
    return several(m, "rms_norm", x, shape, weight, None, torch.finfo(torch.float32).eps if eps is None else eps)


def several(m: Walk, op_name: str, x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Tensor:
    if len(shape) != 1:
        raise Refused("a norm over several dims", "Flatten them first.")
    given = [None if t is None else m.lift(t) for t in (weight, bias)]
    return norm(m, op_name, x, given[0], given[1], eps)


@op("group_norm.default", "only for [rows, channels]: sums and products")
def group_norm(m: Walk, n: Node, x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> Tensor:
    if len(x.dims) != 2:
        raise Refused("a group norm of more than two dims", "Flatten the dims before the channels.")
    cut = regroup(x.dims[1], [groups, x.shape[1] // groups])
    y = norm(m, "layer_norm", Tensor(x.value, [x.dims[0], *cut]), None, None, eps)
    y = Tensor(y.value, [y.dims[0], [*y.dims[1], *y.dims[2]]])
    y = y if weight is None else m.multiply(y, m.lift(weight))
    return y if bias is None else m.pointwise("add", y, m.lift(bias))


@op("softmax.int _softmax.default", "pc.softmax")
def soft(m: Walk, n: Node, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return softmax(m, x, dim % len(x.dims))


@op("log_softmax.int _log_softmax.default", "x - logsumexp(x)")
def log_softmax(m: Walk, n: Node, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    dim %= len(x.dims)
    return m.pointwise("sub", x, log_sum_exp(m, x, dim, True))


@op("logsumexp.default", "pc.logsumexp")
def logsumexp(m: Walk, n: Node, x: Tensor, dims: Sequence[int], keep: bool = False) -> Tensor:
    if len(dims) != 1:
        raise Refused("logsumexp over several dims", "Flatten them first.")
    return log_sum_exp(m, x, dims[0] % len(x.dims), keep)


@op("scaled_dot_product_attention.default", "pc.attention if the mask is causal, a window or none; otherwise products and pc.softmax")
def attention(
    m: Walk,
    n: Node,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any = None,
    drop: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    factor = float(scale) if scale is not None else q.shape[-1] ** -0.5
    if enable_gqa and k.shape[1] != q.shape[1]:
        k, v = (t.with_dim(1, [*t.dims[1], new_axis(q.shape[1] // t.shape[1])]) for t in (k, v))
    found: Mask | None = Mask(causal)
    if mask is not None:
        found = mask_of(mask) if isinstance(mask, torch.Tensor) else None
    if found is not None and len(q.dims) == 4 and q.shape[3] == v.shape[3]:
        return m.attend(q, k, v, found, factor, drop)
    if causal or drop:
        raise Refused("attention with dropout, or over other dims than [batch, heads, sequence, channels]", "Reshape to four dims.")
    m.note("attention with a mask that is neither causal nor a window becomes products and a softmax, which are slower than one op")
    scores = m.scale(m.matmul(q, Tensor(k.value, [*k.dims[:-2], k.dims[-1], k.dims[-2]])), factor)
    if mask is not None and n.args[3].meta["val"].dtype == torch.bool:  # type: ignore[union-attr]
        scores = where(m, n, mask, scores, float("-inf"))
    elif mask is not None:
        scores = m.pointwise("add", scores, m.lift(mask))
    return m.matmul(softmax(m, scores, len(scores.dims) - 1), v)


@op("dropout.default native_dropout.default", "pc.dropout")
def dropout(m: Walk, n: Node, x: Tensor, p: float, train: bool | None) -> Any:
    rate, result = m.rate(p) if train else 0.0, x
    if rate:
        order = x.held()
        value = m.make("dropout", [m.in_order(x.value, order)], [axis.like() for axis in order], drop=rate, random=m.random_key())
        result = m.renamed(x, order, value)
    return [result] if "native" in str(n.target) else result


@op("cross_entropy_loss.default", "pc.cross_entropy")
def cross_entropy(
    m: Walk, n: Node, logits: Tensor, targets: Any, weight: Any = None, reduction: int = 1, ignored: int = -100, smoothing: float = 0.0
) -> Tensor:
    if weight is not None or smoothing or not isinstance(targets, Tensor):
        raise Refused("cross-entropy with class weights, label smoothing or constant targets", "Write this loss with log_softmax.")
    classes = 1 if len(logits.dims) > 1 else 0
    losses = m.likelihood(Tensor(logits.value, [*logits.dims[:classes], *logits.dims[classes + 1 :], logits.dims[classes]]), targets)
    counted, rows = "targets" in m.kinds.values(), range(len(losses.dims))
    if ignored != -100 and counted:
        m.note(f"targets that do not count are -100 in the data, and {ignored} in the model")
    if reduction != 1:
        return m.sum(losses, rows) if reduction else losses
    return mean_of_targets(m, losses) if counted else m.mean(losses, rows)


@op("gather.default", "pc.cross_entropy, if it reads the targets' entries of log_softmax")
def gather(m: Walk, n: Node, *_: Any) -> Tensor:
    raise Refused("entries at computed positions", "It is supported only if it reads the targets' entries of a log_softmax along the last dim.")


@op("mse_loss.default l1_loss.default", "the mean of squares, or of relu(d) + relu(-d)")
def regression(m: Walk, n: Node, a: Any, b: Any, reduction: int = 1) -> Tensor:
    d = m.pointwise("sub", m.lift(a), m.lift(b))
    d = m.multiply(d, d) if "mse" in str(n.target) else absolute(m, d)
    every = range(len(d.dims))
    return d if reduction == 0 else m.mean(d, every) if reduction == 1 else m.sum(d, every)


@op("binary_cross_entropy_with_logits.default", "softplus(x) - x target")
def binary(m: Walk, n: Node, x: Tensor, target: Any, weight: Any = None, positive: Any = None, reduction: int = 1) -> Tensor:
    if weight is not None or positive is not None:
        raise Refused("binary cross-entropy with weights", "Multiply the losses yourself, with reduction='none'.")
    d = m.pointwise("sub", softplus(m, n, x), m.multiply(x, m.lift(target)))
    every = range(len(d.dims))
    return d if reduction == 0 else m.mean(d, every) if reduction == 1 else m.sum(d, every)


# --- convolutions ---


@op("conv2d.default", "pc.einsum, for kernels as large as the stride")
def conv2d(
    m: Walk,
    n: Node,
    x: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    w = m.lift(weight)
    if list(w.shape[2:]) != list(stride) or any(padding) or groups != 1:
        raise Refused("a convolution of patches that overlap, or are padded", "Only kernels as large as the stride have a rule.")
    _, _, height, width = x.shape
    rows, columns = stride
    g = regroup([axis for dim in x.dims for axis in dim], [*x.shape[:2], height // rows, rows, width // columns, columns])
    patches = Tensor(x.value, [g[0], g[2], g[4], g[1] + g[3] + g[5]])
    y = m.linear(patches, Tensor(w.value, [w.dims[0], [axis for dim in w.dims[1:] for axis in dim]]), None if bias is None else m.lift(bias))
    return Tensor(y.value, [y.dims[0], y.dims[3], y.dims[1], y.dims[2]])


@op("conv1d.default conv1d.padding", "one product per tap, with shifted columns")
def conv1d(
    m: Walk,
    n: Node,
    x: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Any = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    w = m.lift(weight)
    step, length, by = list(stride)[0], shape_of(n)[2], list(dilation)[0]
    before = (0 if padding == "valid" else (w.shape[2] - 1) * by // 2) if isinstance(padding, str) else list(padding)[0]
    if groups not in (1, x.shape[1]) or (groups > 1 and w.shape[0] != groups):
        raise Refused("a convolution in groups of several channels", "Use one group, or as many as channels.")
    y: Tensor | None = None
    for tap in range(w.shape[2]):  # y[j] += w[tap] x[step j + tap by - before]
        taken, offset = x, tap * by - before
        if step > 1:
            apart = m.view(n, x, [*x.shape[:2], x.shape[2] // step, step])
            taken, offset = select(m, n, apart, 3, offset % step), offset // step
        same = taken.dim(2)[0].dim if length == taken.shape[2] and len(taken.dim(2)) == 1 else None
        taken = window(m, taken, 2, offset, length, same)
        own = select(m, n, w, 2, tap)
        if groups == 1:
            part = m.linear(Tensor(taken.value, [taken.dims[0], taken.dims[2], taken.dims[1]]), own)
            part = Tensor(part.value, [part.dims[0], part.dims[2], part.dims[1]])
        else:
            part = m.multiply(taken, Tensor(own.value, [own.dims[0], []]))
        y = part if y is None else m.pointwise("add", y, part)
    assert y is not None
    if bias is None:
        return y
    offsets = m.lift(bias)
    return m.pointwise("add", y, Tensor(offsets.value, [leaves(offsets.dims[0]), []]))
