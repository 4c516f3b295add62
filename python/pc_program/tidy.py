"""Rewrites a program after the walk: moves transposes into products, and dims of size 1 into weights, and makes an RMS
norm that is written out an op. The program then has the form that pc-import writes, so that packing of products,
costs and arenas are the same."""

from __future__ import annotations

from .axes import Axis, new_axis
from .errors import NeedsReshape
from .values import Letter, Value, letter_of, users_of


def fold_transposes(root: Value) -> None:
    """If an einsum only transposes or broadcasts the result of another einsum that has no other reader, joins the two."""
    users = users_of(root)
    for outer in list(users):
        if not outer.is_("einsum", 1) or not outer.operands[0].is_("einsum") or outer.attrs.get("unit"):
            continue
        inner = outer.operands[0]
        if len(users[inner]) > 1:
            continue
        inner_letter = {letter_of(outer.maps[0], axis): inner.letter(axis) for axis in inner.axes}
        letters = {axis: inner_letter.get(outer.letter(axis), outer.letter(axis)) for axis in outer.axes}
        outer.operands, outer.maps, outer.letters, outer.layer = inner.operands, inner.maps, letters, inner.layer
        for operand in outer.operands:
            users[operand] = [outer if user is inner else user for user in users[operand]]
        users[inner] = []


def find_norms(root: Value) -> None:
    """Replaces x / sqrt(mean(x x) + eps) gamma, written out, by pc.rms_norm."""
    for value in users_of(root):
        if value.is_("einsum", 2):
            for y, gamma in (value.operands, value.operands[::-1]):
                if gamma.op == "parameter" and len(gamma.axes) == 1 and y.is_("einsum", 2):
                    for x, inverse in (y.operands, y.operands[::-1]):
                        eps = eps_of_norm(x, inverse)
                        same = [a.dim for a in value.axes] == [a.dim for a in x.axes] and gamma.axes[0].dim is x.axes[-1].dim
                        if value.op == "einsum" and eps is not None and same:
                            value.op, value.operands, value.attrs = "rms_norm", [x, gamma], dict(eps=eps)


def eps_of_norm(x: Value, inverse: Value) -> float | None:
    """Returns eps if `inverse` is 1 / sqrt(mean over the last dim of x x + eps)."""
    if not (inverse.op == "recip" and inverse.operands[0].op == "sqrt" and inverse.operands[0].operands[0].op == "add"):
        return None
    mean, eps = inverse.operands[0].operands[0].operands
    if not (mean.op == "scale" and mean.operands[0].is_("einsum", 2) and mean.operands[0].operands == [x, x]):
        return None
    squares = mean.operands[0]
    rows = [[letter_of(letters, axis) for axis in x.axes] for letters in squares.maps]
    summed_last = rows[0] == rows[1] and [squares.letter(axis) for axis in squares.axes] == rows[0][:-1]
    whole = abs(mean.attrs["factor"] * x.axes[-1].size - 1) < 1e-6
    constant = eps.is_("einsum", 1) and eps.operands[0].op == "constant"
    return eps.operands[0].attrs["number"] if summed_last and whole and constant else None


