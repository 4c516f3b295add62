"""Loops over the entries of a dim, which torch.export unrolls, become ops on all entries and recurrences.

    for t in range(n):                       a = gates.movedim(1, 0); b = values.movedim(1, 0)
        h = gates[:, t] * h + values[:, t]   ->   h = recurrence(a, b, 0)
        out.append(h * keys[:, t])           out = h * keys.movedim(1, 0)

A step is what depends on the entries `x[:, t]`, and not on later ones. Nodes of two steps are the same node of the loop if their ops and operands
are the same. What a step reads of the step before must be linear in itself, h = a h + b, or a maximum, h = max(h + w, k). Other loops stay unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_aggregate

from .recognise import name_of, shape_of
from .scan import recurrence
from .table import RULES

ZEROS = ("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
LEAST = 4  # entries of a loop
SAME = ("aten.copy.default", "aten.clone.default", "aten.to.dtype", "aten.alias.default", "aten.type_as.default", "aten._to_copy.default")


@dataclass(frozen=True)
class Ref:
    """An operand of a node of the loop: another node, of this step or the one before; x[:, t] of a tensor from outside
    of the loop; or a value that is equal for all steps."""

    kind: str  # here, before, entry, outside
    what: Any  # a number of a node, or (x, dim), or a node


class Unknown(Exception):
    """The loop has another form."""


@dataclass
class Loop:
    steps: int
    nodes: list[tuple[Any, Any, Any]] = field(default_factory=list)  # by number: target, args, kwargs with Refs
    at: dict[Node, tuple[int, int]] = field(default_factory=dict)  # the number and the step of each node
    like: list[Node] = field(default_factory=list)  # by number: the node in the second step
    first: dict[int, Node] = field(default_factory=dict)  # by number: what the first step reads instead of it

    def refs(self, number: int) -> list[Ref]:
        found: list[Ref] = []
        map_aggregate(self.nodes[number][1:], lambda x: found.append(x) if isinstance(x, Ref) else None)
        return found


def roll_loops(graph: Graph) -> None:
    """Rolls loops, one after another, until none of a known form is left."""
    for node in list(graph.nodes):
        if name_of(node) == "aten._assert_tensor_metadata.default":
            graph.erase_node(node)
    for node in list(graph.nodes):
        if name_of(node) == "aten.copy.default" and shape_of(node) == shape_of(node.args[1]) and dtype(node) == dtype(node.args[1]):
            node.replace_all_uses_with(node.args[1])
    stack_assignments(graph)
    graph.eliminate_dead_code()
    tried: set[Node] = set()
    while any(roll(graph, entries, tried) for entries in entries_of(graph)):
        graph.eliminate_dead_code()
    graph.lint()


def dtype(node: Any) -> torch.dtype:
    return node.meta["val"].dtype


def stack_assignments(graph: Graph) -> None:
    """Turns out[:, t] = x for every t into a stack."""
    for node in reversed(list(graph.nodes)):
        if name_of(node) != "aten.select_scatter.default":
            continue
        dim, parts, at = node.args[2], dict[int, Node](), node
        while name_of(at) == "aten.select_scatter.default" and at.args[2] == dim:
            parts.setdefault(at.args[3] % shape_of(node)[dim], at.args[1])
            at = at.args[0]
        if len(parts) == shape_of(node)[dim] and all(dtype(x) == dtype(node) for x in parts.values()):
            with graph.inserting_before(node):
                stack = graph.call_function(torch.ops.aten.stack.default, ([parts[t] for t in sorted(parts)], dim))
            stack.meta = dict(node.meta)
            node.replace_all_uses_with(stack)


def entries_of(graph: Graph) -> list[dict[Node, tuple[Node, int, int]]]:
    """Returns the nodes x[:, t] that exist for every t, as (x, dim, t), for each number of steps."""
    families: dict[tuple[Node, int], dict[Node, tuple[Node, int, int]]] = {}
    for node in graph.nodes:
        if name_of(node) == "aten.select.int":
            x, dim, t = node.args
            families.setdefault((x, dim % len(shape_of(x))), {})[node] = (x, dim % len(shape_of(x)), t % shape_of(x)[dim])
    found: dict[int, dict[Node, tuple[Node, int, int]]] = {}
    for (x, dim), family in families.items():
        steps = shape_of(x)[dim]
        if steps >= LEAST and len({t for _, _, t in family.values()}) == steps:
            found.setdefault(steps, {}).update(family)
    return list(found.values())


def steps_of(graph: Graph, entries: dict[Node, tuple[Node, int, int]]) -> dict[Node, int]:
    """Finds the step of each node that depends on entries. A stack of one value per step ends the loop."""
    steps, count = dict[Node, int](), max(t for _, _, t in entries.values()) + 1
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node in entries and entries[node][0] not in steps:
            steps[node] = entries[node][2]
            continue
        inputs = [steps[x] for x in node.all_input_nodes if x in steps]
        gathers = name_of(node) in ("aten.stack.default", "aten.cat.default") and sorted(inputs) == list(range(count))
        if inputs and not gathers and name_of(node) not in ZEROS:
            steps[node] = max(inputs)
    return steps


def component(seed: Node, steps: dict[Node, int], entries: dict[Node, tuple[Node, int, int]]) -> set[Node]:
    """Returns the nodes of the steps that are connected with one node, also by entries of the same tensor."""
    siblings: dict[Any, list[Node]] = {}
    for node in entries:
        siblings.setdefault(entries[node][:2], []).append(node)
    seen, waiting = {seed}, [seed]
    while waiting:
        node = waiting.pop()
        near = [*node.all_input_nodes, *node.users, *(siblings[entries[node][:2]] if node in entries else [])]
        for other in near:
            if other in steps and other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def roll(graph: Graph, entries: dict[Node, tuple[Node, int, int]], tried: set[Node]) -> bool:
    """Rolls the first loop over these entries that was not tried before."""
    steps = steps_of(graph, entries)
    for seed in [node for node in entries if node in steps and node not in tried]:
        if seed in tried:
            continue
        own = component(seed, steps, entries)
        tried |= own
        try:
            loop = read_loop([node for node in graph.nodes if node in own], steps, entries)
            replace(graph, loop)
            return True
        except Unknown:
            continue
    return False


def read_loop(nodes: Sequence[Node], steps: dict[Node, int], entries: dict[Node, tuple[Node, int, int]]) -> Loop:
    """Numbers the nodes of the second step, and finds the equal nodes of the other steps: in the first step by their
    order, in later steps by their operands."""
    rows: list[list[Node]] = [[] for _ in range(max(steps[node] for node in nodes) + 1)]
    for node in nodes:
        if node not in entries:
            rows[steps[node]].append(node)
    loop, number = Loop(len(rows)), dict[Node, int]()

    def form(node: Node, step: int) -> tuple[Any, Any, Any]:
        def ref(x: Any) -> Any:
            if not isinstance(x, Node):
                return x
            if x in entries and x in steps:
                return Ref("entry" if steps[x] == step else "other", entries[x][:2])
            if x not in steps:
                return Ref("outside", x)
            kind = {step: "here", step - 1: "before"}.get(steps[x], "other")
            return Ref(kind, number[x]) if x in number else Ref("other", x)

        return node.target, map_aggregate(node.args, ref), map_aggregate(node.kwargs, ref)

    begin = rows[0][len(rows[0]) - len(rows[1]) :]
    if not rows[1] or [node.target for node in begin] != [node.target for node in rows[1]]:
        raise Unknown
    number.update((node, i) for row in (begin, rows[1]) for i, node in enumerate(row))
    loop.nodes, loop.like = [form(node, 1) for node in rows[1]], rows[1]
    places: dict[str, list[int]] = {}
    for i, found in enumerate(loop.nodes):
        places.setdefault(repr(found), []).append(i)
    for step in range(2, loop.steps):
        left = {key: list(numbers) for key, numbers in places.items()}
        for node in rows[step]:
            if found_at := left.get(repr(form(node, step))):
                number[node] = found_at.pop(0)
    loop.at = {node: (number[node], steps[node]) for node in number}
    for i, node in enumerate(begin):
        for x, y in zip(operands(loop.nodes[i]), operands(form(node, 0))):
            if isinstance(x, Ref) and x.kind == "before":
                if not isinstance(y, Ref) or y.kind != "outside" or loop.first.setdefault(x.what, y.what) is not y.what:
                    raise Unknown
            elif repr(x) != repr(y) or isinstance(x, Ref) and x.kind == "other":
                raise Unknown
    return loop


def operands(form: tuple[Any, Any, Any]) -> list[Any]:
    found: list[Any] = []
    map_aggregate(form[1:], found.append)
    return found


class Rolled:
    """Computes all steps of a loop together. The first dim of each node's value is the steps."""

    def __init__(self, loop: Loop, outer: dict[Node, torch.Tensor]):
        self.loop, self.outer = loop, outer
        self._values: dict[int, Any] = {}

    def value(self, number: int) -> Any:
        if number not in self._values:
            cycle = self.cycle(number)
            carried = {ref.what for i in cycle for ref in self.loop.refs(i) if ref.kind == "before" and ref.what in cycle}
            if len(carried) > 1:
                raise Unknown
            self._values[number] = self.solve(number, cycle) if number in carried else self.compute(number)
        return self._values[number]

    def cycle(self, number: int) -> set[int]:
        """Returns the nodes that depend on a node of the step before, and on which that node depends."""

        def reached(start: int, near: Callable[[int], list[int]]) -> set[int]:
            seen, waiting = set[int](), near(start)
            while waiting:
                at = waiting.pop()
                if at not in seen:
                    seen.add(at)
                    waiting += near(at)
            return seen

        inputs = [[ref.what for ref in self.loop.refs(i) if ref.kind in ("here", "before")] for i in range(len(self.loop.nodes))]
        users = [[i for i, found in enumerate(inputs) if number in found] for number in range(len(inputs))]
        return reached(number, lambda i: inputs[i]) & reached(number, lambda i: users[i])

    def operand(self, ref: Ref) -> tuple[Any, int | None]:
        """Returns the value of a node, and its dim of steps."""
        if ref.kind == "outside":
            return self.outer[ref.what], None
        if ref.kind == "entry":
            return self.outer[ref.what[0]].movedim(ref.what[1], 0), 0
        value = self.value(ref.what)
        if ref.kind == "here":
            return value, 0
        return torch.cat([self.outer[self.loop.first[ref.what]].expand(value.shape[1:]).unsqueeze(0), value[:-1]]), 0

    def compute(self, number: int) -> Any:
        target, args, kwargs = self.loop.nodes[number]
        given = [self.operand(ref) for ref in self.loop.refs(number)]

        def call(*values: Any) -> Any:
            rest = iter(values)
            filled = [map_aggregate(part, lambda x: next(rest) if isinstance(x, Ref) else x) for part in (args, kwargs)]
            return target(*filled[0], **filled[1])

        return torch.vmap(call, in_dims=tuple(dim for _, dim in given))(*(value for value, _ in given))

    def solve(self, number: int, cycle: set[int]) -> torch.Tensor:
        shape = shape_of(self.at(number))
        if any(shape_of(self.at(i)) != shape for i in cycle):
            raise Unknown
        first, here = self.loop.first[number], Ref("here", number)
        start = self.outer[first].expand(shape).unsqueeze(0)
        try:
            a, b = self.linear(here, number, cycle)
        except Unknown:
            return self.maxima(*self.largest(here, number, cycle), start)
        if not isinstance(b, torch.Tensor):
            raise Unknown
        a = a if isinstance(a, torch.Tensor) else torch.full((1,) * (len(shape) + 1), a)
        b = b.expand(self.loop.steps, *shape)
        if not is_zero(first):
            b = torch.cat([b[:1] + a[:1] * start, b[1:]])
        return recurrence(a, b, 0)

    def maxima(self, w: Any, k: Any, start: torch.Tensor) -> torch.Tensor:
        """Computes h[t] = max(h[t - 1] + w, k[t]) over ranges of steps whose length doubles."""
        if not isinstance(k, torch.Tensor) or isinstance(w, torch.Tensor) and len(w) > 1:
            raise Unknown
        k = k.expand(self.loop.steps, *start.shape[1:])
        h, reach = torch.cat([torch.maximum(start + w, k[:1]), k[1:]]), 1
        while reach < self.loop.steps:
            h = torch.cat([h[:reach], torch.maximum(h[:-reach] + w * reach, h[reach:])])
            reach *= 2
        return h

    def at(self, number: int) -> Node:
        return self.loop.like[number]

    def inside(self, x: Any, cycle: set[int]) -> bool:
        return isinstance(x, Ref) and x.kind in ("here", "before") and x.what in cycle

    def aligned(self, x: Any, rank: int) -> Any:
        """Returns a number, or a tensor that can be broadcast to [steps, dims of the recurrence]."""
        if not isinstance(x, Ref):
            return float(x)
        value, dim = self.operand(x)
        value = value if dim == 0 else value.unsqueeze(0)
        while value.dim() <= rank:
            value = value.unsqueeze(1)
        return value

    def linear(self, x: Ref, number: int, cycle: set[int]) -> tuple[Any, Any]:
        """Returns (a, b) if x is a times the recurrence's value of the step before, plus b."""
        if x.kind == "before":
            return 1.0, 0.0
        target, args, kwargs = self.loop.nodes[x.what]
        name, rank = str(target), len(shape_of(self.at(number)))
        if name in SAME:
            return self.linear(args[0], number, cycle)
        if kwargs or len(args) != 2 and name != "aten.neg.default":
            raise Unknown
        within = [self.inside(arg, cycle) for arg in args]
        pairs = [self.linear(arg, number, cycle) if inside else (0.0, self.aligned(arg, rank)) for arg, inside in zip(args, within)]
        if name == "aten.neg.default":
            return times(-1.0, pairs[0][0]), times(-1.0, pairs[0][1])
        if name in ("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar"):
            sign = -1.0 if "sub" in name else 1.0
            return plus(pairs[0][0], times(sign, pairs[1][0])), plus(pairs[0][1], times(sign, pairs[1][1]))
        if name in ("aten.mul.Tensor", "aten.mul.Scalar") and within != [True, True]:
            (a, b), factor = (pairs[0], pairs[1][1]) if within[0] else (pairs[1], pairs[0][1])
            return times(a, factor), times(b, factor)
        raise Unknown

    def largest(self, x: Ref, number: int, cycle: set[int]) -> tuple[Any, Any]:
        """Returns (w, k) if x is the larger one of k and the recurrence's value of the step before plus w. k is None if there is no maximum."""
        if x.kind == "before":
            return 0.0, None
        target, args, kwargs = self.loop.nodes[x.what]
        name, rank = str(target), len(shape_of(self.at(number)))
        if name in SAME:
            return self.largest(args[0], number, cycle)
        if kwargs or len(args) != 2 or self.inside(args[0], cycle) == self.inside(args[1], cycle):
            raise Unknown
        own, other = args if self.inside(args[0], cycle) else args[::-1]
        (w, k), y = self.largest(own, number, cycle), self.aligned(other, rank)
        if name in ("aten.add.Tensor", "aten.add.Scalar") or name in ("aten.sub.Tensor", "aten.sub.Scalar") and own is args[0]:
            y = times(-1.0, y) if "sub" in name else y
            return plus(w, y), None if k is None else plus(k, y)
        if name in ("aten.maximum.default", "aten.max.other"):
            return w, y if k is None else torch.maximum(k, y)
        raise Unknown


