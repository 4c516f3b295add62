"""usage: trained.py [OP...]

Rules of single ops against PyTorch, also where values are equal or 0, and trained weights back in the module. With names, only
these ops. Needs PyTorch, pc-compile and pc-run."""
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import pc_torch
import torch
import torch.nn as nn
import torch.nn.functional as F
from models import MODELS
from pc_torch.check import gradient_differences, named_gradients, run, write_data
from pc_torch.export import export

B, N = 4, 7
OPS = {
    "maximum": lambda a, b, x: torch.maximum(a, b),
    "minimum": lambda a, b, x: torch.minimum(a, b * 2),
    "maximum_number": lambda a, b, x: torch.maximum(a, torch.zeros(())),
    "max_other": lambda a, b, x: torch.max(a, b),
    "abs": lambda a, b, x: a.abs() + (a - b).abs(),
    "clamp": lambda a, b, x: a.clamp(min=0) + b.clamp(-0.5, 0.5),
    "relu6": lambda a, b, x: F.relu6(a),
    "leaky": lambda a, b, x: F.leaky_relu(a, 0.1) + F.elu(b),
    "softplus": lambda a, b, x: F.softplus(a) + F.logsigmoid(b) + F.mish(a),
    "where": lambda a, b, x: torch.where(a < b, a * a, b.exp()) + torch.where(a >= 0, a, 0.0),
    "where_input": lambda a, b, x: torch.where(x > 0, a, b * b),
    "masked_fill": lambda a, b, x: (a * b).masked_fill(a.eq(b), 3.0) + a.masked_fill(x <= 0.1, -1.0),
    "factors": lambda a, b, x: a * (a > b) + b * (x != 0).float() + a * (x.ge(b)).to(a.dtype) + a * x.bool(),
    "logic": lambda a, b, x: torch.where((a < 0) & ~(b < 0) | (x > 0.3), a, b) + a * torch.logical_not(x.lt(0.2)),
    "logsumexp": lambda a, b, x: torch.logsumexp(a + x, -1, keepdim=True).square() + torch.logsumexp(x * b, 0),
    "log_softmax": lambda a, b, x: F.log_softmax(a * x, 0) * b,
    "angles": lambda a, b, x: a.sin() * (x + b).cos(),
    "softmax_of_mask": lambda a, b, x: torch.softmax((a * b + x).masked_fill(x < -0.3, float("-inf")), -1),
    "cumsum": lambda a, b, x: (a + x).cumsum(-1) + (a * x).view(2, 2, N).cumsum(0).view(B, N) + a.expand(B, N).cumsum(0),
    "recurrence": lambda a, b, x: pc_torch.recurrence(a.sigmoid(), x * b, 0) + pc_torch.recurrence((a * x).unsqueeze(0), (b + x).unsqueeze(0), -1)[0],
    "loop": lambda a, b, x: loops(a, b, x),
    "substitution": lambda a, b, x: (substitution(a * x.unsqueeze(-1) + b) @ x.unsqueeze(-1)).squeeze(-1),
    "cumprod": lambda a, b, x: (a + x).cumprod(-1) + (a * x).cumprod(0) * b,
    "rows": lambda a, b, x: x[[1, 0, 3, 1]] * a[[2, 2, 0, 6, 5, 4, 3]] + F.embedding(torch.tensor([[3, 1], [1, 0]]), b * x).sum(1)[[0, 1, 1, 0]],
    "attention": lambda a, b, x: F.scaled_dot_product_attention(*3 * [(a * x).view(B, 1, 1, N).expand(B, 2, N, N) + b], attn_mask=(x > -0.5)[:, None, None, :]).mean((1, 2)),
}


def loops(a, b, x):
    """Recurrences and a maximum that loops compute, also of two values, from a start other than 0, and with a use of the last state."""
    h, m, g, states, out = a * 1.5, b - 1.0, torch.zeros(N), [], torch.zeros_like(x)
    for t in range(len(x)):
        m = torch.maximum(m - 0.1, x[t] * a)
        h = (x[t] - m).exp() * h - b * x[t]
        g = h * 0.5 - g * m
        out[t] = g.tanh() * h
        states.append(h.unsqueeze(0))
    return out + torch.cat(states) * g + m


def softmax_of_best(x):
    """Weights of three choices, laid over all entries by comparison with each."""
    values, chosen = x.topk(3)
    return (F.one_hot(chosen, N).float() * values.softmax(-1).unsqueeze(-1)).sum(1) + (values * (chosen == 2)).sum(-1, keepdim=True)


def biased_choice(a, scores):
    """Chosen by one score, weighted by another; of the smallest, two."""
    chosen = (scores + 10 * a).topk(2)[1]
    weights = scores.sigmoid().gather(1, chosen)
    laid = torch.zeros(B, N).scatter(1, chosen, weights / weights.sum(-1, keepdim=True))
    return laid + scores.scatter(1, torch.topk(scores, 2, largest=False)[1], 0.5)


