#!/usr/bin/env python3
"""Compares generation on one CPU with transformers: prompts of 512 tokens, and steps that decode 1 or 8 answers at a time. Random weights,
greedy, in alternating rounds, with the rate at which the machine reads memory in the same run.

usage: bench/generate.py [NAME] [--shapes gpt2,qwen3] [--precisions f32,bf16] [--threads N] [--rounds N] [--new N]

The shapes are GPT-2 124M and Qwen3 0.6B. A precision may also be int8, int4, or either of them after "bf16+"; then transformers does not run,
and the share counts the bytes that the program stores. Prints a table and writes bench/results/NAME.json (the default NAME is generate). Needs torch and
transformers in this python3, and build/bin."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import json_runs

ROOT = Path(__file__).resolve().parent.parent
PROMPT, BATCHES = 512, (1, 8)
SHAPES = {
    "gpt2": ("GPT2Config", dict(n_positions=1024)),
    "qwen3": ("Qwen3Config", dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                                  head_dim=128, tie_word_embeddings=True, max_position_embeddings=1024)),
}


def prompts(batch):
    return [[(row * 7919 + i * 31) % 30000 for i in range(PROMPT)] for row in range(batch)]


def work(folder, precision, batch, options):
    """transformers in a process of its own: prints the seconds of the first token and of each step after it."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[precision]).eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    times = []

    def clock(ids, scores):
        times.append(time.perf_counter())
        return scores

    def generate(ids, new):
        times[:] = [time.perf_counter()]
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, logits_processor=[clock])

    with torch.inference_mode():
        ids = torch.tensor(prompts(batch))
        generate(ids[:, :16], 3)
        generate(ids, options.new)
    print(json.dumps([b - a for a, b in zip(times, times[1:])]))


def of_transformers(folder, precision, batch, options):
    command = [sys.executable, __file__, "--work", f"{folder},{precision},{batch}", "--threads", options.threads, "--new", options.new]
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout.split("\n")[-2])


def compiled(folder, precision, batch):
    program = folder / f"{precision}-{batch}"
    words = precision.split("+")
    flags = [f"--precision={word}" if word in ("f32", "bf16") else f"--weights={word}" for word in words]
    if not program.exists():
        subprocess.run([ROOT / "build/bin/pc-compile", folder / "model.mlir", "-o", program, "--mode=generate", f"--slots={batch}", f"--size={batch}", f"--chunk={PROMPT}",
                        *flags, f"--report={program}.json", "--sampling=false"], check=True, stderr=subprocess.DEVNULL)
    return program


def of_program(folder, precision, batch, options):
    """The same figures. All prompts of a batch are read before its first step, so a step is the time between two tokens of the last answer."""
    process = subprocess.Popen([compiled(folder, precision, batch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=os.environ | {"PCRT_THREADS": str(options.threads)})

    def generate(ids, new):
        times = [time.perf_counter()]
        process.stdin.write("".join(json.dumps({"id": row, "prompt": one, "max_tokens": new}) + "\n" for row, one in enumerate(ids)))
        process.stdin.flush()
        open_ones = set(range(len(ids)))
        while open_ones:
            line = json.loads(process.stdout.readline())
            if line["id"] == len(ids) - 1:
                times.append(time.perf_counter())
            if "finish_reason" in line or "error" in line:
                open_ones.discard(line["id"])
        return [b - a for a, b in zip(times, times[1:])]

    generate([one[:16] for one in prompts(batch)], 3)
    seconds = generate(prompts(batch), options.new)
    process.stdin.close()
    process.wait()
    return seconds


def stored(folder, precision, batch):
    """The bytes of the weights that a token needs, in a program with codes."""
    rows = json.loads(Path(f"{compiled(folder, precision, batch)}.json").read_text())["per_rank"][0]["weights"].values()
    return sum(row["bytes"] + row.get("scale_bytes", 0) for row in rows)


def make(folder, shape):
    """Writes the model with random weights; returns the bytes of the weights that a token needs in f32."""
    import torch
    import transformers

    torch.manual_seed(0)
    name, fields = SHAPES[shape]
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**fields)).float()
    model.save_pretrained(folder)
    subprocess.run([ROOT / "build/bin/pc-import", folder, "-o", folder / "model.mlir", "--seq=1024", "--batch=1"], check=True, stderr=subprocess.DEVNULL)
    return 4 * sum(one.numel() for key, one in model.named_parameters() if "wpe" not in key)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="generate")
    for name, default in (("shapes", ",".join(SHAPES)), ("precisions", "f32,bf16"), ("work", "")):
        parser.add_argument("--" + name, default=default)
    for name, default in (("threads", 1), ("rounds", 3), ("new", 64)):
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()
    if options.work:
        folder, precision, batch = options.work.rsplit(",", 2)
        return work(folder, precision, int(batch), options)
    runs = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as temporary:
        peak = Path(temporary) / "read_peak"
        subprocess.run(["clang++-22", "-std=c++20", "-O3", "-march=native", ROOT / "bench/read_peak.cpp", "-o", peak, "-pthread"], check=True)
        for shape in options.shapes.split(","):
            folder = Path(temporary) / shape
            weights = make(folder, shape)
            for _ in range(options.rounds):
                for precision in options.precisions.split(","):
                    for batch in BATCHES:
                        rate = json.loads(subprocess.run([peak], check=True, capture_output=True, text=True).stdout)
                        rate = rate["one_thread_gbytes" if options.threads == 1 else "all_threads_gbytes"]
                        isCoded = "int" in precision
                        for name, measure in (("pc", of_program), ("transformers", of_transformers))[:1 if isCoded else 2]:
                            first, *steps = measure(folder, precision, batch, options)
                            step = statistics.median(steps[len(steps) // 4:])
                            runs.append(dict(shape=shape, precision=precision, batch=batch, by=name, prompt_tokens_per_s=batch * PROMPT / first, step_ms=step * 1e3,
                                             share=(stored(folder, precision, batch) if isCoded else weights / (1 if precision == "f32" else 2)) / step / 1e9 / rate, read_gbytes=rate, load=os.getloadavg()[0]))
    print("| shape | precision | answers | by | prompt tokens/s | ms per step | share of the read rate |\n|---|---|---|---|---|---|---|")
    for key in dict.fromkeys((run["shape"], run["precision"], run["batch"], run["by"]) for run in runs):
        rows = [run for run in runs if (run["shape"], run["precision"], run["batch"], run["by"]) == key]
        median = {field: statistics.median(run[field] for run in rows) for field in ("prompt_tokens_per_s", "step_ms", "share")}
        print(f"| {' | '.join(map(str, key))} | {median['prompt_tokens_per_s']:.0f} | {median['step_ms']:.1f} | {median['share']:.0%} |")
    (ROOT / "bench/results" / f"{options.name}.json").write_text(json_runs.text({"options": vars(options), "runs": runs}))


if __name__ == "__main__":
    main()
