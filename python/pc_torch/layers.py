"""Returns the path of a node's module, with numbers for siblings that are layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


class Modules:
    """Returns the paths of modules. Siblings of one class with equal parameters are layers, and get numbers if they have none."""

    def __init__(self, module: torch.nn.Module):
        self._numbered: dict[str, str] = {}
        for path, parent in module.named_modules():
            alike: dict[tuple, list[str]] = {}
            for name, child in parent.named_children():
                shapes = tuple((n, tuple(p.shape)) for n, p in child.named_parameters())
                if shapes and next(child.children(), None) is not None and not name.isdigit():
                    alike.setdefault((type(child).__name__.lower(), shapes), []).append(name)
            for (kind, _), names in alike.items():
                if len(names) > 1:
                    self._numbered |= {join(path, name): join(path, f"{kind}.{i}") for i, name in enumerate(names)}

    def layer(self, node: Node) -> str:
        stack = node.meta.get("nn_module_stack")
        path = list(stack.values())[-1][0] if stack else ""
        path = path.replace("L['self'].", "").replace("L['self']", "")
        for own, numbered in self._numbered.items():
            if path == own or path.startswith(own + "."):
                path = numbered + path[len(own) :]
        return path or "model"


def join(path: str, name: str) -> str:
    return f"{path}.{name}".lstrip(".")