def times(x: Any, y: Any) -> Any:
    if isinstance(x, float) and x in (0.0, 1.0):
        return y if x else 0.0
    return times(y, x) if isinstance(y, float) and y in (0.0, 1.0) else x * y


def plus(x: Any, y: Any) -> Any:
    return y if isinstance(x, float) and not x else x if isinstance(y, float) and not y else x + y


def is_zero(node: Node) -> bool:
    return name_of(node) in ZEROS or name_of(node) in SAME and is_zero(node.all_input_nodes[0])


def replace(graph: Graph, loop: Loop) -> None:
    """Inserts the nodes that compute all steps before the first node that reads a result of the loop."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    users = [node for node in graph.nodes if node not in loop.at and any(x in loop.at for x in node.all_input_nodes)]
    whole = {node: found for node in users if (found := gathered(node, loop))}
    refs, seen, waiting = list[Ref](), set[int](), [loop.at[x][0] for node in users for x in node.all_input_nodes if x in loop.at]
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            refs += loop.refs(number)
            waiting += [ref.what for ref in loop.refs(number) if ref.kind in ("here", "before")]
    if not whole or not any(ref.kind == "before" for ref in refs):
        raise Unknown
    read = {"entry": lambda what: what[0], "outside": lambda what: what, "before": loop.first.__getitem__}
    outer = sorted({read[ref.kind](ref.what) for ref in refs if ref.kind != "here"}, key=place.__getitem__)
    end = min(users, key=place.__getitem__)
    if place[outer[-1]] >= place[end]:
        raise Unknown
    parts = [(node, x) for node in users if node not in whole for x in node.all_input_nodes if x in loop.at]

    def compute(*values: torch.Tensor) -> list[torch.Tensor]:
        rolled = Rolled(loop, dict(zip(outer, values)))
        found = [rolled.value(number).movedim(0, dim) for number, dim in whole.values()]
        found = [x if "stack" in name_of(node) else x.flatten(dim, dim + 1) for x, (node, (_, dim)) in zip(found, whole.items())]
        return found + [rolled.value(loop.at[x][0]).select(0, loop.at[x][1]) for _, x in parts]

    traced = trace(compute, outer)
    for node in traced.nodes:
        node.meta |= {key: loop.like[0].meta[key] for key in ("stack_trace", "nn_module_stack") if key in loop.like[0].meta}
    with graph.inserting_before(end):
        values: Any = graph.graph_copy(traced, dict(zip(traced.find_nodes(op="placeholder"), outer)))
    for node, value in zip(whole, values):
        node.replace_all_uses_with(value)
    for (node, x), value in zip(parts, values[len(whole) :]):
        node.replace_input_with(x, value)


def trace(compute: Callable[..., list[torch.Tensor]], outer: Sequence[Node]) -> Graph:
    """Returns the graph of a function of the values of nodes, if all of its ops have rules."""
    values = [node.meta["val"] for node in outer]
    mode: Any = detect_fake_mode(values)
    try:
        with torch.no_grad(), mode:
            graph = make_fx(compute)(*values).graph
    except Unknown:
        raise
    except Exception as error:  # noqa: BLE001 - ops raise whatever they do under vmap
        raise Unknown from error
    if any(node.op != "call_function" or name_of(node) not in RULES for node in graph.nodes if node.op not in ("placeholder", "output")):
        raise Unknown
    return graph


def gathered(node: Node, loop: Loop) -> tuple[int, int] | None:
    """Returns (number, dim) if a node joins the values of one node of all steps."""
    if name_of(node) not in ("aten.stack.default", "aten.cat.default"):
        return None
    args: Any = node.args
    at = [loop.at.get(part, (-1, -1)) for part in args[0]]
    same = len({number for number, _ in at}) == 1 and [step for _, step in at] == list(range(loop.steps))
    return (at[0][0], args[1] % len(shape_of(node)) if len(args) > 1 else 0) if same else None
