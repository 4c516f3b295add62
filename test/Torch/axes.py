"""Views and permutes of axes against the same ones of lists of numbers, drawn at random; and what is refused. Standard library only."""
import itertools
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from pc_program.axes import DimClass, flat, leaves, new_axis, product, regroup, sizes, unify
from pc_program.errors import Refused


def shape_of(draw, total):
    """A random factorization."""
    shape = []
    while total > 1:
        factor = draw.choice([d for d in range(2, total + 1) if total % d == 0])
        shape.append(factor)
        total //= factor
    return shape


def element(dims, place, axes):
    """The index of an element in the tensor whose axes are `axes`, from its place in one with `dims`."""
    index = {}
    for dim, i in zip(dims, place):
        for axis in reversed(leaves(dim)):
            index[axis], i = i % axis.size, i // axis.size
    result = 0
    for axis in leaves(axes):
        result = result * axis.size + index[axis]
    return result


def strides(shape):
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


def views(seed):
    """Views and permutes of one tensor; where a view is of parts that lie apart, axes refuse and the list is not asked."""
    draw = random.Random(seed)
    total = draw.choice([12, 16, 24, 36, 60, 64])
    axes = [new_axis(n) for n in shape_of(draw, total)]
    dims, shape, data = [[a] for a in axes], sizes(axes), list(range(total))
    done = 0
    for _ in range(6):
        if draw.random() < 0.5:
            order = draw.sample(range(len(shape)), len(shape))
            step = strides(shape)
            dims, new = [dims[i] for i in order], [shape[i] for i in order]
            data = [data[sum(place[k] * step[i] for k, i in enumerate(order))] for place in itertools.product(*map(range, new))]
            shape = new
        else:
            new = shape_of(draw, total)
            try:
                dims = regroup([a for d in dims for a in d], new)
            except Refused:
                continue
            shape, done = new, done + 1
    places = itertools.product(*map(range, shape))
    assert [element(dims, place, axes) for place in places] == data, seed
    return done


def joins():
    """What is cut in one tensor is cut in all that share the class, and letters of parts stay apart."""
    a, b = new_axis(24), new_axis(24)
    unify([a], [b])
    heads = regroup([a], [4, 6])
    assert sizes(leaves([b])) == [4, 6] and [g[0].dim for g in heads] == [x.dim for x in b.leaves()]
    unify([new_axis(2), new_axis(12)], [b])
    assert sizes(leaves([a])) == [2, 2, 6]
    assert product(a.leaves()) == 24 and flat([[a], [b]]) == a.leaves() + b.leaves()


def refusals():
    for bad in (lambda: unify([new_axis(4)], [new_axis(6)]), lambda: unify([new_axis(4)], []), lambda: regroup([new_axis(6), new_axis(4)], [4, 6])):
        try:
            bad()
        except Refused as error:
            assert "dim" in error.message(), error.message()
        else:
            raise AssertionError("not refused")
    DimClass.reading = "a view"
    axis = new_axis(6)
    regroup([axis], [2, 3])
    assert list(axis.leaves()[0].causes()) == ["a view"]


count = sum(views(seed) for seed in range(2000))
joins()
refusals()
print(f"{count} views, joins and refusals are right")
