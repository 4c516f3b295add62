"""Writes the text of a program in the pc dialect: the names of dims, the order of ops, and one line per op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .axes import Axis, DimClass
from .layers import LEAVES, assign_layers
from .values import Letter, Value, letter_of, users_of

ROLES = {
    "batch": "batch",
    "sequence": "sequence",
    "kv_heads": "kv_heads",
    "group": "group",
    "head_dim": "head_dim",
    "vocab": "vocab",
    "position": "position",
    "normed": "embed",
}  # the first of a class names it
SHORT = {"batch": "b", "sequence": "s", "kv_heads": "k", "group": "g", "head_dim": "d", "vocab": "v", "embed": "e", "ffn": "f"}


def in_order(users: dict[Value, list[Value]]) -> list[Value]:
    """Returns values in the order of the user's forward, which separates the layers of a pipeline. A leaf comes before
    its first reader."""
    order: dict[Value, None] = {}
    for value in sorted((value for value in users if value.op not in LEAVES), key=lambda value: value.key):
        order |= dict.fromkeys([*(o for o in value.operands if o.op in LEAVES), value])
    return list(order or users)


def name_dims(values: Sequence[Value]) -> dict[DimClass, str]:
    """Names dims by their roles. A dim that one weight makes and another one sums over is "ffn". If the weights share
    several dims, only the first of them is."""
    names: dict[DimClass, str] = {}
    for value in values:
        for axis in value.axes:
            role = next((name for role, name in ROLES.items() if role in axis.dim.roles), None)
            if role:
                names.setdefault(axis.dim, role)
    made, summed = list[list[DimClass]](), list[list[DimClass]]()  # by each weight, without a role
    for value in values:
        if value.op == "einsum":
            result = {value.letter(axis) for axis in value.axes}
            for operand, letters in zip(value.operands, value.maps):
                if operand.op == "parameter":
                    free = [axis for axis in operand.axes if axis.dim not in names]
                    made.append([axis.dim for axis in free if letter_of(letters, axis) in result])
                    summed.append([axis.dim for axis in free if letter_of(letters, axis) not in result])
    both = {dim for dims in made for dim in dims} & {dim for dims in summed for dim in dims}
    later = {dim for dims in made + summed for dim in [dim for dim in dims if dim in both][1:]}
    names |= {dim: "ffn" for dim in both - later}
    for value in values:
        if value.op in ("parameter", "input"):
            for axis in value.axes:
                names.setdefault(axis.dim, f"d{len(names)}" if axis.size > 1 else "one")
    return names


def tensor_type(sizes: Sequence[int], dtype: str = "f32") -> str:
    return "tensor<" + "".join(f"{n}x" for n in sizes) + dtype + ">"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A") + '"'


class Printer:
    def __init__(self, loss: Value, logits: Value | None):
        self.users = users_of(loss)
        self.order = in_order(self.users)
        self.names = name_dims(self.order)
        self.layers = assign_layers(self.order, self.users)
        self._ids: dict[Value, str] = {}
        self._lines: list[str] = []
        self._count = 0
        for value in self.order:
            self.print(value)
            if value is logits:
                self.line(f'pc.output logits "logits" {self._ids[value]} : {self.type(value)}', "head")
        self.line(f'pc.output loss "loss" {self._ids[loss]} : tensor<f32>', "loss")

    def module(self, program: str) -> str:
        return "\n".join(["module {", f"  {program}", "  func.func @model() {", *self._lines, "    return", "  }", "}", ""])

    def line(self, text: str, layer: str) -> None:
        self._lines.append(f"    {text} loc({quoted(layer)})")

    def define(self, text: str, layer: str, results: int = 1) -> str:
        name, self._count = f"%{self._count}", self._count + 1
        self.line(f"{name}{f':{results}' if results > 1 else ''} = {text}", layer)
        return name if results == 1 else f"{name}#0"

    def sizes(self, value: Value) -> list[int]:
        return [axis.size for axis in value.axes]

    def type(self, value: Value) -> str:
        return tensor_type(self.sizes(value), value.dtype)

    def dims(self, value: Value) -> str:
        return "[" + ", ".join(quoted(self.names[axis.dim]) for axis in value.axes) + "]"

    def random(self, key: int) -> str:
        return self.define(f'pc.input random key {key} dims ["random"] : tensor<5xi32>', "model")

    def print(self, value: Value) -> None:
        results, more, random = {"layer_norm": 3, "rms_norm": 2, "attention": 2}.get(value.op, 1), "", ""
        operands = ", ".join(self._ids[operand] for operand in value.operands)
        types = [self.type(operand) for operand in value.operands]
        if value.attrs.get("random") is not None:
            random = f" random {self.random(value.attrs['random'])}"
            types.append("tensor<5xi32>")
        written = WRITE.get(value.op)
        if value.op in LEAVES:
            assert written
            self._ids[value] = self.define(f"{written(self, value)} {self.type(value)}", value.layer)
            return
        before, after = written(self, value).split("|") if written else ("", "")
        if value.op in ("layer_norm", "rms_norm"):
            more = f", {tensor_type(self.sizes(value)[:-1])}" * (results - 1)
        elif value.op == "attention":
            b, s, k, g, _ = self.sizes(value)
            more = f", {tensor_type([b, k, g, s])}"
        result = f"({self.type(value)}{more})" if results > 1 else self.type(value)
        text = f"pc.{value.op} {before}{operands}{random}{after} : ({', '.join(types)}) -> {result}"
        self._ids[value] = self.define(text, value.layer, results)

    def spec(self, value: Value, along: Axis | None = None) -> str:
        """Returns the letters of the dims of operands and result, and that of the dim along which an op works."""
        words: dict[Letter, str] = {}

        def word(letter: Letter, axis: Axis) -> str:
            if letter not in words:
                base, used = SHORT.get(self.names.get(axis.dim, ""), "x"), set(words.values())
                words[letter] = next(w for w in [base, *(f"{base}{i}" for i in range(len(used) + 1))] if w not in used)
            return words[letter]

        terms = [" ".join(word(letter_of(m, axis), axis) for axis in o.axes) for o, m in zip(value.operands, value.maps)]
        return quoted(", ".join(terms) + " -> " + " ".join(word(value.letter(axis), axis) for axis in value.axes)) + (
            f" along {quoted(word(value.letter(along), along))} " if along else " "
        )


def write_parameter(printer: Printer, value: Value) -> str:
    a = value.attrs
    shape, start, size = a["shape"], [box[1] for box in a["boxes"]], [box[2] for box in a["boxes"]]
    view = [box[0] for box in a["boxes"]]
    name = a["name"] + (":" + ",".join(f"{i}+{n}" for i, n in zip(start, size)) if a.get("part") else "")
    source = f"<{quoted(a['name'])}, shape = {shape}, start = {start}, size = {size}" + (f", view = {view}" if view != shape else "") + ">"
    frozen = " frozen" if a["frozen"] else ""
    return f"pc.parameter {quoted(name)}{frozen} dims {printer.dims(value)} init <{a['init'][0]}, {a['init'][1]:.1e}> source {source} :"


def write_input(printer: Printer, value: Value) -> str:
    name = f" {quoted(value.attrs['name'])}" if value.attrs["kind"] == "data" else ""
    below = f" below {value.attrs['below']}" if value.attrs.get("below") else ""
    return f"pc.input {value.attrs['kind']}{name}{below} dims {printer.dims(value)} :"


def write_table(printer: Printer, value: Value) -> str:
    frequencies = ", ".join(f"{f:.9e}" for f in value.attrs["frequencies"])
    return f"pc.rope_table {value.attrs['kind']} inv_freq [{frequencies}] scale {value.attrs['scale']:e} :"


def write_iota(printer: Printer, value: Value) -> str:
    if "pieces" in value.attrs:
        return f"pc.iota pieces {value.attrs['pieces']} values {value.attrs['values']} ->"
    return f"pc.iota from {value.attrs['first']} ->" if value.attrs["first"] else "pc.iota ->"


def flags(value: Value, *names: str) -> str:
    return "".join(f"{name} " for name in names if value.attrs[name])


def write_attention(printer: Printer, value: Value) -> str:
    window = f" window {value.attrs['window']}" if value.attrs["window"] else ""
    return f"{flags(value, 'causal')}| scale {value.attrs['scale']:.17e}{window}{write_drop(value) if value.attrs['drop'] else ''}"


def write_drop(value: Value) -> str:
    return f" drop <{round(value.attrs['drop'] * 65536)}>"


def write_rope(printer: Printer, value: Value) -> str:
    return f"{flags(value, 'inverse', 'interleaved')}|" + (f" first {value.attrs['first']}" if value.attrs["first"] else "")


def place_of(value: Value) -> int:
    """Returns the dim along which an op works, by the axes that it had when the op was made, because views may have cut
    others."""
    return value.axes.index(value.uncut()[value.attrs["along"]])


def write_reshape(_: Printer, value: Value) -> str:
    at, many = place_of(value), max(value.attrs["from_axes"], value.attrs["to_axes"])
    names = [f"x{i}" for i in range(len(value.axes) - value.attrs["to_axes"] + many)]
    divided = " ".join(names)
    merged = " ".join([*names[:at], f"({' '.join(names[at : at + many])})", *names[at + many :]])
    merges = value.attrs["to_axes"] == 1
    return f'"{divided} -> {merged}" |' if merges else f'"{merged} -> {divided}" |'


def write_norm(printer: Printer, value: Value) -> str:
    return f"| eps {value.attrs['eps']:.17e}"


# The text before the operands of an op, and after them. Leaves are written completely.
WRITE: dict[str, Callable[[Printer, Value], str]] = {
    "parameter": write_parameter,
    "input": write_input,
    "rope_table": write_table,
    "iota": write_iota,
    "constant": lambda _, value: f"pc.constant {value.attrs['number']:e} :",
    "einsum": lambda printer, value: printer.spec(value) + "|",
    "recurrence": lambda printer, value: printer.spec(value, value.axes[place_of(value)]) + "|",
    "reduce_max": lambda printer, value: printer.spec(value) + "|",
    "activation": lambda _, value: value.attrs["kind"] + " |",
    "select": lambda _, value: value.attrs["kind"] + " |",
    "scale": lambda _, value: f"| by {value.attrs['factor']:.17e}",
    "top_k": lambda _, value: f"| k {value.attrs['k']}",
    "columns": lambda _, value: f"| dim {place_of(value)} from {value.attrs['start']}",
    "reshape": write_reshape,
    "embedding": lambda _, value: "|" + (f" padding {value.attrs['padding']}" if value.attrs["padding"] >= 0 else ""),
    "dropout": lambda _, value: "|" + write_drop(value),
    "layer_norm": write_norm,
    "rms_norm": write_norm,
    "rope": write_rope,
    "attention": write_attention,
}
