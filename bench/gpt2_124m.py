#!/usr/bin/env python3
"""Compares this compiler with PyTorch on GPT-2 124M (f32 or bf16, AdamW, clip 1.0) in alternating rounds: one rank and
data parallelism, or with --forms the two-rank forms that split the model: ZeRO-3 (PyTorch: FSDP2) and pipelines
(torch.distributed.pipelining).

bench/gpt2_124m.sh prepares everything and calls `drive`, which prints Markdown and writes bench/results/*.json. `work`
is one PyTorch measurement in its own process, so that each starts with the environment under which it is measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# A pipeline's batch is 8 microbatches of one sequence. Its embedding and head are not tied: PyTorch's pipelines do not sum a weight
# that two stages use. The first stage has 9 of 12 layers: the head costs as much as five, and so the stages take the same time.
PIPELINE_BATCH, PIPELINE_CUT = 8, 9
# What keeps glibc from giving memory back and faulting it in again; PyTorch's own advice for CPU training goes as far.
TUNED = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


# --- one PyTorch measurement ------------------------------------------------


def gpt2(config, layers=None, tied=True):
    """GPT-2 as plain modules with scaled_dot_product_attention; gelu_new. With `layers` a stage of a pipeline: those of these layers, the
    embedding if the first is among them, the head and no loss if the last is."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    width, heads = config["n_embd"], config["n_head"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.proj_2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(width, dim=2))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, width))
            return x + self.proj_2(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.first, self.last = 0 in layers, config["n_layer"] - 1 in layers
            if self.first:
                self.wte, self.wpe = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["n_positions"], width)
            self.blocks = nn.ModuleList(Block() for _ in layers)
            if self.last:
                self.ln_f = nn.LayerNorm(width)
                if not (tied and self.first):
                    self.head = nn.Linear(width, config["vocab_size"], bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x, targets=None):
            if self.first:
                x = self.wte(x) + self.wpe.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            if self.last:
                x = F.linear(self.ln_f(x), self.head.weight if hasattr(self, "head") else self.wte.weight)
            return x if targets is None else cross_entropy(x, targets)

    torch.manual_seed(1)
    return Model(range(config["n_layer"]) if layers is None else layers)


def cross_entropy(logits, targets):
    import torch.nn.functional as F

    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def work(options):
    import numpy as np
    import torch

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(max(1, os.cpu_count() // world))
    config = json.loads(Path(options.config).read_text())
    if world > 1:
        torch.distributed.init_process_group("gloo")
    if options.form == "pp":
        cut = [range(PIPELINE_CUT), range(PIPELINE_CUT, config["n_layer"])]
        model, step = pipeline(gpt2(config, cut[rank], tied=False), rank, world)
        batch, first, local = PIPELINE_BATCH, 0, PIPELINE_BATCH
    else:
        model = gpt2(config)
        step = whole(model, options, world)
        batch, local = options.batch, options.batch // world
        first = rank * local
    optimizers = muon(model) if options.optimizer == "muon" else [adamw(model.parameters())]
    stream = torch.from_numpy(np.fromfile(options.data, dtype="uint8").astype("int64"))
    seconds, losses = [], []
    for number in range(options.warmup + options.steps):
        start = time.perf_counter()
        at = (number * batch + first + torch.arange(local))[:, None] * options.sequence + torch.arange(options.sequence)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            losses.append(step(stream[at % len(stream)], stream[(at + 1) % len(stream)]))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"step_seconds": seconds[options.warmup:], "losses": losses, "torch": torch.__version__}))


def adamw(parameters):
    import torch

    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, fused=True)


def muon(model):
    """torch.optim.Muon for the matrices of the blocks, with its Newton-Schulz in f32, and AdamW for the rest."""
    import torch

    def newton_schulz(gradient, coefficients, steps, eps):
        wide = gradient if gradient.size(0) <= gradient.size(1) else gradient.T
        x = wide / wide.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=coefficients[1], alpha=coefficients[2]), x, beta=coefficients[0])
        return x if wide is gradient else x.T

    torch.optim._muon._zeropower_via_newtonschulz = newton_schulz  # pylint: disable=protected-access
    matrices = [parameter for parameter in model.blocks.parameters() if parameter.dim() == 2]
    rest = [parameter for parameter in model.parameters() if all(parameter is not matrix for matrix in matrices)]
    return [torch.optim.Muon(matrices, lr=3e-4, weight_decay=0.1), adamw(rest)]


