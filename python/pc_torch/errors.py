"""What the package refuses: the op, the user's own source line, and what to do instead."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

    from .axes import Axis


class Refused(Exception):
    """A module, or a part of one, that cannot become a program. `advice` says what to do instead."""

    def __init__(self, text: str, advice: str = "", node: Node | None = None):
        super().__init__(text)
        self.text, self.advice, self.node = text, advice, node

    def message(self) -> str:
        lines = [f"error: {self.text}"]
        if self.node is not None:
            if self.node.op == "call_function" and str(self.node.target) not in self.text:
                lines[0] = f"error: {self.node.target}: {self.text}"
            lines += [f"  {source_line(self.node)}"] if source_line(self.node) else []
        return "\n".join(lines + ([f"  {self.advice}"] if self.advice else []))


class NeedsReshape(Refused):
    """An op needs a dim whole that views have cut into `axes`: one of these views must become an op."""

    def __init__(self, text: str, axes: list[Axis]):
        super().__init__(text, "Keep this dim in one piece: write the op on a dim that no view cuts or joins.")
        self.axes = axes


def source_line(node: Node) -> str:
    """The user's line that made a node: the innermost frame that is not PyTorch's own code."""
    own = f"{os.sep}torch{os.sep}"
    frames: list[tuple[str, str]] = []
    for line in (text.strip() for text in (node.meta.get("stack_trace") or "").splitlines()):
        if re.match(r'File ".*", line \d+', line):
            frames.append((line, ""))
        elif frames and line and not frames[-1][1]:
            frames[-1] = (frames[-1][0], line)
    outside = [f for f in frames if own not in f[0].split('"')[1]] or frames
    return ": ".join(part for part in outside[-1] if part) if outside else ""
