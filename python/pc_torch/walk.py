"""Walks an exported graph. Inputs, parameters and constants become leaves, and the rule of its op reads each node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from pc_program.axes import Axis, DimClass, flat, leaves, new_axis, regroup
from pc_program.builder import Builder
from pc_program.errors import INSIDE, NeedsReshape, Refused
from pc_program.rows import Mask, Rotation, attention, negative_log_likelihood, rotate
from pc_program.slices import reshape
from pc_program.values import Special, Tensor, Value

from .errors import located, refused, source_line
from .layers import Modules
from .recognise import PRODUCTS, RELABEL, Constants, activation_of, name_of, rotation_of, scores_of, shape_of
from .table import RULES

INTEGERS = (torch.int64, torch.int32)
VIEWS = RELABEL | {"aten.conv1d.default", "aten.conv1d.padding"}  # nodes that cut dims by `view`


@dataclass
class Pattern:
    """The op that was recognised in a node, which `rule` reads only from `operands`."""

    operands: Sequence[Node]
    rule: Callable[..., Any]
    facts: dict[str, Any] = field(default_factory=dict)


class Walk(Builder):
    def __init__(
        self,
        program: ExportedProgram,
        inputs: dict[str, torch.Tensor],
        modules: Modules,
        reshapes: Collection[str] = (),
        whole: Collection[str] = (),
        dropout: float | None = None,
    ):
        super().__init__()
        self.graph, self.inputs, self.modules = program.graph, inputs, modules
        self.reshapes, self.whole, self.dropout = reshapes, set(whole), dropout
        self.joined: list[tuple[list[Axis], Node]] = []  # dims that views made of several axes
        self.given: dict[str, tuple[str, torch.Tensor, bool]] = {}  # placeholder: its parameter's name, elements, whether it is trained
        self.tied: dict[str, str] = {}  # a name: that of the parameter which it is, too
        self.tensors: dict[str, torch.Tensor] = {}
        self.parameters: dict[str, Tensor] = {}
        self.kinds: dict[str, str] = {}  # input: tokens, targets or data
        self.logits: Value | None = None
        self.random_keys = 0
        self.dropped = False
        self._values: dict[Node, Any] = {}
        self._tables: dict[object, list[Value]] = {}
        self.constants = Constants(self.graph.nodes, self.read_signature(program))
        self.patterns: dict[Node, Pattern] = {}
        self.find_patterns()
        self.find_kinds()

    def read_signature(self, program: ExportedProgram) -> dict[str, torch.Tensor]:
        """Fills `given` and `tied`. Returns buffers and constants by placeholder."""
        leaves_: dict[str, torch.Tensor] = {}
        first: dict[tuple[int, tuple[int, ...]], str] = {}
        for spec in program.graph_signature.input_specs:
            name, kind, target = spec.arg.name, spec.kind.name, spec.target
            if kind == "PARAMETER":
                tensor = program.state_dict[str(target)]
                own = first.setdefault((tensor.data_ptr(), tuple(tensor.shape)), str(target))
                if own != target:
                    self.tied[str(target)] = own
                self.given[name] = (own, tensor, tensor.requires_grad)
            elif kind in ("BUFFER", "CONSTANT_TENSOR"):
                held = program.state_dict if target in program.state_dict else program.constants
                leaves_[name] = held[str(target)]
                if leaves_[name].is_floating_point():
                    self.given[name] = (str(target), leaves_[name], False)
        return leaves_

    # --- what is recognised ---

    def find_patterns(self) -> None:
        sites: list[Any] = []
        for node in self.graph.nodes:
            if name_of(node) == "aten.scaled_dot_product_attention.default":
                sites += node.args[:2]
            elif name_of(node) in PRODUCTS and (found := self.written_attention(node)):
                self.patterns[node] = found
                key = found.operands[1]
                sites += [found.operands[0], key.args[0] if name_of(key) in ("aten.transpose.int", "aten.permute.default") else key]
            elif found_activation := activation_of(self.constants, node):
                x, kind = found_activation
                self.patterns[node] = Pattern([x], lambda node, x, kind: self.activation(kind, x), dict(kind=kind))
            elif name_of(node) == "aten.gather.default" and (found := self.target_gather(node)):
                self.patterns[node] = found
        for site in sites:
            if isinstance(site, Node) and (turned := rotation_of(self.constants, site)):
                y, x, rotation = turned
                self.patterns[y] = Pattern([x], self.read_rotation, dict(rotation=rotation))

    def written_attention(self, node: Node) -> Pattern | None:
        """Reads softmax(scores) v, with dropout between them."""
        at, drop = node.args[0], 0.0
        while isinstance(at, Node) and name_of(at) in RELABEL | {"aten.dropout.default"}:
            if name_of(at) == "aten.dropout.default" and at.args[2]:
                drop = float(at.args[1])  # type: ignore[arg-type]
            at = at.args[0]
        if not isinstance(at, Node) or name_of(at) != "aten.softmax.int" or at.args[1] not in (-1, len(shape_of(at)) - 1):
            return None
        found = scores_of(self.constants, at)
        if not found or len(shape_of(found[0])) not in (3, 4) or any(i in self.constants for i in (*found[0].all_input_nodes, node.args[1])):
            return None
        scores, scale, mask = found
        return Pattern([*scores.args, node.args[1]], self.read_attention, dict(scale=scale, mask=mask, drop=drop))  # type: ignore[list-item]

    def target_gather(self, node: Node) -> Pattern | None:
        """Reads log_softmax(logits) at the targets."""
        logs, dim, ids = node.args[:3]
        assert isinstance(logs, Node) and isinstance(ids, Node)
        last = dim in (-1, len(shape_of(logs)) - 1)
        if last and name_of(logs) == "aten.log_softmax.int" and name_of(ids) == "aten.unsqueeze.default":
            return Pattern([logs.args[0], ids.args[0]], self.read_gather)  # type: ignore[list-item]
        return None

    def read_attention(self, node: Node, q: Tensor, kt: Tensor, v: Tensor, scale: float, mask: Mask, drop: float) -> Tensor:
        k = Tensor(kt.value, [*kt.dims[:-2], kt.dims[-1], kt.dims[-2]])
        if len(q.dims) == 4:
            return self.attend(q, k, v, mask, scale, drop)
        # Batch and heads are one dim.
        q, k, v = (Tensor(t.value, [t.dim(0)[:1], t.dim(0)[1:], *t.dims[1:]]) for t in (q, k, v))
        o = self.attend(q, k, v, mask, scale, drop)
        return Tensor(o.value, [[*o.dims[0], *o.dims[1]], *o.dims[2:]])

    def read_rotation(self, node: Node, x: Tensor, rotation: Rotation) -> Tensor:
        return rotate(self, x, rotation, self._tables)

    def read_gather(self, node: Node, logits: Tensor, targets: Tensor) -> Tensor:
        found = self.scale(self.likelihood(logits, targets), -1)
        return Tensor(found.value, [*found.dims, []])

    # --- inputs ---

    def find_kinds(self) -> None:
        """Tells tokens and targets from other inputs by the ops that read them. If there are other inputs, all are data, read by name."""
        used = [node for node in self.graph.nodes if node.op == "placeholder" and node.name in self.inputs and node.users]
        found = {node.name: self.use_of(node) for node in used}
        usual = sorted(map(str, found.values())) == ["targets", "tokens"] and all(self.inputs[name].dim() == 2 for name in found)
        self.kinds = found if usual else {name: "data" for name in found}  # type: ignore[assignment]

    def use_of(self, node: Node) -> str | None:
        waiting, found, seen = [node], set(), set[Node]()
        while waiting:
            at = waiting.pop()
            for user in at.users:
                name = name_of(user)
                place = {"aten.cross_entropy_loss.default": 1, "aten.nll_loss.default": 1, "aten.gather.default": 2}.get(name)
                if place and user.args[place] is at:
                    found.add("targets")
                elif name == "aten.embedding.default" and user.args[1] is at:
                    found.add("tokens")
                elif name in RELABEL and user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return found.pop() if len(found) == 1 else None

    def read_input(self, node: Node) -> Tensor:
        example, kind = self.inputs[node.name], self.kinds[node.name]
        roles = ["batch", "sequence"] if example.dtype in INTEGERS else ["batch"]
        axes = [new_axis(n, *roles[i : i + 1]) for i, n in enumerate(example.shape)]
        if kind != "data":
            return Tensor(self.make("input", [], axes, kind=kind, dtype="i32", layer="model"), [[axis] for axis in axes])
        if example.dtype not in (*INTEGERS, torch.float32):
            raise refused(node, f"input '{node.name}' has the type {example.dtype}", "Inputs are float32, int64 or int32.")
        if not example.dim():
            raise refused(node, f"input '{node.name}' has no dim for the batch", "Add a first dim, with one entry per sample.")
        dtype = "i32" if example.dtype in INTEGERS else "f32"
        held = [axis for i, axis in enumerate(axes) if i == 0 or axis.size > 1]
        value = self.make("input", [], held, kind=kind, name=node.name, dtype=dtype, layer="model", below=None)
        return Tensor(value, [[axis] if axis in held else [] for axis in axes])

    # --- parameters and constants ---

    def parameter(self, name: str, tensor: torch.Tensor, trained: bool) -> Tensor:
        if name not in self.parameters:
            self.tensors[name] = tensor
            dims = [[new_axis(n)] if n > 1 else [] for n in tensor.shape]
            boxes = [[n, 0, n, list(dim)] for n, dim in zip(tensor.shape, dims)]
            value = self.make(
                "parameter", [], flat(dims), layer=name, name=name, shape=list(tensor.shape), boxes=boxes, frozen=not trained, init=initial(tensor)
            )
            self.parameters[name] = Tensor(value, dims)
        return self.parameters[name]

    def lift(self, x: Any, node: Any = None) -> Tensor:
        """Returns any operand as a tensor. A table of constants becomes a frozen parameter, with the name of its buffer if it is one."""
        if isinstance(x, Tensor):
            return x
        if not isinstance(x, torch.Tensor):
            return self.constant(x)
        x = held = x.detach()
        for i in range(x.dim()):  # along dims of equal entries a table is broadcast
            if bool((held == held[(slice(None),) * i + (slice(1),)]).all()):
                held = held[(slice(None),) * i + (slice(1),)]
        broadcast = [[new_axis(n)] if n > 1 else [] for n in x.shape]
        if held.numel() == 1:
            return Tensor(self.constant(float(held)).value, broadcast)
        if x.is_complex():
            raise Refused("a table of complex numbers", "Only rotary embeddings may be complex; write other products with real numbers.")
        if isinstance(node, Node) and node.name in self.given:
            return self.parameter(self.given[node.name][0], x.float().clamp(-1e30, 1e30), False)
        table = self.parameter(f"pc_torch.table.{len(self.tensors)}", held.float().clamp(-1e30, 1e30), False)
        return Tensor(table.value, [own or other for own, other in zip(table.dims, broadcast)])

    # --- nodes ---

    def of(self, x: Any) -> Any:
        if isinstance(x, Node):
            return self.constants.value(x) if x in self.constants else self._values[x]
        if isinstance(x, (list, tuple)):
            return type(x)(self.of(item) for item in x)
        return x

    def loss(self) -> Tensor:
        """Reads all nodes that the loss needs, in the graph's order."""
        outputs = self.graph.output_node().args[0]
        assert isinstance(outputs, (list, tuple))
        scalars = [node for node in outputs if isinstance(node, Node) and shape_of(node) == ()]
        if len(scalars) != 1:
            raise Refused(f"forward returns {len(scalars)} scalars", "It must return the loss, or a tuple with one scalar, the loss.")
        needed, waiting = set[Node](), [scalars[0]]
        while waiting:
            node = waiting.pop()
            if node in needed or node in self.constants:
                continue
            needed.add(node)
            waiting += self.patterns[node].operands if node in self.patterns else node.all_input_nodes
        if scalars[0] in self.constants:
            raise refused(scalars[0], "the loss depends on no input", "Return a loss that forward computes from its inputs.")
        for node in self.graph.nodes:
            if node in needed and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and name_of(node) not in RULES:
                raise refused(node, "random numbers", "Only dropout draws the same numbers under every plan. Turn others off, or make them an input.")
        for place, node in enumerate(self.graph.nodes):
            if node in needed:
                self.place, self.layer, DimClass.reading = place, self.modules.layer(node), node
                try:
                    self._values[node] = self.read(node)
                except Refused as error:
                    located(error, node)
                    raise
        return self._values[scalars[0]]

    def read(self, node: Node) -> Any:
        if node.op == "placeholder":
            return self.parameter(*self.given[node.name]) if node.name in self.given else self.read_input(node)
        if node in self.patterns:
            pattern = self.patterns[node]
            return pattern.rule(node, *map(self.of, pattern.operands), **pattern.facts)
        if node.target is operator.getitem:
            return self.of(node.args[0])[node.args[1]]
        rule = RULES.get(name_of(node))
        if rule is None:
            raise Refused(f"{node.target} has no rule", advice_for(node))
        args, kwargs = [*map(self.of, node.args)], {key: self.of(value) for key, value in node.kwargs.items()}
        operands = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else [arg])]
        special = next((x for x in operands if isinstance(x, Special)), None)
        try:
            result = special.read(self, node, args, kwargs) if special else rule(self, node, *args, **kwargs)
        except INSIDE as error:
            advice = "Its rule needs other kinds of operands: see the row in docs/own-models.md."
            raise Refused(f"operands that its rule does not support ({type(error).__name__}: {error})", advice) from error
        if isinstance(result, Tensor) and result.shape != list(shape_of(node)):
            raise Refused(f"its rule gives shape {result.shape}, PyTorch {list(shape_of(node))}", "This is a defect of pc_torch: please report it.")
        return result

    def view(self, node: Node, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Reads a view: as an op if it must be one, and otherwise as another grouping of the same axes."""
        if site(node) in self.reshapes:
            self.note(f"a view is an op of its own, since an op needs these dims whole: {source_line(node)}")
            return reshape(self, x, shape)
        result = Tensor(x.value, regroup([axis for dim in x.dims for axis in dim], shape))
        if x.value.op != "parameter":
            self.joined += [(dim, node) for dim in result.dims if len(dim) > 1]
        return result

    def view_to_blame(self, error: NeedsReshape) -> str | None:
        """Returns the site of the view that must become an op: one that cut a dim, or else one that joined it.
        Views that leave the batch come first."""
        cuts = [node for axis in error.axes for node in axis.causes() if site(node) not in self.reshapes and name_of(node) in VIEWS]
        if cuts:
            return site(min(cuts, key=lambda node: shape_of(node)[:1] != shape_of(node.args[0])[:1]))
        classes = {axis.dim for axis in error.axes}
        return next((site(node) for dim, node in self.joined if site(node) not in self.reshapes and classes & {a.dim for a in leaves(dim)}), None)

    # --- what rules share ---

    def rate(self, p: float) -> float:
        rate = p if self.dropout is None or not p else self.dropout
        self.dropped |= rate > 0
        return rate

    def random_key(self) -> int:
        self.random_keys += 1
        return self.random_keys - 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, drop: float) -> Tensor:
        rate = self.rate(drop)
        return attention(self, q, k, v, mask, scale, rate, self.random_key() if rate else None)

    def likelihood(self, logits: Tensor, targets: Tensor) -> Tensor:
        result, read = negative_log_likelihood(self, logits, targets)
        if targets.value.op != "input":
            raise Refused("targets that are computed", "Give the targets as an input, shifted as the loss needs them.")
        if targets.value.attrs["kind"] == "targets":
            self.logits = read
        else:
            targets.value.attrs["below"] = read.axes[-1].size
        return result


def site(node: Node) -> str:
    """Returns the key that views of the same line share, such as those of all layers. They become ops together."""
    return f"{node.meta.get('stack_trace') or node.name} {node.target} {shape_of(node)}"


def advice_for(node: Node) -> str:
    name = str(node.target)
    if not name.startswith("aten."):
        return "A custom kernel is opaque: write the same with PyTorch's own ops (an eager fallback of the library, for example)."
    if name.split(".")[1] in ("nonzero", "index_add", "masked_select", "bincount", "index_put", "index_put_", "scatter_add", "where"):
        return "Sizes or places that depend on data do not compile: compute all entries and multiply with a mask."
    return "docs/own-models.md lists the ops that have one; most others can be written with them."


def initial(tensor: torch.Tensor) -> tuple[str, float]:
    """Returns the initial value of a parameter, for a run without weights."""
    values = tensor.detach().float()
    if bool((values == values.reshape(-1)[:1]).all()):
        return "fill", float(values.reshape(-1)[0])
    return "normal", float(f"{float(values.std()):.0e}")
