"""Recognises what an author wrote out, by running parts of the graph on numbers: rotary embeddings, masks and the scale of attention."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn.functional import gelu, silu

from pc_program.rows import Mask, Rotation


def names(text: str) -> set[str]:
    return {f"aten.{name}" for name in text.split()}


RELABEL = names(
    "view.default reshape.default transpose.int permute.default contiguous.default clone.default unsqueeze.default "
    "squeeze.dim expand.default flatten.using_ints to.dtype type_as.default alias.default _unsafe_view.default "
    "unflatten.int _to_copy.default view_as.default"
)
TAKE = names("slice.Tensor select.int split.Tensor split_with_sizes.default chunk.default unbind.int")
JOIN = names("cat.default stack.default view_as_complex.default")
ROTATE = JOIN | names("mul.Tensor add.Tensor sub.Tensor neg.default view_as_real.default")
PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
MINUS_INFINITY = -1e4  # a score from here on down is one of a key that is not seen


def name_of(node: Node) -> str:
    return str(node.target) if node.op == "call_function" else ""


def shape_of(node: Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


class Constants:
    """Returns the nodes that depend on no input and no parameter, and their values."""

    def __init__(self, graph: Iterable[Node], leaves: dict[str, torch.Tensor]):
        self.leaves, self.nodes = leaves, set[Node]()
        self._values: dict[Node, Any] = {}
        for node in graph:
            if (
                node.op == "placeholder"
                and node.name in leaves
                or (node.op == "call_function" and "dropout" not in name_of(node) and all(i in self.nodes for i in node.all_input_nodes))
            ):
                self.nodes.add(node)

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    def value(self, node: Node) -> Any:
        if node not in self._values:
            with torch.no_grad():
                self._values[node] = self.leaves[node.name] if node.op == "placeholder" else call(node, self.value)
        return self._values[node]

    def run(self, output: Node, given: dict[Node, torch.Tensor]) -> torch.Tensor:
        """Computes the value of a node, with numbers for the nodes in `given`."""
        values: dict[Node, Any] = dict(given)

        def value(node: Node) -> Any:
            if node not in values:
                values[node] = self.value(node) if node in self else call(node, value)
            return values[node]

        with torch.no_grad():
            return value(output)


def call(node: Node, value: Callable[[Node], Any]) -> Any:
    assert callable(node.target)
    return node.target(*map_arg(node.args, value), **map_arg(node.kwargs, value))


# --- rotary embeddings ---


def rotation_of(constants: Constants, q: Node) -> tuple[Node, Node, Rotation] | None:
    """Returns (y, x, rotation) if q is a view of y, and y is x after rotation. The ops between them are linear, with constants for cos and sin."""
    region, anchors = linear_region(constants, q)
    if len(anchors) != 1 or not any(name_of(node) in JOIN for node in region):
        return None
    nodes = [*anchors, *region]
    inside, place = set(nodes), {node: i for i, node in enumerate(nodes)}
    rotating = [place[node] for node in region if name_of(node) in ROTATE]
    # These nodes are on every path from the anchor to q.
    through = [x for x in nodes if not reaches(q, anchors[0], x, inside)]
    before = [x for x in through if place[x] < min(rotating) and isinstance(x.meta["val"], torch.Tensor) and len(shape_of(x)) == 4]
    after = [y for y in through if place[y] >= max(rotating) and before and shape_of(y) == shape_of(before[-1])]
    if not after:
        return None
    x, y = before[-1], after[0]
    found = channels_rotated(lambda value: constants.run(y, {x: value}), shape_of(x), constants_of(constants, region))
    return (y, x, found) if found else None


def linear_region(constants: Constants, q: Node) -> tuple[list[Node], list[Node]]:
    """Returns the nodes before q that only view, divide, join or multiply with constants, in topological order, and the values that they read."""
    region: list[Node] = []
    anchors: list[Node] = []
    seen: set[Node] = set()
    waiting = [(q, False)]
    while waiting:
        node, done = waiting.pop()
        if done:
            region.append(node)
            continue
        if node in seen or node in constants:
            continue
        seen.add(node)
        known = node.target is operator.getitem or name_of(node) in RELABEL | TAKE | ROTATE
        scaled = name_of(node) != "aten.mul.Tensor" or any(isinstance(a, Node) and a in constants for a in node.args)
        if known and scaled:
            waiting.append((node, True))
            waiting += [(operand, False) for operand in node.all_input_nodes]
        else:
            anchors.append(node)
    return region, anchors


def reaches(start: Node, end: Node, without: Node, inside: set[Node]) -> bool:
    """Returns True if a path goes from start back to end without passing one node."""
    seen, waiting = {without}, [start]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        if node is end:
            return True
        seen.add(node)
        waiting += [operand for operand in node.all_input_nodes if operand in inside]
    return False


def constants_of(constants: Constants, region: Sequence[Node]) -> list[torch.Tensor]:
    """Returns the values of all constants that a region reads, and of the constants from which they are computed,
    because frequencies may be among these."""
    found, seen = [], set[Node]()
    waiting = [i for node in region for i in node.all_input_nodes if i in constants]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            value = constants.value(node)
            found += [value] if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else []
            waiting += node.all_input_nodes
    return found


def channels_rotated(f: Callable[[torch.Tensor], torch.Tensor], shape: Sequence[int], known: list[torch.Tensor]) -> Rotation | None:
    """Returns the rotation that f computes, of all channels or of some adjacent ones."""
    if shape[3] % 2 == 0 and (found := rotation(f, shape, known)):
        return found
    probe = torch.randn(*shape)
    moved = ((f(probe) - probe).abs().amax((0, 1, 2)) > 1e-6).nonzero().flatten()
    if not len(moved):
        return None
    first, count = int(moved[0]), int(moved[-1] - moved[0]) + 1

    def part(value: torch.Tensor) -> torch.Tensor:
        full = probe.clone()
        full[..., first : first + count] = value
        return f(full)[..., first : first + count]

    found = rotation(part, [*shape[:3], count], known) if count % 2 == 0 else None
    if found:
        found.first = first
    return found


def rotation(f: Callable[[torch.Tensor], torch.Tensor], shape: Sequence[int], known: list[torch.Tensor]) -> Rotation | None:
    probe, half = torch.randn(*shape), shape[3] // 2
    for interleaved in (False, True):
        u, w = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
        basis = torch.zeros(*shape)
        basis[..., u] = 1
        cos, sin = f(basis)[..., u], f(basis)[..., w]
        want = torch.empty(*shape)
        want[..., u] = probe[..., u] * cos - probe[..., w] * sin
        want[..., w] = probe[..., w] * cos + probe[..., u] * sin
        if not torch.allclose(f(probe), want, atol=1e-5):
            continue
        for sequence in (1, 2):
            c, s = cos.movedim(sequence, 0), sin.movedim(sequence, 0)
            same = all(torch.allclose(t, t[:, :1, :1].expand_as(t)) for t in (c, s))
            if same and shape[sequence] > 1 and (found := angles(c[:, 0, 0].double(), s[:, 0, 0].double(), known)):
                scale, frequencies, inverse = found
                return Rotation(sequence, frequencies, scale, 0, interleaved, inverse)
    return None


def angles(cos: torch.Tensor, sin: torch.Tensor, known: list[torch.Tensor]) -> tuple[float, tuple[float, ...], bool] | None:
    """Returns (scale, frequencies, whether angles fall) if row p of cos and sin is that of p times the frequencies."""
    scale = float(torch.hypot(cos, sin).mean())
    positions = torch.arange(len(cos))
    step = torch.atan2(sin, cos).diff(dim=0)
    turn = torch.remainder(step + torch.pi, 2 * torch.pi) - torch.pi
    fitted = turn.sum(0) / (len(cos) - 1)
    inverse = bool((fitted < 0).any())
    sign = -1 if inverse else 1
    fitted = (sign * fitted).float()

    def error(frequencies: torch.Tensor) -> torch.Tensor:
        angle = (positions.float()[:, None] * frequencies).double()  # as the table is computed, in f32
        return torch.maximum((scale * angle.cos() - cos).abs().amax(0), (sign * scale * angle.sin() - sin).abs().amax(0))

    candidates = [t.flatten() for t in known if t.numel() == len(fitted) and torch.allclose(t.flatten(), fitted, rtol=1e-3, atol=1e-6)]
    near = [fitted]  # without a constant that has them, the neighbours in f32 that make the table best
    for direction in (-torch.inf, torch.inf):
        at = fitted
        for _ in range(8):
            at = torch.nextafter(at, torch.full_like(at, direction))
            near.append(at)
    best = torch.stack(near)[torch.stack([error(n) for n in near]).argmin(0), torch.arange(len(fitted))]
    for frequencies in [*candidates, best]:
        if error(frequencies).max() < 1e-4:
            return scale, tuple(frequencies.tolist()), inverse
    return None


# --- masks ---


def mask_of(mask: torch.Tensor) -> Mask | None:
    """Returns the meaning of a constant mask (true or 0: seen; false or very negative: not seen), if it is equal for all of its rows and heads."""
    seen = mask if mask.dtype == torch.bool else mask > MINUS_INFINITY
    if mask.dtype != torch.bool and bool((mask[seen] != 0).any()):
        return None
    seen = seen.reshape(-1, *seen.shape[-2:])
    if not bool((seen == seen[:1]).all()):
        return None
    first = seen[0]
    if bool(first.all()):
        return Mask()
    if first.shape[0] != first.shape[1]:
        return None
    causal = torch.ones_like(first).tril()
    width = int(first[-1].sum())
    if torch.equal(first, causal):
        return Mask(causal=True)
    return Mask(causal=True, window=width) if torch.equal(first, causal & ~causal.tril(-width)) else None


def scores_of(constants: Constants, softmax: Node) -> tuple[Node, float, Mask] | None:
    """Returns (q k^T, scale, mask) if the input of a softmax is a product of two values, scaled and masked by constants."""
    end = softmax.args[0]
    assert isinstance(end, Node)
    node = end
    while name_of(node) not in PRODUCTS:
        inputs = [i for i in node.all_input_nodes if i not in constants]
        if node.op != "call_function" or len(inputs) != 1:
            return None
        node = inputs[0]
    probe = torch.randn(shape_of(node))
    if shape_of(end)[-2:] != shape_of(node)[-2:] or end.meta["val"].numel() != node.meta["val"].numel():
        return None
    zero, one, two = (constants.run(end, {node: value}).reshape(probe.shape) for value in (torch.zeros_like(probe), probe, 2 * probe))
    seen = zero > MINUS_INFINITY
    mask = mask_of(torch.where(seen, zero, torch.full_like(zero, -torch.inf)))
    if mask is None:
        return None
    scale = float((one / probe)[seen].median())
    linear = all(torch.allclose((value - k * scale * probe)[seen], torch.zeros(()), atol=1e-5) for value, k in ((one, 1), (two, 2)))
    return (node, scale, mask) if linear else None


# --- activations ---

POINTWISE = {"mul", "add", "sub", "div", "neg", "pow", "tanh", "erf", "sigmoid", "exp", "square", "reciprocal", "clone", "to"}
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"gelu_tanh": partial(gelu, approximate="tanh"), "gelu": gelu, "silu": silu}


def activation_of(constants: Constants, node: Node) -> tuple[Node, str] | None:
    """Returns (x, kind) if a product of functions of one value x is an activation of the dialect. Written out, it would be many ops."""
    if name_of(node) != "aten.mul.Tensor":
        return None
    shape, inner, ends, waiting = shape_of(node), set[Node](), set[Node](), [node]
    while waiting:
        at = waiting.pop()
        if at in constants or at in inner:
            continue
        known = at.op == "call_function" and name_of(at).removeprefix("aten.").split(".")[0] in POINTWISE
        if known and shape_of(at) == shape and len(inner) < 24:
            inner.add(at)
            waiting += at.all_input_nodes
        else:
            ends.add(at)
    if not any(name_of(at) in ("aten.tanh.default", "aten.erf.default", "aten.sigmoid.default", "aten.exp.default") for at in inner):
        return None
    probe = torch.linspace(-6, 6, node.meta["val"].numel()).reshape(shape)
    for x in sorted((inner | ends) - {node}, key=list(node.graph.nodes).index, reverse=True):
        if shape_of(x) == shape and not any(reaches(node, end, x, inner | ends) for end in ends - {x}):
            got = constants.run(node, {x: probe})
            for kind, f in ACTIVATIONS.items():
                if torch.allclose(got, f(probe), atol=2e-6, rtol=1e-5):
                    return x, kind
    return None