def sorted_pairs(x, scale):
    """Pairs of a row and a choice, sorted by choices, scaled by what belongs to each choice, put back and summed; and summed by row."""
    values, chosen = F.linear(x, torch.eye(5, N)).topk(2)
    order = chosen.view(-1).sort()[1]
    rows, weights = x[order // 2], values.reshape(-1)[order].unsqueeze(-1)
    inverse = torch.empty_like(order).index_put((order,), torch.arange(2 * B))
    back = (rows * weights)[inverse].view(B, 2, N).sum(1)
    return back + torch.zeros(B, N).index_add(0, order // 2, rows.tanh() + weights) * scale


OPS |= {
    "topk": lambda a, b, x: softmax_of_best(a + 3 * x * b.exp()),
    "topk_smallest": lambda a, b, x: biased_choice(a, x * b.exp()),
    "topk_sorted": lambda a, b, x: sorted_pairs(x * a.exp(), b),
    "max": lambda a, b, x: (x * a.exp()).max(-1, keepdim=True)[0] * b + (x * b.exp()).max(0)[0],
}


class Ops(nn.Module):
    """The mean of each op's result, weighted, of parameters with equal elements and zeros; and a loss at zeros."""

    def __init__(self):
        super().__init__()
        a = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0, -0.0, 0.3])
        b = torch.tensor([1.0, 0.0, 0.5, -0.5, -2.0, 0.0, 0.6])
        self.a = nn.ParameterDict({name: a.clone() for name in OPS})
        self.b = nn.ParameterDict({name: b.clone() for name in OPS})
        self.head = nn.Linear(N, 1)
        nn.init.zeros_(self.head.weight), nn.init.zeros_(self.head.bias)

    def forward(self, x, weight, label):
        total = F.binary_cross_entropy_with_logits(self.head(x), label)
        for name, f in OPS.items():
            total = total + (f(self.a[name], self.b[name], x) * weight).mean()
        return total


def step(folder, module, inputs, tolerance, meshes=("dp=1",)):
    """Runs one step on each mesh, and compares every gradient."""
    exported = export(module, inputs)
    exported.write(folder)
    module(**inputs).backward()
    data = write_data(folder, exported, [inputs])
    good = True
    for mesh in meshes:
        (folder / mesh).mkdir()
        gradients = folder / mesh / "gradients.safetensors"
        run(None, "pc-compile", folder / "model.mlir", "-o", folder / "train", "--mesh", mesh)
        run(None, "pc-run", "-n", mesh.partition("=")[2], folder / "train", "--", *data, "--steps", 1, "--dump-grads", gradients)
        for difference, name in gradient_differences(gradients, named_gradients(module)):
            if difference > tolerance:
                print(f"FAIL  {mesh}: {name}: the gradient differs by {difference:.1e}")
                good = False
    return good


def round_trip(folder, name, plan):
    """Trains 3 steps, loads the checkpoint into the module, and compares its parameters with those that PyTorch trains. Adam divides a gradient
    by its size, so an element whose gradient is rounding noise moves at random: elements are left out whose gradient was below 1e-5 of the
    largest one of the model in some step, such as biases of keys, whose gradient is 0 in exact arithmetic. Most elements must be compared."""
    module, inputs = MODELS[name]()
    exported = export(module, inputs, name)
    exported.write(folder)
    names = {kind: own for own, kind in exported.kinds.items()}
    stream = torch.randint(0, 96, (3 * inputs[names["tokens"]].numel() + 1,))
    shape = (3, *inputs[names["tokens"]].shape)
    steps = [{names["tokens"]: a, names["targets"]: b} for a, b in zip(stream[:-1].view(shape), stream[1:].view(shape))]
    data = write_data(folder, exported, steps)
    run(None, "pc-compile", folder / "model.mlir", "-o", folder / "train", "--mesh", plan)
    flags = ["--steps", 3, "--lr", 1e-3, "--weight-decay", 1e-2, "--save", folder / "trained"]
    run(None, "pc-run", "-n", 2, folder / "train", "--", *data, *flags)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=1e-2)
    known = [torch.ones_like(p, dtype=torch.bool) for p in module.parameters()]
    for given in steps:
        result = module(**given)
        optimizer.zero_grad()
        (result[1] if isinstance(result, tuple) else result).backward()
        least = 1e-5 * max(float(p.grad.abs().max()) for p in module.parameters())
        known = [k & ((p.grad.abs() >= least) | (p.grad == 0)) for k, p in zip(known, module.parameters())]
        optimizer.step()
    loaded, _ = MODELS[name]()
    loaded.load_state_dict(pc_torch.load(folder / "trained", loaded))
    worst = max(float(((p - q).abs() * k).max()) for p, q, k in zip(loaded.parameters(), module.parameters(), known))
    share = sum(int(k.sum()) for k in known) / sum(k.numel() for k in known)
    good = worst < 2e-6 and share > 0.9
    print(f"{'ok  ' if good else 'FAIL'}  {name} {plan}: 3 steps and back, {100 * share:.1f} % of parameters differ by at most {worst:.1e}")
    return good


