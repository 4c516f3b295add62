"""usage: trained.py [MODEL...] [--plans A;B]

Exports the models, trains each 5 steps under each plan, and compares the losses with those of optax.adamw to 1e-6, and the first gradients on one
rank with those of jax.grad to 1e-5 (relative to at least 1 % of the largest: biases of keys have a gradient of rounding noise). Checks the page's
table of primitives. Needs jax, flax, equinox, optax, pc-compile and pc-run."""
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import jax
import models
import numpy as np
import optax
from pc_jax.check import differences, run, write_data
from pc_jax.export import Built, export
from pc_jax.table import ROWS
from pc_program.errors import Refused

STEPS, RATE, DECAY = 5, 1e-3, 1e-2
NAMES = ["plain", "linen", "nnx", "equinox", "scanned", "recurrent"]
PLANS = ["", "--mesh dp=2", "--mesh tp=2", "--mesh dp=2 --zero=3", "--mesh pp=2 --pipeline=1f1b --microbatches=2"]


def figures(built, steps):
    names, values = built.trained()
    optimizer = optax.adamw(RATE, weight_decay=DECAY)
    state, losses, first = optimizer.init(values), [], None
    of = jax.jit(jax.value_and_grad(built.of_leaves))
    for given in steps:
        loss, gradients = of(values, given)
        first = first or gradients
        updates, state = optimizer.update(gradients, state, values)
        values = optax.apply_updates(values, updates)
        losses.append(float(loss))
    return losses, names, first


def train(name, plans):
    built = Built(name, *getattr(models, name)())
    exported = export(built)
    stream = np.random.default_rng(5).integers(0, models.V, STEPS * models.B * models.T + 1, dtype=np.int32)
    shape = (STEPS, models.B, models.T)
    steps = [dict(idx=a, targets=b) for a, b in zip(stream[:-1].reshape(shape), stream[1:].reshape(shape))]
    want, names, gradients = figures(built, steps)
    good = True
    for plan in plans:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            exported.write(folder)
            run(None, "pc-compile", folder / "model.mlir", "-o", folder / "train", *plan.split())
            flags = [*write_data(folder, exported, steps), "--steps", STEPS, "--lr", RATE, "--weight-decay", DECAY, "--metrics", folder / "metrics"]
            flags += [] if plan else ["--dump-grads", folder / "gradients.safetensors"]
            run(None, "pc-run", "-n", 2 if plan else 1, folder / "train", "--", *flags)
            got = [json.loads(line)["loss"] for line in (folder / "metrics").read_text().splitlines()]
            worst = max(abs(a - b) / abs(b) for a, b in zip(got, want, strict=True))
            good &= worst < 1e-6
            text = f"losses differ by {worst:.1e}"
            if not plan:
                off = max(differences(folder / "gradients.safetensors", names, gradients, 1e-2))
                good &= off[0] < 1e-5
                text += f", gradients by {off[0]:.1e}"
            print(f"{'ok  ' if good else 'FAIL'}  {name} {plan or 'one rank'}: {text}", flush=True)
    return good


def refusal():
    """A long scan whose carried value is no linear recurrence."""
    step = lambda h, x: (jax.numpy.tanh(h + x), h)
    loss = lambda params, x: jax.lax.scan(step, params["start"], x.T)[0].sum()
    try:
        export(Built("long", loss, {"start": np.ones(2, np.float32)}, {"x": np.ones((2, 300), np.float32)}))
    except Refused as error:
        return "a scan of 300 steps would be unrolled" in error.message()
    return False


def table():
    """The page's table of primitives."""
    rows = "\n".join(f"| {', '.join(f'`{name}`' for name in names.split())} | {how} |" for names, how in ROWS)
    return f"| primitive | how |\n|---|---|\n{rows}\n"


def main():
    page = HERE.parents[1] / "docs/own-models.md"
    if "--write-table" in sys.argv:
        page.write_text(page.read_text().replace("ROWS\n", table()))
        return 0
    good = table() in page.read_text()
    print("ok    the page's table" if good else "FAIL  docs/own-models.md has another table of primitives than pc_jax")
    if not refusal():
        good = False
        print("FAIL  a long scan that is no recurrence is not refused")
    plans = sys.argv[sys.argv.index("--plans") + 1].split(";") if "--plans" in sys.argv else PLANS
    chosen = [name for name in sys.argv[1:] if hasattr(models, name)] or NAMES
    for name in chosen:
        good &= train(name, plans)
    return not good


sys.exit(main())
