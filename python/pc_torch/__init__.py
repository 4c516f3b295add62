"""A user's own PyTorch module as a program that pc compiles for any number of ranks.

`python -m pc_torch my_model:build -o DIR` writes it, `python -m pc_torch check` compares one step with PyTorch, and
`pc_torch.load` brings trained weights back. `pc_torch.recurrence` is an op for modules. docs/own-models.md describes all of them.
"""

from typing import Any

from .checkpoint import load

__all__ = ["load", "recurrence"]


def __getattr__(name: str) -> Any:
    if name != "recurrence":
        raise AttributeError(name)
    from .scan import recurrence

    return recurrence