class Cut(nn.Module):
    """A table that is expanded over the batch, and padding of entries whose other dim a view cuts afterwards."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(N, 8)

    def forward(self, x):
        y = self.head(x.unsqueeze(1) * torch.arange(6.0).expand(B, 6).unsqueeze(2))
        return F.pad(y, (0, 0, 1, 0)).view(B, 7, 2, 4).sum(3).square().mean()


class Preferences(nn.Module):
    """DPO: two passes with the same weights, and two of a frozen reference."""

    def __init__(self):
        super().__init__()
        self.policy, self.reference = (nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.reference.requires_grad_(False)

    def forward(self, chosen, rejected, chosen_targets, rejected_targets):
        def likelihood(model, ids, targets):
            return -F.cross_entropy(model(ids).flatten(0, 1), targets.flatten(), reduction="none").view(ids.shape).sum(1)

        policy, reference = (likelihood(model, chosen, chosen_targets) - likelihood(model, rejected, rejected_targets) for model in (self.policy, self.reference))
        return -F.logsigmoid(0.1 * (policy - reference)).mean()


def preferences(folder):
    names = ("chosen", "rejected", "chosen_targets", "rejected_targets")
    good = step(folder, Preferences(), dict(zip(names, torch.randint(0, 32, (4, B, 6)))), 1e-5, ("dp=1", "dp=2", "tp=2"))
    print(f"{'ok  ' if good else 'FAIL'}  pairs of answers, of which one is preferred")
    return good


class Chunks(nn.Module):
    """A batch of one: a causal convolution, chunks of the sequence, and products of many matrices whose dims lie in any order."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, padding=2, groups=6)
        self.keys = nn.Linear(6, 2)

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))[:, :, :8].transpose(1, 2)
        a = self.keys(y).view(1, 4, 2, 2).cumsum(2)
        heads = y.reshape(1, -1, 2, 2, 3)
        scores = torch.einsum("bclhn,bcshn->bclsh", heads, heads) * a.unsqueeze(3)
        y = torch.einsum("bclsh,bcshp->bclhp", scores, heads).reshape(1, 8, 6)
        y = torch.stack([self.conv(y.transpose(1, 2))[:, :, 1:9].view(1, 2, 3, 8).transpose(2, 3)], 2)
        return (y.reshape(1, 2, 8, 3)[:, :, :7].transpose(1, 2).reshape(1, 7, 6) * x[:, 1:]).square().mean()


def chunks(folder):
    good = step(folder, Chunks(), dict(x=torch.randn(1, 8, 6)), 1e-5)
    text = (folder / "model.mlir").read_text()
    good &= "tensor<1x10x6xf32>" not in text and text.count("-> tensor<1x4x2x2x2xf32>") < 4
    print(f"{'ok  ' if good else 'FAIL'}  a batch of one, convolutions without padding, products of matrices")
    return good


def substitution(x):
    """(1 - l)^-1 of the strict lower triangle l, row by row."""
    x = x.tril(-1)
    for i in range(1, N):
        row, above = x[..., i, :i].clone(), x[..., :i, :i].clone()
        x[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
    return x + torch.eye(N)


class Looped(nn.Module):
    """A loop over the rows of an input."""

    def __init__(self, loop):
        super().__init__()
        self.loop = loop
        self.a, self.b = nn.Parameter(torch.rand(N)), nn.Parameter(torch.randn(N))

    def forward(self, x):
        return self.loop(self.a, self.b, x).square().mean()


def whole():
    """Neither needs the batch in a table, which microbatches could not split, or a view as an op."""
    exported = export(Cut(), dict(x=torch.randn(B, N)))
    good = 'frozen dims ["batch"' not in exported.text and not any("op of its own" in note for note in exported.notes)
    looped = export(Looped(loops), dict(x=torch.randn(32, N))).text
    good &= looped.count("pc.recurrence") == 2 and looped.count(" = pc.") < 200
    solved = export(Looped(OPS["substitution"]), dict(x=torch.randn(B, N))).text
    good &= "pc.columns" not in solved
    print(f"{'ok  ' if good else 'FAIL'}  tables that are expanded, dims that views cut, and loops")
    return good


def main():
    torch.manual_seed(0)
    for name in [name for name in OPS if sys.argv[1:] and name not in sys.argv[1:]]:
        del OPS[name]
    good = bool(sys.argv[1:]) or whole()
    with tempfile.TemporaryDirectory() as work:
        x = torch.randn(B, N)
        x[0, :3] = 0
        good &= chunks(Path(work) / "chunks")
        good &= preferences(Path(work) / "preferences")
        good &= step(Path(work), Ops(), dict(x=x, weight=torch.randn(B, N), label=(x[:, :1] > 0).float()), 1e-5)
        print(f"{'ok  ' if good else 'FAIL'}  {len(OPS)} groups of ops")
    for name in () if sys.argv[1:] else ("nanogpt", "nanogpt_nobias", "llama2c", "llama_half"):
        with tempfile.TemporaryDirectory() as work:
            good &= round_trip(Path(work), name, "tp=2")
    return not good


sys.exit(main())
