"""Names the op and the user's line that are refused."""

from __future__ import annotations

import os
import re

from torch.fx import Node

from pc_program.errors import Refused


def refused(node: Node | None, text: str, advice: str) -> Refused:
    return located(Refused(text, advice), node)


def located(error: Refused, node: Node | None) -> Refused:
    return error if node is None else error.at(str(node.target) if node.op == "call_function" else "", source_line(node))


def source_line(node: Node) -> str:
    """Returns the user's line that made a node: the innermost frame outside of PyTorch's own code."""
    own = f"{os.sep}torch{os.sep}"
    frames: list[tuple[str, str]] = []
    for line in (text.strip() for text in (node.meta.get("stack_trace") or "").splitlines()):
        if re.match(r'File ".*", line \d+', line):
            frames.append((line, ""))
        elif frames and line and not frames[-1][1]:
            frames[-1] = (frames[-1][0], line)
    outside = [f for f in frames if own not in f[0].split('"')[1]] or frames
    return ": ".join(part for part in outside[-1] if part) if outside else ""
