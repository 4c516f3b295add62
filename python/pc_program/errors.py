"""The error of a front end that refuses a model: the op, the user's source line, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .axes import Axis

INSIDE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)  # what a rule raises for operands that it does not take


class Refused(Exception):
    """A model, or a part of one, cannot become a program. `advice` says what to do instead."""

    def __init__(self, text: str, advice: str = ""):
        super().__init__(text)
        self.text, self.advice = text, advice
        self.line: str | None = None

    def at(self, op: str, line: str) -> Refused:
        """Adds the op and the user's line that are refused, unless they are known already."""
        if self.line is None:
            self.line = line
            self.text = f"{op}: {self.text}" if op and op not in self.text else self.text
        return self

    def message(self) -> str:
        return "\n  ".join(filter(None, [f"error: {self.text}", self.line, self.advice]))


class NeedsReshape(Refused):
    """An op needs a dim whole that views have cut into `axes`. One of these views must become an op."""

    def __init__(self, text: str, axes: list[Axis]):
        super().__init__(text, "Keep this dim in one piece: write the op on a dim that no view cuts or joins.")
        self.axes = axes
