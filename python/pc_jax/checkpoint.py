"""Names parameters, and reads the weights of a checkpoint back into the tree of parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from pc_program.program import checkpoint_files


def named_leaves(params: Any) -> tuple[list[tuple[str, Any]], Any]:
    """Returns the leaves of a pytree by path, such as "h.0.attn.kernel", and its structure. Paths leave out the `value`
    in which Flax wraps variables."""
    rows, tree = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value") for path, _ in rows]
    return [(name, leaf) for name, (_, leaf) in zip(names, rows)], tree


def is_trained(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray)) and jax.numpy.issubdtype(leaf.dtype, np.floating)


def load(directory: str | Path, params: Any) -> Any:
    """Returns the parameters with the values of a checkpoint of pc, or of an exported model. Values that it does not
    have stay as in `params`."""
    from safetensors.numpy import load_file

    tensors: dict[str, np.ndarray] = {}
    for file in checkpoint_files(directory)[1]:
        tensors |= load_file(file)
    rows, tree = named_leaves(params)
    leaves = [jax.numpy.asarray(tensors[name].reshape(leaf.shape), leaf.dtype) if name in tensors else leaf for name, leaf in rows]
    return jax.tree_util.tree_unflatten(tree, leaves)
