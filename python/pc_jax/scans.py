"""Rolls a lax.scan into ops on whole sequences, if it carries linear recurrences h = a * h + b of single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core
from jax.interpreters import partial_eval

from pc_program.rows import recurrence

ELEMENTWISE = ("mul", "div", "neg", "add", "add_any", "sub", "select_n", "convert_element_type", "copy", "copy_p")
LONGEST = 256  # steps of a scan that is unrolled although it is not over parameters


def rolled(m: Any, eqn: Any, arguments: list[Any], scope: str) -> list[Any] | None:
    """Returns the results of a scan, or None if it must be unrolled. One trace computes a and b of all steps at once, a second one the outputs."""
    p = eqn.params
    steps = Steps(p)
    if p["reverse"] or not p["num_carry"] or not steps.are_linear():
        return None
    shapes = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in eqn.invars]
    starts_at_zero = [isinstance(x, np.ndarray) and not x.any() for x in arguments[steps.first : steps.last]]
    found = evaluate(m, lambda *given: steps.factors(given, starts_at_zero), shapes, arguments, scope)
    histories = []
    for a, b in zip(found[::2], found[1::2]):
        m.layer = m.layer_of([], scope)
        histories.append(b if isinstance(a, np.ndarray) and not a.any() else recurrence(m, m.lift(a), m.lift(b), 0))
    states = [jax.ShapeDtypeStruct((p["length"], *s.shape), s.dtype) for s in shapes[steps.first : steps.last]]
    used = [type(var).__name__ != "DropVar" for var in eqn.outvars]
    results = iter(evaluate(m, lambda *given: steps.outputs(given, used), [*shapes, *states], [*arguments, *histories], scope))
    return [next(results) if use else None for use in used]


def evaluate(m: Any, f: Callable[..., Any], shapes: Sequence[Any], arguments: Sequence[Any], scope: str) -> list[Any]:
    traced = jax.make_jaxpr(f)(*shapes)
    return m.eval(traced.jaxpr, [np.asarray(c) for c in traced.consts], arguments, scope)


class Steps:
    """The body of a scan. Its operands are constants, then carried values from `first` to `last`, then entries."""

    def __init__(self, p: dict[str, Any]):
        self.closed, self.body, self.length = p["jaxpr"], p["jaxpr"].jaxpr, p["length"]
        self.first, self.last = p["num_consts"], p["num_consts"] + p["num_carry"]
        self.shapes = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in self.body.invars]

    def step(self, *given: Any) -> list[Any]:
        return jax.core.eval_jaxpr(self.body, self.closed.consts, *given)

    def slope(self, k: int, change: Any, given: Sequence[Any]) -> Any:
        """Returns the change of carried value k in a step, if its value before the step changes by `change`."""
        at = self.first + k
        return jax.jvp(lambda h: self.step(*given[:at], h, *given[at + 1 :])[k], (given[at],), (change,))[1]

    def terms(self, *given: Any) -> list[Any]:
        """Returns a and b of each carried value."""
        result = []
        for k, h in enumerate(given[self.first : self.last]):
            at = self.first + k
            result += [self.slope(k, jax.numpy.ones_like(h), given), self.step(*given[:at], jax.numpy.zeros_like(h), *given[at + 1 :])[k]]
        return result

    def are_linear(self) -> bool:
        """Tells whether a and b depend on no carried value, and an element of a carried value changes only the same element."""
        carried = self.shapes[self.first : self.last]
        if not all(np.issubdtype(shape.dtype, np.floating) for shape in carried):
            return False
        terms = jax.make_jaxpr(self.terms)(*self.shapes).jaxpr
        _, used = partial_eval.dce_jaxpr(terms, [True] * len(terms.outvars))
        slopes = (jax.make_jaxpr(lambda change, *given, k=k: self.slope(k, change, given))(h, *self.shapes) for k, h in enumerate(carried))
        return not any(used[self.first : self.last]) and all(is_elementwise(s.jaxpr, {s.jaxpr.invars[0]}) for s in slopes)

    def factors(self, given: Sequence[Any], starts_at_zero: Sequence[bool]) -> list[Any]:
        """Returns a and b of all steps. The first b includes a times the value before the scan."""
        axes = [None] * self.last + [0] * (len(given) - self.last)
        found = jax.vmap(self.terms, in_axes=axes, axis_size=self.length)(*given)
        for k, is_zero in enumerate(starts_at_zero):
            if not is_zero:
                a, b = found[2 * k : 2 * k + 2]
                first = a[:1] * given[self.first + k] + b[:1]
                found[2 * k + 1] = lax.concatenate([first, lax.slice_in_dim(b, 1, None)], 0)
        return found

    def outputs(self, given: Sequence[Any], used: Sequence[bool]) -> list[Any]:
        """Returns the carried values at the end and the outputs of all steps, given the carried values after each step."""
        count = self.last - self.first
        given, after = list(given[: len(self.shapes)]), given[len(self.shapes) :]
        before = [lax.concatenate([h[None], lax.slice_in_dim(all_, 0, -1)], 0) for h, all_ in zip(given[self.first : self.last], after)]
        carried = [var for var in self.body.outvars[:count] if isinstance(var, core.Var) and var not in self.body.invars]
        known = dict(zip(self.body.outvars[:count], after))
        rest = [eqn for eqn in self.body.eqns if not set(eqn.outvars) <= set(carried)]
        body = self.body.replace(invars=[*self.body.invars, *carried], outvars=self.body.outvars[count:], eqns=rest, debug_info=None)
        operands = [*given[: self.first], *before, *given[self.last :], *(known[var] for var in carried)]
        axes = [None] * self.first + [0] * (len(operands) - self.first)
        found = jax.vmap(lambda *values: jax.core.eval_jaxpr(body, self.closed.consts, *values), in_axes=axes)(*operands)
        ends = [lax.index_in_dim(all_, -1, keepdims=False) for all_ in after]
        return [x for x, use in zip([*ends, *found], used) if use]


def is_elementwise(jaxpr: Any, changed: set[Any]) -> bool:
    """Tells whether all ops that depend on the operands `changed` work element by element."""
    for eqn in jaxpr.eqns:
        places = [i for i, var in enumerate(eqn.invars) if not isinstance(var, core.Literal) and var in changed]
        if not places:
            continue
        if eqn.primitive.name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"].jaxpr
            if not is_elementwise(inner, {inner.invars[i] for i in places}):
                return False
        elif eqn.primitive.name not in ELEMENTWISE or any(eqn.invars[i].aval.shape != eqn.outvars[0].aval.shape for i in places):
            return False
        changed |= set(eqn.outvars)
    return True
