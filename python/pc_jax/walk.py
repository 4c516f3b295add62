"""Walks a jaxpr. Parameters and inputs become leaves, constants are arrays, calls are inlined, and the rule of its
primitive reads each equation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core

from pc_program.axes import Axis, DimClass, flat, leaves, new_axis, regroup
from pc_program.builder import Builder
from pc_program.errors import INSIDE, NeedsReshape, Refused
from pc_program.slices import concatenate, reshape, slice_dim
from pc_program.values import Tensor, Value

from .scans import LONGEST, rolled
from .table import POINTWISE, RULES

CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call")
LIBRARIES = re.compile(r"[/\\](jax|flax|equinox|optax)[/\\]")


@dataclass
class Condition:
    """The condition that x and y compare as `kind` says. It stays a pair of tensors, so that views can move both."""

    kind: str
    x: Tensor
    y: Tensor
    negated: bool = False


@dataclass
class Erfc:
    """factor * erfc(x). Only a product of this with x becomes an op, gelu."""

    x: Tensor
    factor: float = 1.0
    is_erf: bool = False


@dataclass
class Places:
    """The indices of a gather, one for each indexed dim. Each is an array of constants, or a tensor."""

    parts: list[Any]


@dataclass
class Site:
    """An equation that is being read."""

    place: int
    eqn: Any


class Walk(Builder):
    def __init__(self, names: Sequence[str], values: Sequence[Any], inputs: dict[str, Any], reshapes: Collection[int], whole: Collection[str]):
        super().__init__()
        self.reshapes, self.whole = reshapes, set(whole)
        self.joined: list[tuple[list[Axis], Site]] = []  # dims that views made of several axes
        self.tensors: dict[str, np.ndarray] = {}
        self.tables: dict[Any, Tensor] = {}
        self.squares: dict[Value, Tensor] = {}  # a value: what it is the square of
        self.sums: dict[Value, tuple[Tensor, tuple[int, ...]]] = {}  # a value: what it is the sum of, along which dims
        self.means: dict[Value, tuple[Tensor, tuple[int, ...]]] = {}
        self.centered: dict[tuple[Value, Value], Tensor] = {}
        self.logits: Value | None = None
        self.site = Site(0, None)
        self.known: dict[Any, tuple[list[Any], list[Any]]] = {}  # an equation of these operands: the operands and the results
        self.arguments = [self.parameter(name, np.asarray(value), True) for name, value in zip(names, values)]
        self.arguments += [self.read_input(name, example) for name, example in inputs.items()]

    # --- leaves ---

    def parameter(self, name: str, array: np.ndarray, trained: bool) -> Tensor:
        self.tensors[name] = array = array.astype(np.float32)
        dims = [[new_axis(n)] if n > 1 else [] for n in array.shape]
        boxes = [[n, 0, n, list(dim)] for n, dim in zip(array.shape, dims)]
        shape = list(array.shape)
        same = array.size and bool((array == array.flat[0]).all())
        init = ("fill", float(array.flat[0])) if same else ("normal", float(f"{float(array.std()):.0e}"))
        value = self.make("parameter", [], flat(dims), layer=name, name=name, shape=shape, boxes=boxes, frozen=not trained, init=init)
        return Tensor(value, dims)

    def read_input(self, name: str, example: Any) -> Tensor:
        """Reads an input as data by name. After the walk it is known which inputs are tokens and targets."""
        is_whole = np.issubdtype(example.dtype, np.integer)
        axes = [new_axis(n, *(["batch", "sequence"] if is_whole else ["batch"])[i : i + 1]) for i, n in enumerate(example.shape)]
        held = [axis for i, axis in enumerate(axes) if i == 0 or axis.size > 1]
        value = self.make("input", [], held, kind="data", name=name, dtype="i32" if is_whole else "f32", layer="model", below=None)
        return Tensor(value, [[axis] if axis in held else [] for axis in axes])

    def lift(self, x: Any) -> Tensor:
        """Returns any operand as a tensor of numbers. Constants that differ from each other become a frozen parameter."""
        if isinstance(x, Tensor):
            return self.floats(x)
        if isinstance(x, Condition):
            ones = self.choose(x.kind, x.x, x.y, *map(self.constant, (0.0, 1.0) if x.negated else (1.0, 0.0)))
            return ones
        if not isinstance(x, np.ndarray):
            raise Refused("an operand that must be a tensor of numbers", "erf and erfc are supported only in gelu.")
        own = compact(x)
        if own.size == 1 or (own == own.flat[0]).all():
            return Tensor(self.constant(float(own.flat[0])).value, [[new_axis(n)] if n > 1 else [] for n in x.shape])
        table = np.clip(np.asarray(own, np.float32), -1e30, 1e30)
        key = (table.shape, table.tobytes())
        if key not in self.tables:
            self.tables[key] = self.parameter(f"pc_jax.table.{len(self.tables)}", table, False)
        found = self.tables[key]
        return Tensor(found.value, [dim if len(leaves(dim)) or n == 1 else [new_axis(n)] for n, dim in zip(x.shape, found.dims)])

    def condition(self, x: Any) -> Condition:
        """Turns a constant mask that is a triangle into a comparison of positions."""
        if isinstance(x, Condition):
            return x
        if isinstance(x, np.ndarray):
            own = compact(x)
            long = [i for i, n in enumerate(own.shape) if n > 1]
            if len(long) == 2 and own.shape[long[0]] == own.shape[long[1]]:
                ones = np.ones([own.shape[i] for i in long], bool)
                for lower in (np.tril(ones), np.triu(ones)):
                    for negated in (False, True):
                        if np.array_equal(own.reshape(ones.shape) != negated, lower):
                            rows, columns = (self.counted(x.shape, i) for i in (long if lower[1, 0] else long[::-1]))
                            return Condition("less_equal", columns, rows, negated)
        return Condition("less", self.constant(0), self.lift(x))

    def counted(self, shape: Sequence[int], dim: int) -> Tensor:
        count = self.count(shape[dim])
        return Tensor(count.value, [count.dims[0] if i == dim else [new_axis(n)] if n > 1 else [] for i, n in enumerate(shape)])

    def choice(self, condition: Any, yes: Any, no: Any) -> Tensor:
        found = self.condition(condition)
        yes, no = (no, yes) if found.negated else (yes, no)
        return self.choose(found.kind, found.x, found.y, self.lift(yes), self.lift(no))

    # --- equations ---

    def run(self, closed: Any) -> Any:
        return self.eval(closed.jaxpr, [plain(c) for c in closed.consts], self.arguments)[0]

    def eval(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], scope: str = "") -> list[Any]:
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments]))

        def of(atom: Any) -> Any:
            return np.asarray(atom.val) if isinstance(atom, core.Literal) else env[atom]

        live = {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
        needed = []
        for eqn in reversed(jaxpr.eqns):
            if live & set(eqn.outvars):
                needed.append(eqn)
                live |= {atom for atom in eqn.invars if not isinstance(atom, core.Literal)}
        for eqn in reversed(needed):
            self.site = DimClass.reading = Site(self.site.place + 1, eqn)
            self.place = self.site.place
            try:
                results = self.read(eqn, [of(atom) for atom in eqn.invars], "/".join(filter(None, [scope, str(eqn.source_info.name_stack)])))
            except Refused as error:
                error.at(eqn.primitive.name, source_line(eqn))
                raise
            env.update(zip(eqn.outvars, results))
        return [of(atom) for atom in jaxpr.outvars]

    def read(self, eqn: Any, arguments: list[Any], scope: str) -> list[Any]:
        name = eqn.primitive.name
        if name in CALLS:
            return self.call(eqn, arguments, scope)
        if name == "scan":
            return self.scan(eqn, arguments, scope)
        if name.startswith(("random_", "threefry")):
            raise Refused("JAX's random numbers have no rule", "Build the model without dropout (deterministic, or inference mode).")
        # Equal equations become one value, because jnp.var computes the mean again that a norm subtracts.
        key = (
            name,
            str(eqn.params),
            *((str(x.dtype), x.shape, x.tobytes()) if isinstance(x, np.ndarray) and x.size == 1 else id(x) for x in arguments),
        )
        if key not in self.known:
            self.known[key] = arguments, self.compute(eqn, name, arguments, scope)
        return self.known[key][1]

    def compute(self, eqn: Any, name: str, arguments: list[Any], scope: str) -> list[Any]:
        if all(isinstance(x, np.ndarray) for x in arguments):
            return fold(eqn, arguments)
        if name not in RULES:
            raise Refused("the primitive has no rule", "docs/own-models.md lists those that have one; most others can be written with them.")
        self.layer = self.layer_of(arguments, scope)
        try:
            result = RULES[name](self, eqn, *arguments)
        except INSIDE as error:
            raise Refused(f"operands that its rule does not support ({type(error).__name__}: {error})") from error
        return result if isinstance(result, list) else [result]

    def layer_of(self, arguments: Sequence[Any], scope: str) -> str:
        """Returns the path of named scopes, if it has a number. Otherwise returns the path of a parameter that the
        equation reads. An op that has the name of a whole layer gets the part "rest"."""
        path = ".".join(part for part in scope.split("/") if part and "(" not in part)
        if re.search(r"(^|\.)\d+(\.|$)", path):
            return path + ".rest" * bool(re.search(r"(^|\.)\d+$", path))
        names = [x.value.layer for x in arguments if isinstance(x, Tensor) and x.value.op == "parameter"]
        return re.sub(r"_(\d+)(?=\.[^.]*\.)", r".\1", names[0]).rpartition(".")[0] or "model" if names else "model"

    def call(self, eqn: Any, arguments: list[Any], scope: str) -> list[Any]:
        inner = eqn.params.get("jaxpr") or eqn.params["call_jaxpr"]
        jaxpr = getattr(inner, "jaxpr", inner)
        if eqn.primitive.name.startswith("custom_"):
            info = str(jaxpr.debug_info.func_src_info)
            if not LIBRARIES.search(info):
                raise Refused(f"the program would lose the custom derivative of {info}", "Let JAX differentiate the function.")
            if info.startswith("relu "):
                return [self.activation("relu", arguments[0])]
        return self.eval(jaxpr, [plain(c) for c in getattr(inner, "consts", [])], arguments, scope)

    def scan(self, eqn: Any, arguments: list[Any], scope: str) -> list[Any]:
        """Rolls a scan into recurrences, or unrolls it. Entry i of a stacked parameter becomes a slice, which belongs to
        layer i."""
        if (results := rolled(self, eqn, arguments, scope)) is not None:
            return results
        p = eqn.params
        fixed, carry = p["num_consts"], p["num_consts"] + p["num_carry"]
        consts, state, stacked = arguments[:fixed], arguments[fixed:carry], arguments[carry:]
        if p["length"] > LONGEST and not any(isinstance(x, Tensor) and x.value.op == "parameter" for x in stacked):
            raise Refused(
                f"a scan of {p['length']} steps would be unrolled",
                "Carry values that are h = a * h + b, element by element and forwards, with a and b computed from the entries.",
            )
        outputs: list[list[Any]] = []
        for i in range(p["length"])[:: -1 if p["reverse"] else 1]:
            entries = [x[i] if isinstance(x, np.ndarray) else entry(self, x, i) for x in stacked]
            inner, of = p["jaxpr"].jaxpr, [plain(c) for c in p["jaxpr"].consts]
            results = self.eval(inner, of, [*consts, *state, *entries], f"{scope}/scan/{i}")
            state, rest = results[: p["num_carry"]], results[p["num_carry"] :]
            outputs.append(rest)
        columns = zip(*(outputs[::-1] if p["reverse"] else outputs))
        used = [type(var).__name__ != "DropVar" for var in eqn.outvars[p["num_carry"] :]]
        return [*state, *(stack(self, column) if use else None for column, use in zip(columns, used))]

    def view(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        if self.site.place in self.reshapes:
            self.note(f"a reshape is an op of its own: {source_line(self.site.eqn)}")
            return reshape(self, x, shape)
        result = Tensor(x.value, regroup([axis for dim in x.dims for axis in dim], shape))
        if x.value.op != "parameter":
            self.joined += [(dim, self.site) for dim in result.dims if len(dim) > 1]
        return result

    def view_to_blame(self, error: NeedsReshape) -> int | None:
        """Returns the reshape that must become an op: the one that cut a dim, or else one that joined it."""
        for axis in error.axes:
            for site in axis.causes():
                if site.place not in self.reshapes and site.eqn.primitive.name == "reshape":
                    return site.place
        classes = {axis.dim for axis in error.axes}
        return next((s.place for dim, s in self.joined if s.place not in self.reshapes and classes & {a.dim for a in leaves(dim)}), None)


def plain(constant: Any) -> Any:
    """Keys of random numbers stay as they are."""
    return constant if "key<" in str(getattr(constant, "dtype", "")) else np.asarray(constant)


def entry(b: Builder, x: Tensor, i: int) -> Tensor:
    return Tensor((part := slice_dim(b, x, 0, i, 1)).value, part.dims[1:])


def stack(m: Walk, parts: Sequence[Any]) -> Any:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.stack(parts)
    return concatenate(m, [Tensor((t := m.lift(part)).value, [[], *t.dims]) for part in parts], 0)


def compact(x: np.ndarray) -> np.ndarray:
    """Returns the value without the dims along which it is broadcast."""
    return x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]


def fold(eqn: Any, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the results for constants. They stay broadcast if possible."""
    name, p = eqn.primitive.name, eqn.params
    shapes = [var.aval.shape for var in eqn.outvars]
    if name == "iota":
        along = [p["shape"][p["dimension"]] if i == p["dimension"] else 1 for i in range(len(p["shape"]))]
        return [np.broadcast_to(np.arange(max(along), dtype=p["dtype"]).reshape(along), shapes[0])]
    if name == "broadcast_in_dim":
        places = {at: i for i, at in enumerate(p["broadcast_dimensions"])}
        index = tuple(slice(None) if i in places else None for i in range(len(shapes[0])))
        return [np.broadcast_to(arguments[0][index], shapes[0])]
    if name == "transpose":
        return [np.transpose(arguments[0], p["permutation"])]
    if name in POINTWISE:
        arguments = np.broadcast_arrays(*map(compact, arguments))  # type: ignore[assignment]
    results = eqn.primitive.bind(*map(np.array, arguments), **p)
    results = results if eqn.primitive.multiple_results else [results]
    return [np.broadcast_to(np.asarray(x), shape) if name in POINTWISE else np.asarray(x) for x, shape in zip(results, shapes)]


def source_line(eqn: Any) -> str:
    """Returns the user's line that made an equation: the innermost frame outside of libraries."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback else []:
        if not LIBRARIES.search(frame.file_name) and not frame.file_name.startswith("<"):
            try:
                with open(frame.file_name) as file:
                    text = file.read().splitlines()[frame.line_num - 1].strip()
            except (OSError, IndexError):
                text = ""
            return f'File "{frame.file_name}", line {frame.line_num}, in {frame.function_name}' + (f": {text}" if text else "")
    return ""