class UnitDims:
    """Moves dims of size 1 of attention into weights: that of the queries' product, and that of the product after
    attention."""

    def __init__(self, root: Value):
        self.users = users_of(root)
        self.plan: list[tuple[Value, int, list[int]]] = []

    def run(self) -> None:
        for value in list(self.users):
            value.axes = value.axes
        for value in list(self.users):
            if value.op == "attention":
                self.before(value)
                self.after(value)

    def only_user(self, value: Value) -> Value | None:
        return self.users[value][0] if len(self.users[value]) == 1 else None

    def before(self, attention: Value) -> None:
        """Matches: attention <- einsum that inserts `group` <- product with a weight."""
        unit = attention.operands[0]
        if not unit.is_("einsum", 1) or not self.only_user(unit):
            return
        source = unit.operands[0]
        by_letter = {letter_of(unit.maps[0], axis): axis for axis in source.axes}
        rows = [by_letter.get(unit.letter(axis)) for axis in unit.axes]
        only_group = rows[3] is None and unit.axes[3].size == 1 and [*rows[:3], rows[4]] == source.axes
        if only_group and rows[4] and self.insert(source, rows[4]):
            attention.operands[0] = source

    def after(self, attention: Value) -> None:
        """Matches: attention -> einsum that drops one dim -> product with a weight."""
        drop = self.only_user(attention)
        after = self.only_user(drop) if drop else None
        if not drop or not drop.attrs.get("unit") or not after or not after.is_("einsum", 2):
            return
        kept = {drop.letter(axis): axis for axis in drop.axes}
        lost = [axis for axis in attention.axes if letter_of(drop.maps[0], axis) not in kept]
        i = after.operands.index(drop)
        weight = after.operands[1 - i]
        if len(lost) != 1 or weight.op != "parameter" or not self.only_user(weight):
            return
        names = {axis: letter_of(after.maps[i], kept[letter]) for axis in attention.axes if (letter := letter_of(drop.maps[0], axis)) in kept}
        following = names[attention.axes[attention.axes.index(lost[0]) + 1]]
        hit = [axis for axis in weight.axes if letter_of(after.maps[1 - i], axis) == following]
        if hit and self.insert(weight, hit[0]):
            unit: Letter = object()
            after.maps[1 - i][weight.axes[weight.axes.index(hit[0]) - 1]] = unit
            after.operands[i] = attention
            after.maps[i] = {axis: names.get(axis, unit) for axis in attention.axes}

    def insert(self, value: Value, before: Axis) -> bool:
        """Inserts a dim of size 1 before an axis of a value, and of the values from which it is computed."""
        self.plan = []
        if not self.can_insert(value, before):
            return False
        made: dict[Value, Axis] = {}
        unit: Letter = object()
        for target, at, operands in self.plan:
            axis = made[target] = new_axis(1, "group")
            following = target.axes[at]
            target.axes = [*target.axes[:at], axis, *target.axes[at:]]
            for box in target.attrs.get("boxes", []):
                if following in (axes := [leaf for a in box[3] for leaf in a.leaves()]):
                    axes.insert(axes.index(following), axis)
                    box[3] = axes
            if target.op == "einsum":
                target.letters[axis] = unit
                for i in operands:
                    target.maps[i][made[target.operands[i]]] = unit
        return True

    def can_insert(self, value: Value, before: Axis) -> bool:
        """Plans the insertion, operands first."""
        if not self.only_user(value):
            return False
        at, through = value.axes.index(before), []
        if value.op == "einsum":
            for i, (operand, letters) in enumerate(zip(value.operands, value.maps)):
                for axis in operand.axes:
                    if letter_of(letters, axis) == value.letter(before):
                        if not self.can_insert(operand, axis):
                            return False
                        through.append(i)
        elif value.op in ("add", "sub", "scale", "activation", "rope", "rms_norm", "layer_norm"):
            same = value.operands if value.op in ("add", "sub") else value.operands[:1]
            if not all(self.can_insert(operand, operand.axes[at]) for operand in same):
                return False
        elif value.op != "parameter":
            return False
        self.plan.append((value, at, through))
        return True


def check_whole(root: Value) -> None:
    """Checks ops that know a dim by its position: no view may have cut that dim since they were made."""
    for value in users_of(root):
        axes = value.uncut()
        last, rank = axes[-1:], len(value.axes)  # dims that an op does not know by place may be cut, alike in operands and result
        where = dict.fromkeys(("softmax", "layer_norm", "rms_norm", "top_k"), last)
        where |= {"rope": axes[:2] + last, "attention": axes, "rope_table": axes}
        where |= {"iota": axes, "input": [] if value.attrs.get("kind") == "data" else axes}  # rows of data may have any shape
        at, many, fewer = (value.attrs.get(name, default) for name, default in (("along", 0), ("to_axes", 1), ("from_axes", 1)))
        where |= dict.fromkeys(("columns", "reshape", "recurrence"), axes[at : at + many])
        for axis in where.get(value.op, []):
            if len(axis.leaves()) > 1:
                raise NeedsReshape(f"pc.{value.op} along a dim that views cut", axis.leaves())
        expected = {"cross_entropy": [rank + 1], "logsumexp": [rank + 1], "attention": [5, 4, 4]}
        expected |= dict.fromkeys(("columns", "reshape"), [len(value.axes) - many + fewer])
        if value.op == "embedding":
            expected["embedding"] = [len(value.axes) - len(value.operands[1].axes) + 1]
        for operand, count in zip(value.operands, expected.get(value.op, [])):
            if len(operand.axes) != count:
                raise NeedsReshape(f"pc.{value.op} along a dim that views cut", operand.axes)


def partly_used(root: Value) -> set[str]:
    """Stores a parameter as a whole tensor if some of its entries are in no box, so that checkpoints contain all of
    them."""
    boxes: dict[str, dict[tuple, int]] = {}
    total: dict[str, int] = {}
    for value in users_of(root):
        if value.op == "parameter":
            count = whole = 1
            for full, _, size, _ in value.attrs["boxes"]:
                count, whole = count * size, whole * full
            boxes.setdefault(value.attrs["name"], {})[tuple(tuple(box[:3]) for box in value.attrs["boxes"])] = count
            total[value.attrs["name"]] = whole
    return {name for name, found in boxes.items() if sum(found.values()) < total[name]}
