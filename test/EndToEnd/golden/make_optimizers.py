#!/usr/bin/env python3
"""Writes optimizers.json: what PyTorch makes of golden models with other optimizers than AdamW and SGD, and with groups of parameters.

usage: make_optimizers.py [f32|OPTIMIZER]      (torch and transformers from PyPI; f32: prints how far f32 is from what the file holds; OPTIMIZER: only this one is
computed again)

For each optimizer and model: `losses` of make_golden.STEPS steps, and for each tensor of the checkpoint after them its Euclidean norm and its scalar
product with cos(0), cos(1), .... Everything is computed in double precision, with torch.optim.Muon (also its Newton-Schulz, which PyTorch computes in
bf16), torch.optim.Adafactor and torch.optim.AdamW(amsgrad=True). PyTorch has no Lion; this one follows algorithm 2 of Chen et al. 2023. Muon and Adafactor
treat q, k and v, and each expert, by itself, also where transformers has them in one tensor. The groups of `groups` are those of optimizers.py."""
import contextlib
import json
import sys
from pathlib import Path

import torch
import transformers

sys.path.append(str(Path(__file__).parent))
import make_golden  # pylint: disable=wrong-import-position

HERE = Path(__file__).parent
MODELS = ["gpt2", "gpt2-odd", "llama", "llama-tied", "mistral", "qwen3_moe"]
FLAGS = dict(lr=make_golden.LR, weight_decay=make_golden.WEIGHT_DECAY)
NOT_HIDDEN = ("wte.", "wpe.", "embed_tokens.", "lm_head.")


def newton_schulz(gradient, coefficients, steps, eps):
    """torch.optim._muon._zeropower_via_newtonschulz without its cast to bf16."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr, weight_decay, betas=(0.9, 0.99)):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay, betas=betas))

    @torch.no_grad()
    def step(self):  # pylint: disable=arguments-differ
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                momentum = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                sign = (first * momentum + (1 - first) * p.grad).sign()
                p.sub_(group["lr"] * (sign + group["weight_decay"] * p))
                momentum.mul_(second).add_(p.grad, alpha=1 - second)


def parts_of(name, tensor):
    """The tensor, or the parts of it that pc treats separately: q, k and v, and experts."""
    if "c_attn." in name:
        return tensor.chunk(3, dim=-1)
    if tensor.dim() == 3:
        parts = tensor.chunk(2, dim=1) if name.endswith("gate_up_proj") else [tensor]
        return [one for part in parts for one in part]
    return [tensor]


def matrices(name, tensor):
    """The hidden matrices in a tensor: none, itself, or parts of it."""
    hidden = tensor.dim() > 1 and not any(word in name for word in NOT_HIDDEN)
    return parts_of(name, tensor) if hidden else []


class Muon:
    """Muon for hidden matrices, and AdamW for the rest."""

    def __init__(self, model):
        self.parts = []
        rest = []
        for name, parameter in model.named_parameters():
            views = [torch.nn.Parameter(view) for view in matrices(name, parameter.detach())]
            self.parts += [(name, parameter, views)] if views else []
            rest += [] if views else [parameter]
        self.all = [torch.optim.Muon([view for _, _, views in self.parts for view in views], **FLAGS), torch.optim.AdamW(rest, **FLAGS)]

    def zero_grad(self):
        for parameter in [one for _, one, _ in self.parts] + self.all[1].param_groups[0]["params"]:
            parameter.grad = None

    def step(self):
        for name, parameter, views in self.parts:
            for view, gradient in zip(views, matrices(name, parameter.grad)):
                view.grad = gradient
        for one in self.all:
            one.step()


class Adafactor:
    """torch.optim.Adafactor for each matrix and vector. It has the eps of f32, also in double precision."""

    def __init__(self, model):
        self.parts = [(name, parameter, [torch.nn.Parameter(view) for view in parts_of(name, parameter.detach())])
                      for name, parameter in model.named_parameters()]
        views = [view for _, _, of in self.parts for view in of]
        self.all = [torch.optim.Adafactor(views, eps=(torch.finfo(torch.float).eps, 1e-3), **FLAGS)]

    def zero_grad(self):
        for _, parameter, _ in self.parts:
            parameter.grad = None

    def step(self):
        for name, parameter, views in self.parts:
            for view, gradient in zip(views, parts_of(name, parameter.grad)):
                view.grad = gradient
        self.all[0].step()


def groups(model):
    """Matrices of MLPs and experts, vectors, and the rest."""
    kinds = [{"params": [], "lr": FLAGS["lr"] / 2, "weight_decay": FLAGS["weight_decay"] / 2}, {"params": [], "lr": FLAGS["lr"] * 2, "weight_decay": 0, "betas": (0.8, 0.999)}, {"params": []}]
    for name, parameter in model.named_parameters():
        kinds[1 if parameter.dim() == 1 else 0 if "mlp" in name else 2]["params"].append(parameter)
    return kinds


OPTIMIZERS = {"adamw-groups": lambda model: torch.optim.AdamW(groups(model), **FLAGS), "sgd-groups": lambda model: torch.optim.SGD(groups(model), **FLAGS),
              "muon": Muon, "adafactor": Adafactor, "lion": lambda model: Lion(model.parameters(), **FLAGS), "amsgrad": lambda model: torch.optim.AdamW(model.parameters(), amsgrad=True, **FLAGS)}


def figures(name, optimizer, dtype):
    folder = HERE / name
    config = transformers.AutoConfig.from_pretrained(folder)
    if hasattr(config, "num_experts_per_tok"):
        config._experts_implementation = "eager"  # pylint: disable=protected-access
    model = make_golden.auto_class(name).from_pretrained(folder, config=config, attn_implementation="eager", dtype=torch.float32).train().to(dtype)
    with make_golden.no_casts_to_f32() if dtype == torch.double else contextlib.nullcontext():
        losses = make_golden.train(model, make_golden.Stream.read(folder), OPTIMIZERS[optimizer](model), make_golden.STEPS)
    tensors = {}
    for parameter, value in model.named_parameters():
        for part, tensor in make_golden.in_the_file(model.config, parameter, value.detach()):
            flat = tensor.flatten().double()
            tensors[part] = [flat.norm().item(), (flat @ torch.cos(torch.arange(len(flat), dtype=torch.double))).item()]
    return {"losses": losses.tolist(), "tensors": tensors}


def main():
    torch.optim._muon._zeropower_via_newtonschulz = newton_schulz  # pylint: disable=protected-access
    path = HERE / "optimizers.json"
    if sys.argv[1:] == ["f32"]:
        for optimizer, models in json.loads(path.read_text()).items():
            for name, exact in models.items():
                single = figures(name, optimizer, torch.float)
                loss = max(abs(a - b) / abs(b) for a, b in zip(single["losses"], exact["losses"]))
                worst = max((max(abs(x - y) for x, y in zip(single["tensors"][t], exact["tensors"][t])) / exact["tensors"][t][0], t) for t in exact["tensors"])
                print(f"{optimizer} {name}: losses {loss:.1e}, tensors {worst}")
        return
    result = json.loads(path.read_text()) if sys.argv[1:] else {}
    for optimizer in sys.argv[1:] or OPTIMIZERS:
        result[optimizer] = {name: figures(name, optimizer, torch.double) for name in MODELS}
    shorten = lambda x: {k: shorten(v) for k, v in x.items()} if isinstance(x, dict) else [float(f"{v:.8g}") for v in x]
    path.write_text(json.dumps(shorten(result)).replace("], ", "],\n").replace("}, ", "},\n") + "\n")


if __name__ == "__main__":
    main()