def whole(model, options, world):
    """A step of forward, backward and clipping of a model that every rank has, or has a shard of: from tokens and targets to the loss."""
    import torch

    trained = model
    if options.form == "fsdp":
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif world > 1:
        trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.compile:
        trained = torch.compile(trained)

    def step(tokens, targets):
        loss = trained(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        return loss.item()

    return step


def pipeline(stage, rank, world):
    """The same of one stage under 1F1B; the norm is over both stages."""
    import torch
    import torch.distributed.pipelining as pipelining

    place = pipelining.PipelineStage(stage, rank, world, torch.device("cpu"))
    schedule = pipelining.Schedule1F1B(place, PIPELINE_BATCH, loss_fn=cross_entropy)

    def step(tokens, targets):
        losses = []
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=targets, losses=losses)
        squares = torch.stack([p.grad.square().sum() for p in stage.parameters()]).sum()
        torch.distributed.all_reduce(squares)
        scale = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_([p.grad for p in stage.parameters()], scale)
        return float(torch.stack(losses).detach().mean()) if losses else 0.0

    return stage, step


# --- the rounds ---------------------------------------------------------------


def run_torch(options, ranks, compiled, tuned, form="ddp"):
    command = [sys.executable, __file__, "work", "--config", options.config, "--data", options.data, "--steps", str(options.steps), "--optimizer", options.optimizer,
               "--precision", options.precision, "--batch", str(options.batch), "--sequence", str(options.sequence), "--form", form]
    if compiled:
        command += ["--compile", "--warmup", "2"]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ)
        if tuned:
            environment |= TUNED
        if ranks > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
                            "OMP_NUM_THREADS": str(max(1, os.cpu_count() // ranks))}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"failed: {' '.join(command)}")
    return json.loads(outputs[0].splitlines()[-1])


def run_ours(options, ranks, program):
    metrics, summary = Path(options.work) / "metrics.jsonl", Path(options.work) / "summary.json"
    subprocess.run([options.pc_run, "-n", str(ranks), program, "--", "--data", "text:" + options.data, "--steps",
                    str(options.steps + 1),
                    "--lr", "3e-4", "--weight-decay", "0.1", "--clip", "1.0", "--seed", "1", "--metrics", metrics,
                    "--summary", summary], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {"step_seconds": [line["step_seconds"] for line in lines][1:], "losses": [line["loss"] for line in lines],
            "summary": json.loads(summary.read_text())}


def tokens_per_second(options, name, runs):
    """Median and best over all timed steps of all rounds."""
    seconds = [s for run in runs for s in run["step_seconds"]]
    tokens = (PIPELINE_BATCH if "pipeline" in name else options.batch) * options.sequence
    return tokens / statistics.median(seconds), tokens / min(seconds)


# What of ours is compared with what of PyTorch.
OURS = {"DDP": ["ours, dp=2"], "FSDP2": ["ours, dp=2 ZeRO-3"], "pipeline": ["ours, pp=2 pipeline, 1F1B", "ours, pp=2 pipeline, auto"]}


def drive(options):
    autocast = " autocast" if options.precision == "bf16" else ""
    variants = {
        "ours, 1 rank": lambda: run_ours(options, 1, options.one_rank),
        f"PyTorch{autocast} eager, as installed": lambda: run_torch(options, 1, False, False),
        f"PyTorch{autocast} eager, allocator tuned": lambda: run_torch(options, 1, False, True),
        f"torch.compile{autocast}, as installed": lambda: run_torch(options, 1, True, False),
        f"torch.compile{autocast}, allocator tuned": lambda: run_torch(options, 1, True, True),
        "ours, dp=2": lambda: run_ours(options, 2, options.two_ranks),
        f"PyTorch{autocast} DDP gloo, as installed": lambda: run_torch(options, 2, False, False),
        f"PyTorch{autocast} DDP gloo, allocator tuned": lambda: run_torch(options, 2, False, True),
    }
    if options.forms:
        variants = {
            "ours, dp=2 ZeRO-3": lambda: run_ours(options, 2, options.zero3),
            f"PyTorch{autocast} FSDP2 gloo, as installed": lambda: run_torch(options, 2, False, False, "fsdp"),
            f"PyTorch{autocast} FSDP2 gloo, allocator tuned": lambda: run_torch(options, 2, False, True, "fsdp"),
            "ours, pp=2 pipeline, 1F1B": lambda: run_ours(options, 2, options.pipeline),
            "ours, pp=2 pipeline, auto": lambda: run_ours(options, 2, options.pipeline_auto),
            f"PyTorch{autocast} 1F1B pipeline gloo, as installed": lambda: run_torch(options, 2, False, False, "pp"),
            f"PyTorch{autocast} 1F1B pipeline gloo, allocator tuned": lambda: run_torch(options, 2, False, True, "pp"),
        }
    if options.only:
        variants = {name: run for name, run in variants.items() if any(part in name for part in options.only.split(","))}
    runs = {name: [] for name in variants}
    peaks = []
    for round in range(options.rounds):
        peaks.append(json.loads(subprocess.run([options.peak], check=True, capture_output=True, text=True).stdout))
        for name, run in variants.items():
            runs[name].append(run())
            print(f"round {round + 1}: {name}: {tokens_per_second(options, name, runs[name][-1:])[0]:.0f} tokens/s", file=sys.stderr, flush=True)

    cpu = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    peak = max(p["all_threads_gflops"] for p in peaks)
    what = "multiply-add peak" if options.precision == "f32" else "bf16 peak (a large oneDNN product)"
    print(f"CPU {cpu}, {os.cpu_count()} threads; {options.precision}; {what} {peak:.0f} GF/s (best of {options.rounds} rounds). "
          f"Batch {options.batch}, T {options.sequence}; medians of {options.rounds} alternating rounds x {options.steps} steps.\n")
    print("| variant | tokens/s | best | share of peak | ours is |")
    print("|---|---|---|---|---|")
    flops = 6 * options.matrix_parameters * options.batch * options.sequence + options.attention_flops
    for name in variants:
        median, best = tokens_per_second(options, name, runs[name])
        ours = [] if name.startswith("ours") else next((own for theirs, own in OURS.items() if theirs in name), ["ours, 1 rank"])
        ratio = ", ".join(f"{tokens_per_second(options, own, runs[own])[0] / median:.2f}x" for own in ours if own in runs)
        share = flops * median / (options.batch * options.sequence) / (peak * 1e9)
        print(f"| {name} | {median:.0f} | {best:.0f} | {100 * share:.0f} % | {ratio} |")
    for name in variants:
        kinds = [run["summary"].get("time_by_kind", {}) for run in runs[name] if "summary" in run]
        if kinds:
            total = {kind: statistics.median(k[kind] for k in kinds) for kind in kinds[0]}
            print(f"\nWhere the time goes, {name} (rank 0): " + ", ".join(
                f"{kind} {100 * seconds / sum(total.values()):.1f} %" for kind, seconds in sorted(total.items(), key=lambda x: -x[1])))
    import json_runs  # not in the folder that scripts/gpu-check packs

    result = {"cpu": cpu, "threads": os.cpu_count(), "precision": options.precision, "batch": options.batch,
              "sequence": options.sequence, "peak": peaks, "flops_per_step": flops, "runs": runs}
    path = Path(__file__).parent / "results" / (options.name + ".json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json_runs.text(result))
    print(f"\nraw figures: bench/results/{path.name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, action in (("work", work), ("drive", drive)):
        command = commands.add_parser(name)
        command.set_defaults(action=action)
        command.add_argument("--config", required=True)
        command.add_argument("--data", required=True)
        command.add_argument("--steps", type=int, default=4)
        command.add_argument("--batch", type=int, default=2, help="sequences per step over all ranks (default %(default)s; 8 for pipelines)")
        command.add_argument("--sequence", type=int, default=1024)
        command.add_argument("--precision", choices=["f32", "bf16"], default="f32")
        command.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw", help="of PyTorch; ours is compiled")
    worker, driver = commands.choices["work"], commands.choices["drive"]
    worker.add_argument("--compile", action="store_true")
    worker.add_argument("--warmup", type=int, default=1)
    worker.add_argument("--form", choices=["ddp", "fsdp", "pp"], default="ddp")
    for name in ("pc-run", "one-rank", "two-ranks", "zero3", "pipeline", "pipeline-auto", "peak", "work", "name"):
        driver.add_argument("--" + name, required=True)
    driver.add_argument("--forms", action="store_true", help="measure ZeRO-3 and pipelines instead of one rank and data parallelism")
    driver.add_argument("--rounds", type=int, default=3)
    driver.add_argument("--only", help="only variants whose names contain one of these parts, separated by commas")
    options = parser.parse_args()
    if options.action is drive:
        config = json.loads(Path(options.config).read_text())
        width, layers = config["n_embd"], config["n_layer"]
        options.matrix_parameters = 12 * layers * width * width + config["vocab_size"] * width
        # Causal attention, forward and backward: 7 products of T x T/2 x head size a head.
        options.attention_flops = 7 * layers * options.batch * options.sequence**2 * width
    options.action(options)


if __name__ == "__main__":
    main()
