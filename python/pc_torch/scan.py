"""The linear recurrence as an op of PyTorch, for modules that would otherwise loop over a sequence. torch.export keeps it as one op."""

from __future__ import annotations

from typing import Any

import torch


@torch.library.custom_op("pc_torch::recurrence", mutates_args=())
def recurrence(a: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
    """Computes h[t] = a[t] h[t - 1] + b[t] along a dim of b, from h = 0. a is broadcast to b."""
    a, states = a.expand_as(b), [b.select(dim, 0).clone()]
    for t in range(1, b.shape[dim]):
        states.append(a.select(dim, t) * states[-1] + b.select(dim, t))
    return torch.stack(states, dim)


@recurrence.register_fake
def _(a: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty(b.shape, dtype=b.dtype, device=b.device)


def keep(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    a, _, ctx.dim = inputs
    ctx.save_for_backward(a, output)


def backward(ctx: Any, dh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    """The gradient of h is a recurrence in the other direction: g[t] = dh[t] + a[t + 1] g[t + 1]."""
    (a, h), dim, last = ctx.saved_tensors, ctx.dim, dh.shape[ctx.dim] - 1
    none = torch.zeros_like(h.narrow(dim, 0, 1))
    later = torch.cat([a.expand_as(h).narrow(dim, 1, last), none], dim)
    g = recurrence(later.flip(dim), dh.flip(dim), dim).flip(dim)
    return (g * torch.cat([none, h.narrow(dim, 0, last)], dim)).sum_to_size(a.shape), g, None


recurrence.register_autograd(backward, setup_context=keep)
