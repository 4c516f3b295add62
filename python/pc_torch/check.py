"""One step on one rank beside PyTorch: the loss, and the gradient of every parameter."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .errors import Refused
from .export import Exported, Inputs, build, export

Row = tuple[float, str, list[int]]  # relative difference, name, shape


def named_gradients(module: torch.nn.Module) -> Inputs:
    return {name: p.grad.detach().clone() for name, p in module.named_parameters() if p.grad is not None}


def gradient_differences(file: Path, want: Inputs) -> list[Row]:
    """The norm of the difference relative to that of the gradient, or to 0.1 % of the largest gradient's norm if that is more: gradients that are
    0 but for rounding, as those of the biases of keys, have no digits."""
    from safetensors.torch import load_file

    got = load_file(file)
    floor = 1e-3 * max((float(gradient.norm()) for gradient in want.values()), default=0.0)
    rows = []
    for name, gradient in want.items():
        if name not in got:
            rows.append((float("inf") if bool(gradient.any()) else 0.0, name + " (no gradient in the program)", list(gradient.shape)))
            continue
        size = max(float(gradient.norm()), floor, 1e-30)
        rows.append((float((got[name].view_as(gradient) - gradient).norm()) / size, name, list(gradient.shape)))
    return rows


def write_data(folder: Path, exported: Exported, steps: Sequence[Inputs]) -> list[str]:
    """Files with the inputs of these steps, and the flags of a run that reads them."""
    flags, given = [], []
    for name, kind in exported.kinds.items():
        values = torch.cat([step[name] for step in steps])
        if kind == "data":
            given.append(f"{name}={folder / (name + '.npy')}")
            values = values.view(len(values), *exported.rows[name])
            write_npy(folder / f"{name}.npy", values if values.is_floating_point() else values.int())
        else:  # a run reads one token more than samples have
            stream = torch.cat([values.flatten(), values.flatten()[:1]])
            write_npy(folder / f"{kind}.npy", stream.int())
            flags += ["--data" if kind == "tokens" else "--targets", str(folder / f"{kind}.npy")]
    return flags + (["--data", ",".join(given)] if given else [])


def write_npy(path: Path, values: torch.Tensor) -> None:
    """NumPy's format, version 1, without NumPy."""
    kind = "<f4" if values.is_floating_point() else "<i4"
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(values.shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(values.contiguous().view(torch.uint8).flatten().tolist())
    )


def run(binaries: Path | None, tool: str, *arguments: Any) -> None:
    found = str(binaries / tool) if binaries else shutil.which(tool)
    if not found:
        raise Refused(f"{tool} is not in PATH", "Add the folder of pc's tools to PATH, or give --bin.")
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{tool} ended with {done.returncode}:\n{done.stderr.strip()}", "The program in the directory does not run on one rank.")


def check(what: str, directory: Path, tolerance: float, binaries: Path | None) -> int:
    name, module, inputs = build(what)
    exported = export(module, inputs, name)
    if exported.dropout:
        raise Refused(
            "the module has dropout, whose random numbers are not PyTorch's",
            "Let FUNCTION build it with rates of 0, for example by an environment variable; --dropout at export sets the rates of the program.",
        )
    step = {key: value.clone() for key, value in inputs.items()}
    result = module(**step)
    loss = next(r for r in result if isinstance(r, torch.Tensor) and r.dim() == 0) if isinstance(result, (tuple, list)) else result
    loss.backward()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        run(binaries, "pc-compile", directory / "model.mlir", "-o", folder / "train")
        flags = write_data(folder, exported, [step])
        flags += ["--init", str(directory), *"--steps 1 --lr 0 --weight-decay 0 --metrics".split(), str(folder / "metrics")]
        run(binaries, "pc-run", "-n", 1, folder / "train", "--", *flags, "--dump-grads", folder / "grads.safetensors")
        got = json.loads((folder / "metrics").read_text().splitlines()[0])["loss"]
        rows: list[Row] = [(abs(got - float(loss)) / abs(float(loss)), f"loss: {got:.7g}, PyTorch {float(loss):.7g}", [])]
        rows += gradient_differences(folder / "grads.safetensors", named_gradients(module))
    for difference, label, shape in rows:
        print(f"{'ok  ' if difference <= tolerance else 'FAIL'}  {difference:.1e}  {label}" + (f" {shape}" if shape else ""))
    wrong = sum(difference > tolerance for difference, *_ in rows)
    print(f"{len(rows) - wrong} of {len(rows)} within {tolerance:g}")
    return int(wrong > 0)
