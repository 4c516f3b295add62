"""A user's own PyTorch module as a program that pc compiles for any number of ranks.

`python -m pc_torch my_model:build -o DIR` writes it, `python -m pc_torch check` compares one step with PyTorch, and
`pc_torch.load` brings trained weights back. docs/own-models.md describes all three.
"""

from .checkpoint import load

__all__ = ["load"]
