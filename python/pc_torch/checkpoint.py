"""Reads the weights of a checkpoint back into the module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pc_program.program import checkpoint_files

if TYPE_CHECKING:
    import torch


def load(directory: str | Path, module: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
    """Returns a dict for `module.load_state_dict`: the tensors of a checkpoint of pc, or of an exported model, with
    tied names filled in. If `module` is given, tensors that a checkpoint does not have (buffers, and parameters that
    the loss does not need) come from the module."""
    from safetensors.torch import load_file

    directory, files = checkpoint_files(directory)
    config = json.loads((directory / "config.json").read_text())
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        tensors |= {name: tensor for name, tensor in load_file(file).items() if not name.startswith("pc_torch.")}
    for alias, own in config.get("tied", {}).items():
        tensors[alias] = tensors[own]
    if module is not None:
        tensors = {**module.state_dict(), **tensors}
    return tensors
