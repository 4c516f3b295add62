"""What pc_torch refuses, each with exit status 3, the user's line and what to do. Needs PyTorch."""
import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "python")]
import torch
import torch.nn as nn
import torch.nn.functional as F
from pc_torch.cli import main


class Model(nn.Module):
    """A classifier of tokens. Each case changes `middle`."""

    def __init__(self, middle):
        super().__init__()
        self.table, self.out, self.middle = nn.Embedding(16, 8), nn.Linear(8, 16), middle

    def forward(self, ids, targets):
        return F.cross_entropy(self.out(self.middle(self.table(ids))).flatten(0, 1), targets.flatten())


class Sinh(nn.Module):
    def forward(self, x):
        return torch.sinh(x)


class Control(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Sparse(nn.Module):
    def forward(self, x):
        places = torch.where(x[..., 0] > 0)
        return x.index_put(places, 2 * x[places])


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.mine.twice(x)


class Best(nn.Module):
    """The mean over rows of their best values depends on the order of choices."""

    def forward(self, x):
        return x + x.topk(2)[0].mean(1, keepdim=True).sum(-1, keepdim=True)


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def of(middle):
    ids = torch.zeros(4, 6, dtype=torch.long)
    return Model(middle), dict(ids=ids, targets=ids.clone())


def build_op():
    return of(Sinh())


def build_control():
    return of(Control())


def build_sparse():
    return of(Sparse())


def build_best():
    return of(Best())


def build_noise():
    return of(Noise())


def build_norm():
    return of(nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(8), nn.Unflatten(0, (4, 6))))


@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(lambda x: torch.empty_like(x))


def build_custom():
    return of(Custom())


def build_same():
    module, inputs = of(nn.Identity())
    return module, dict(ids=inputs["ids"], targets=inputs["ids"])


def build_nothing():
    return nn.Identity()


def build_vector():
    class Loss(Model):
        def forward(self, ids, targets):
            return F.cross_entropy(self.out(self.table(ids)).flatten(0, 1), targets.flatten(), reduction="none")

    return Loss(nn.Identity()), of(nn.Identity())[1]


CASES = {
    "op": ["aten.sinh.default has no rule", "torch.sinh(x)", "own-models.md"],
    "control": ["torch.export cannot trace", "if x.sum() > 0", "must not depend on data"],
    "sparse": ["depends on data", "torch.where", "multiply with a mask"],
    "best": ["aten.mean.dim: this op has no rule for choices of topk", "x.topk(2)[0].mean", "take their softmax or sum"],
    "noise": ["aten.rand_like.default: random numbers", "torch.rand_like(x)", "dropout"],
    "norm": ["is changed by forward", "outside of the module"],
    "custom": ["mine.twice.default has no rule", "torch.ops.mine.twice(x)", "custom kernel"],
    "same": ["inputs 'ids' and 'targets' are one tensor", "clone()"],
    "nothing": ["does not return (module, inputs)", "Return the module and a dict"],
    "vector": ["returns 0 scalars", "It must return the loss"],
    "absent": ["is not found", "PYTHONPATH"],
}


def check():
    """Whether a case is not refused as it should be."""
    os.chdir(Path(__file__).parent)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, words in CASES.items():
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = main([f"refusals:build_{name}", "-o", f"{folder}/{name}"])
            wrong = [word for word in words if word not in said.getvalue()] + ([f"exit {code}"] if code != 3 else [])
            print(f"{'FAIL' if wrong else 'ok  '}  {name}" + (f": without {wrong}\n{said.getvalue()}" if wrong else ""))
            failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(check())
