"""usage: make.py [--check] [NAME...]

Exports models of this folder to Inputs/NAME.mlir and trains them in PyTorch: figures.txt has the loss of each of 5 steps and the norm of the first
step's gradients. --check compares with what is there, instead: texts exactly, figures to 1e-6. Needs PyTorch."""
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
warnings.filterwarnings("ignore")
import torch
from models import MODELS
from pc_torch.export import export
from weights import BATCH, DECAY, RATE, SEQUENCE, STEPS, parameters_of, tokens, values

NAMES = "nanogpt nanogpt_nobias mingpt llama2c llama_complex llama_half mha_geglu modded convgpt named customloss moe_dense universal".split()


def exported(name):
    """The text, and the module with the tests' weights."""
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    program = export(module, inputs, name)
    own = dict(module.named_parameters())
    with torch.no_grad():
        for parameter, row in parameters_of(program.text).items():
            own[parameter].copy_(torch.tensor(values(parameter, *row)).view(row[0]))
    return program, module


def figures(program, module):
    stream = torch.tensor(tokens()).long()
    optimizer = torch.optim.AdamW(module.parameters(), lr=float(RATE), weight_decay=float(DECAY))
    inputs = {kind: name for name, kind in program.kinds.items()}
    losses, norm = [], None
    for step in range(STEPS):
        part = stream[step * BATCH * SEQUENCE:(step + 1) * BATCH * SEQUENCE + 1]
        result = module(**{inputs["tokens"]: part[:-1].view(BATCH, SEQUENCE), inputs["targets"]: part[1:].view(BATCH, SEQUENCE)})
        loss = result[1] if isinstance(result, tuple) else result
        optimizer.zero_grad()
        loss.backward()
        norm = norm or float(torch.stack([p.grad.norm() for p in module.parameters() if p.grad is not None]).norm())
        optimizer.step()
        losses.append(loss.item())
    return [*losses, norm]


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or NAMES
    file = HERE / "figures.txt"
    table = {row.split()[0]: row.split()[1:] for row in file.read_text().splitlines() if row and row[0] != "#"} if file.exists() else {}
    failed = False
    for name in names:
        program, module = exported(name)
        row = figures(program, module)
        path = HERE / "Inputs" / f"{name}.mlir"
        if check:
            same = program.text == path.read_text()
            worst = max(abs(float(a) - b) / abs(b) for a, b in zip(table[name], row))
            failed |= not same or worst > 1e-6
            print(f"{name}: {'the text' if same else 'ANOTHER TEXT'}, figures differ by {worst:.1e}")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(program.text)
            table[name] = [f"{value:.8f}" for value in row]
    if not check:
        head = "# Made by make.py with PyTorch: the model, its loss in each of 5 steps of AdamW, the norm of the first step's gradients\n"
        file.write_text(head + "".join(f"{name:15} {' '.join(row)}\n" for name, row in table.items()))
    return failed


sys.exit(main())
