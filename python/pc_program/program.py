"""A program as files that pc-compile and pc-run read, and the user's function from which it is made."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .axes import DimClass
from .errors import NeedsReshape, Refused
from .text import Printer, quoted
from .tidy import check_whole, partly_used
from .values import Tensor

DIRECTORY = '"@directory@"'  # in the text, until it is known


@dataclass
class Exported:
    """`text` is the text of model.mlir and `config` that of config.json. `tensors` are the parameters by name."""

    text: str
    config: dict[str, Any]
    tensors: dict[str, Any]
    kinds: dict[str, str]  # input: tokens, targets or data
    rows: dict[str, list[int]]  # data: the shape in which a run reads a sample
    notes: list[str]
    save: Callable[[dict[str, Any], Path], None]  # tensors as a safetensors file
    dropout: bool = False

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.mlir").write_text(self.text.replace(DIRECTORY, quoted(str(directory.resolve()))))
        (directory / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        self.save(self.tensors, directory / "model.safetensors")


def called(what: str, fits: Callable[[Any], bool], returns: str, advice: str) -> tuple[str, Any]:
    """Imports MODULE:FUNCTION, such as my_model:build, from the current directory or the path. Returns its name and its
    result."""
    file, colon, function = what.partition(":")
    if not colon or not function:
        raise Refused(f"'{what}' does not name a function", "Write MODULE:FUNCTION, as in my_model:build.")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(file), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise Refused(f"'{what}' is not found: {error}", "The module must be in the current directory or on PYTHONPATH.") from None
    made = make()
    if not fits(made):
        raise Refused(f"{what}() does not return {returns}", advice)
    return function.removeprefix("build_") if function != "build" else file, made


def batch_of(shapes: Mapping[str, Sequence[int]]) -> int:
    batches = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    if len(set(batches.values())) != 1 or 0 in batches.values():
        raise Refused(f"inputs differ in their first dim, the batch: {batches}", "The first dim of each input is the batch.")
    return next(iter(batches.values()))


def untraced(library: str, what: str, error: Exception, frame: str = "") -> Refused:
    text = next((line for line in str(error).strip().splitlines() if line.strip()), "no message")
    advice = f"Control flow and sizes must not depend on data; the documentation of {library} says what can be traced."
    return Refused(f"{library} cannot trace {what}: {type(error).__name__}: {text}", advice).at("", frame)


def walked(make: Callable[[set[Any], set[str]], Any], read: Callable[[Any], Any]) -> tuple[Any, Tensor]:
    """Repeats the walk until no other view must become an op, and no partly used parameter is divided."""
    reshapes: set[Any] = set()
    whole: set[str] = set()
    while True:
        walk = make(reshapes, whole)
        try:
            loss = read(walk)
            if not isinstance(loss, Tensor) or loss.dims or loss.value.axes:
                raise Refused("the loss is not a scalar that depends on the parameters", "Return its mean or sum.")
            check_whole(loss.value)
            if not (partly := partly_used(loss.value) - whole):
                return walk, loss
            whole |= partly
        except NeedsReshape as error:
            view = walk.view_to_blame(error)
            if view is None:
                raise
            reshapes.add(view)
        finally:
            DimClass.reading = None


def exported(
    package: str,
    name: str,
    printer: Printer,
    walk: Any,
    shapes: Mapping[str, Sequence[int]],
    save: Callable[[dict[str, Any], Path], None],
    vocabulary: int,
    layers: str,
    dropout: bool = False,
    **more: Any,
) -> Exported:
    """`layers` describes how a model can have layers, for a note. `more` is added to the config."""
    if printer.layers < 2:
        walk.note(f"{printer.layers} layers found: pipelines need {layers}")
    rows = {value.attrs["name"]: printer.sizes(value)[1:] for value in printer.order if value.attrs.get("kind") == "data"}
    for key, row in rows.items():
        if row != list(shapes[key][1:]):
            walk.note(f"files of '{key}' have rows of shape {row}, as views cut it: reshape(-1, {', '.join(map(str, row))}) keeps the order")
    for unused in [key for key in shapes if key not in walk.kinds]:
        walk.note(f"input '{unused}' is not used")
    tokens = next((key for key, kind in walk.kinds.items() if kind == "tokens"), None)
    sizes = f"batch {batch_of(shapes)} sequence {shapes[tokens][1] if tokens else 1} vocabulary {vocabulary}"
    config = {"exported_by": package, "module": name, "vocab_size": vocabulary, **more}
    text = printer.module(f"pc.program {quoted(name)} {sizes} config {quoted(json.dumps(config))} weights {DIRECTORY}")
    used = {value.attrs["name"] for value in printer.order if value.op == "parameter"}
    tensors = {key: tensor for key, tensor in walk.tensors.items() if key in used}
    return Exported(text, config, tensors, walk.kinds, rows, walk.notes, save, dropout)


def checkpoint_files(directory: str | Path) -> tuple[Path, list[Path]]:
    """Returns the newest checkpoint in a directory of checkpoints, or the directory itself, and its files of tensors."""
    directory = Path(directory)
    if (latest := directory / "latest").exists():
        directory = directory / latest.read_text().strip()
    return directory, sorted(directory.glob("model*.safetensors"))
