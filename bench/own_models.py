#!/usr/bin/env python3
"""usage: bench/own_models.py [--decoders] [--plan FLAGS]... [NAME...]

Which users' models train as in PyTorch: exports each by pc_torch, trains 5 steps under every plan and compares the losses,
and the gradients of the first step, with torch.optim.AdamW. Models are those of test/Torch/models; with --decoders, tiny
ones of transformers' classes that pc-import has no row for. Prints a table with the largest relative differences of losses
and of gradients. Needs torch (and transformers) in this python3, and pc-compile and pc-run in PATH or in build/bin."""

import argparse
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/Torch")]
warnings.filterwarnings("ignore")
import torch
from pc_program.errors import Refused
from pc_torch.check import gradient_differences, named_gradients, write_data
from pc_torch.export import export
from safetensors.torch import load_file

STEPS, RATE, DECAY = 5, 1e-3, 1e-2
PLANS = ["", "--mesh dp=2", "--mesh tp=2", "--mesh dp=2 --zero=3", "--mesh pp=2 --microbatches=2", "--auto --ranks 2"]
LOSSES, GRADIENTS = 1e-6, 1e-5


def ranks_of(plan):
    if found := re.search(r"--ranks (\d+)", plan):
        return int(found[1])
    result = 1
    for size in re.findall(r"\w=(\d+)", (re.search(r"--mesh (\S+)", plan) or ["", ""])[1]):
        result *= int(size)
    return result


def random_steps(exported, inputs):
    """Random inputs of each step. Targets are the next tokens, as a run takes them."""
    generator = torch.Generator().manual_seed(1)
    kinds = {kind: name for name, kind in exported.kinds.items()}
    steps = []
    if "tokens" in kinds:
        batch, length = inputs[kinds["tokens"]].shape
        vocabulary = exported.config["vocab_size"]
        stream = torch.randint(0, vocabulary, (STEPS * batch * length + 1,), generator=generator)
        for step in range(STEPS):
            part = stream[step * batch * length : (step + 1) * batch * length + 1]
            steps.append({kinds["tokens"]: part[:-1].view(batch, length), kinds["targets"]: part[1:].view(batch, length)})
        return steps
    for _ in range(STEPS):
        steps.append({})
        for name, example in inputs.items():
            if example.is_floating_point():
                steps[-1][name] = torch.randn(example.shape, generator=generator)
            else:
                steps[-1][name] = torch.randint(0, int(example.max()) + 1, example.shape, generator=generator)
    return steps


def train_torch(module, steps):
    """Losses, and the gradients of the first step."""
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY)
    losses, gradients = [], {}
    for step in steps:
        loss = loss_of(module(**step))
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or named_gradients(module)
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def zero_gradients(module, step):
    """Parameters whose gradient is 0 in exact arithmetic, such as biases of keys: its digits in f32 are rounding errors. A module that does not
    compute in f64 has none."""
    exact = copy.deepcopy(module).double()
    try:
        loss_of(exact(**{name: x.double() if x.is_floating_point() else x for name, x in step.items()})).backward()
    except RuntimeError:
        return []
    norms = {name: float(gradient.norm()) for name, gradient in named_gradients(exact).items()}
    return [name for name, norm in norms.items() if norm < 1e-12 * max(norms.values())]


def loss_of(result):
    return next(r for r in result if r.dim() == 0) if isinstance(result, tuple) else result


def without_dropout(module):
    """No elements drop: a run cannot drop those that PyTorch drops."""
    for part in module.modules():
        for rate in [name for name in ("p", "dropout") if isinstance(getattr(part, name, None), float)]:
            setattr(part, rate, 0.0)


def run(binaries, *command):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} {done.returncode}: {' '.join(done.stderr.split())[:200]}")


def try_plan(plan, folder, data, losses, gradients, zero, binaries):
    """The largest relative differences of losses and of gradients. Those that are 0 are compared with the largest gradient."""
    run(binaries, "pc-compile", folder / "model.mlir", "-o", folder / "train", *plan.split())
    common = ["pc-run", "-n", ranks_of(plan), folder / "train", "--", *data, "--lr", RATE, "--weight-decay", DECAY]
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    run(binaries, *common, "--steps", STEPS, "--metrics", out / "metrics")
    got = [json.loads(line)["loss"] for line in (out / "metrics").read_text().splitlines()]
    differences = [abs(a - b) / abs(a) for a, b in zip(losses, got)]
    run(binaries, *common, "--steps", 1, "--dump-grads", out / "grads.safetensors")
    largest = {name: max(gradients.values(), key=torch.norm) for name in zero}
    got = load_file(out / "grads.safetensors")
    worst = max(float(got[name].norm() / gradient.norm()) for name, gradient in largest.items()) if zero else 0.0
    rest = {name: gradient for name, gradient in gradients.items() if name not in zero}
    worst = max(worst, *(row[0] for row in gradient_differences(out / "grads.safetensors", rest)))
    return max(differences), worst


def try_model(name, make, plans, binaries):
    """Prints a row of the table; returns whether all plans train as PyTorch does."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        try:
            module, inputs = make()
            without_dropout(module)
            exported = export(module, inputs, name, 0.0)
            exported.write(folder)
        except Refused as error:
            print(f"| {name} | no | refused: {cell(error.message())} |", flush=True)
            return False
        steps = random_steps(exported, inputs)
        data = write_data(folder, exported, steps)
        zero = zero_gradients(module, steps[0])
        losses, gradients = train_torch(module, steps)
        cells, good = [], True
        for plan in plans:
            try:
                loss, gradient = try_plan(plan, folder, data, losses, gradients, zero, binaries)
                good &= loss <= LOSSES and gradient <= GRADIENTS
                cells.append(f"{loss:.0e} {gradient:.0e}")
            except RuntimeError as error:
                good = False
                cells.append(cell(str(error)))
        print(f"| {name} | {'yes' if good else 'no'} | {' | '.join(cells)} |", flush=True)
        return good


def cell(text):
    return re.sub(r'(File ")?/\S*/', r"\1", " ".join(text.split())).replace("|", "\\|")[:300]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[0].removeprefix("usage: "))
    parser.add_argument("--decoders", action="store_true")
    parser.add_argument("--plan", action="append")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    binaries = ROOT / "build/bin" if not shutil.which("pc-compile") else Path(shutil.which("pc-compile")).parent
    if given.decoders:
        import decoders as source
    else:
        import models as source
    made = {name: make for name, make in source.MODELS.items() if not given.names or name in given.names}
    plans = given.plan or PLANS
    print("| program | as PyTorch | " + " | ".join(plan.removeprefix("--mesh ") or "1 rank" for plan in plans) + " |")
    print("|---|---|" + "---|" * len(plans), flush=True)
    good = [try_model(name, make, plans, binaries) for name, make in made.items()]
    print(f"\n{sum(good)} of {len(good)} train as in PyTorch: losses to {LOSSES:.0e}, gradients to {GRADIENTS:.0e}")


main()
