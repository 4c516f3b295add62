"""A loss written in JAX as a program that pc compiles for any number of ranks.

`python -m pc_jax my_model:build -o DIR` writes it, `python -m pc_jax check` compares one step with JAX, and `pc_jax.load`
brings trained weights back. docs/own-models.md describes all three. Dims, builder and text are those of pc_program.
"""

from .checkpoint import load

__all__ = ["load"]
