#!/usr/bin/env python3
"""Compares a mixture of 8 experts, 2 per token, with 100 M active parameters, on two ranks of a CPU: this compiler
(ep=2 and dp=2) and transformers with `grouped_mm` under DDP on gloo, in alternating rounds. AdamW, clip 1.0, f32 or
bf16 (theirs under autocast).

usage: bench/experts.py [NAME] [--precision f32|bf16] [--rounds N] [--steps N] [--batch N] [--seq N]
                        [--layers N] [--alone]

Prints a table and writes bench/results/NAME.json (the default NAME is experts). --alone leaves transformers out.
$PC_VENV is a virtual environment with torch and transformers."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parent.parent
CONFIG = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 8192, "hidden_size": 768, "intermediate_size": 2048,
    "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_dropout": 0.0,
    "sliding_window": None, "output_router_logits": False, "router_aux_loss_coef": 0.0, "initializer_range": 0.02, "router_jitter_noise": 0.0,
}  # fmt: skip
WARM = 2  # steps that are not counted


def active(config):
    """The parameters that a token meets."""
    e, f, d = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // config["num_attention_heads"]
    attention = 2 * e * e + 2 * e * d * config["num_key_value_heads"]
    return 2 * config["vocab_size"] * e + config["num_hidden_layers"] * (attention + 3 * e * f * config["num_experts_per_tok"])


def work(options):
    """One rank of PyTorch: prints seconds a step."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    config = AutoConfig.from_pretrained(options.config)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, experts_implementation="grouped_mm")
    # An expert that no token has chosen has no gradient.
    model = DistributedDataParallel(model.train(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = options.batch // dist.get_world_size()
    for step in range(WARM + options.steps):
        if step == WARM:
            dist.barrier()
            start = time.perf_counter()
        tokens = torch.randint(0, config.vocab_size, (rows, options.seq))
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.barrier()
    if dist.get_rank() == 0:
        print((time.perf_counter() - start) / options.steps)


def of_torch(python, folder, options):
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", __file__, "--work", "--config", folder]
    command += ["--batch", options.batch, "--seq", options.seq, "--steps", options.steps, "--precision", options.precision]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout.split()[-1])


def of_program(program, data, options, metrics):
    command = [ROOT / "build/bin/pc-run", "-n", 2, program, "--", "--data", data, "--steps", WARM + options.steps, "--lr", 1e-4, "--clip", 1, "--metrics", metrics]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    times = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines() if "step_seconds" in line]
    return statistics.mean(times[WARM:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="experts")
    for name, default in (("rounds", 3), ("steps", 5), ("batch", 4), ("seq", 512), ("layers", 8)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--config")
    options = parser.parse_args()
    if options.work:
        return work(options)
    python = str(Path(os.environ.get("PC_VENV", Path.home() / ".cache/pc-bench-venv")) / "bin/python")
    config = CONFIG | {"num_hidden_layers": options.layers}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "config.json").write_text(json.dumps(config))
        draw = random.Random(1)
        (folder / "tokens.bin").write_bytes(b"".join(draw.randrange(config["vocab_size"]).to_bytes(2, "little") for _ in range(1 << 17)))
        subprocess.run([ROOT / "build/bin/pc-import", folder, "-o", folder / "model.mlir", "--batch", str(options.batch), "--seq", str(options.seq)], check=True)
        plans = {"ep=2": [], "dp=2": []}
        for mesh in plans:
            subprocess.run([ROOT / "build/bin/pc-compile", folder / "model.mlir", "--mesh", mesh, "--precision", options.precision, "-o", folder / mesh], check=True)
        if not options.alone:
            plans["transformers"] = []
        for _ in range(options.rounds):
            for mesh in ("ep=2", "dp=2"):
                plans[mesh].append(of_program(folder / mesh, folder / "tokens.bin", options, folder / "metrics.jsonl"))
            if not options.alone:
                plans["transformers"].append(of_torch(python, folder, options))
    tokens = options.batch * options.seq
    theirs = statistics.median(plans.get("transformers", [0]))
    print(f"{active(config) / 1e6:.0f} M active parameters, {options.batch} sequences of {options.seq}, {options.precision}\n\n| | tokens/s | times transformers |\n|---|---|---|")
    for name, seconds in plans.items():
        times = f"{theirs / statistics.median(seconds):.2f}" if theirs else "-"
        print(f"| {name} | {tokens / statistics.median(seconds):.0f} | {times} |")
    results = ROOT / "bench/results" / f"{options.name}.json"
    results.write_text(json_runs.text({"options": vars(options), "active": active(config), "seconds": plans}))


if __name__ == "__main__":
    main()
