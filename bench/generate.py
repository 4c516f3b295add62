#!/usr/bin/env python3
"""Compares generation on one CPU with transformers and llama.cpp: a prompt of 512 tokens, and steps that decode 1 answer or 8 at a time,
whose prompts have 64 tokens. Random weights, greedy, in alternating rounds, with the rate at which the machine reads memory in the same run.

usage: bench/generate.py [NAME] [--shapes gpt2,qwen3] [--precisions f32,bf16,int8,int4] [--batches 1,8] [--threads N] [--rounds N] [--new N]

The shapes are GPT-2 124M and Qwen3 0.6B. A precision may also be bf16+int8 or bf16+int4. llama.cpp runs with weights of the same number of bits
(q8_0, q4_0, whose blocks of 32 have a scale), transformers only in f32, and in bf16 if the processor has instructions for it. The share is that of the bytes that a program reads per step.
Prints a table, and writes bench/results/NAME.json (the default NAME is generate) after each measurement. Needs torch, transformers,
llama-cpp-python and gguf in this python3, and build/bin. A peer that is not installed is left out, with a line that says so."""

import argparse
import importlib.util
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
PROMPT, SHORT = 512, 64
LLAMA_TYPES = {"f32": 0, "bf16": 32, "int8": 7, "int4": 2}  # llama_ftype
SHAPES = {
    "gpt2": ("GPT2Config", dict(n_positions=1024)),
    "qwen3": ("Qwen3Config", dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                                  head_dim=128, tie_word_embeddings=True, max_position_embeddings=1024)),
}


def prompts(batch):
    return [[(row * 7919 + i * 31) % 30000 for i in range(PROMPT if batch == 1 else SHORT)] for row in range(batch)]


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


def names_of_llama(config, tensors):
    """llama.cpp's names and forms of the model's tensors."""
    layers = config.get("n_layer") or config["num_hidden_layers"]
    if config["model_type"] == "gpt2":
        for ours, theirs in (("wte", "token_embd"), ("wpe", "position_embd")):
            yield f"{theirs}.weight", tensors[f"transformer.{ours}.weight"]
        pairs = (("ln_1", "attn_norm"), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"), ("ln_2", "ffn_norm"), ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down"))
        for layer in range(layers):
            for ours, theirs in pairs:
                for kind in ("weight", "bias"):
                    tensor = tensors[f"transformer.h.{layer}.{ours}.{kind}"]
                    yield f"blk.{layer}.{theirs}.{kind}", tensor.T if tensor.dim() == 2 else tensor
        for kind in ("weight", "bias"):
            yield f"output_norm.{kind}", tensors[f"transformer.ln_f.{kind}"]
        return
    yield "token_embd.weight", tensors["model.embed_tokens.weight"]
    yield "output_norm.weight", tensors["model.norm.weight"]
    pairs = [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"), ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.o_proj", "attn_output")]
    pairs += [(f"self_attn.{name}_proj", f"attn_{name}") for name in "qkv"] + [(f"mlp.{name}_proj", f"ffn_{name}") for name in ("gate", "up", "down")]
    for layer in range(layers):
        for ours, theirs in pairs:
            yield f"blk.{layer}.{theirs}.weight", tensors[f"model.layers.{layer}.{ours}.weight"]


def llama_file(folder, precision):
    """The model as llama.cpp reads it, without a tokenizer."""
    import gguf
    import llama_cpp
    from safetensors.torch import load_file

    path = folder / f"{precision}.gguf"
    if path.exists():
        return path
    if precision != "f32":
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = LLAMA_TYPES[precision]
        if llama_cpp.llama_model_quantize(str(llama_file(folder, "f32")).encode(), str(path).encode(), params):
            sys.exit("llama.cpp cannot quantize")
        return path
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, config["model_type"])
    of = lambda *names: next(config[name] for name in names if name in config)
    width, heads = of("n_embd", "hidden_size"), of("n_head", "num_attention_heads")
    writer.add_context_length(of("n_positions", "max_position_embeddings"))
    writer.add_embedding_length(width)
    writer.add_block_count(of("n_layer", "num_hidden_layers"))
    writer.add_feed_forward_length(config.get("intermediate_size") or 4 * width)
    writer.add_head_count(heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    if config["model_type"] == "gpt2":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    for name, tensor in names_of_llama(config, tensors):
        writer.add_tensor(name, tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def work_of_llama(folder, precision, batch, options):
    """llama.cpp in a process of its own, with the same output as `work`."""
    import llama_cpp as llama
    import numpy

    llama.llama_log_set(quiet := llama.llama_log_callback(lambda level, text, data: None), None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(str(llama_file(Path(folder), precision)).encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 1024 * batch, PROMPT, PROMPT, batch
    params.n_threads = params.n_threads_batch = options.threads
    context = llama.llama_init_from_model(model, params)
    vocabulary, memory = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model)), llama.llama_get_memory(context)
    some = llama.llama_batch_init(PROMPT, 0, 1)

    def step(entries):
        """Decodes (token, position, answer, whether its next token is wanted); returns these tokens."""
        some.n_tokens = len(entries)
        for i, (token, position, answer, wanted) in enumerate(entries):
            some.token[i], some.pos[i], some.n_seq_id[i], some.logits[i] = token, position, 1, wanted
            some.seq_id[i][0] = answer
        if llama.llama_decode(context, some):
            sys.exit("llama.cpp cannot decode")
        return [int(numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (vocabulary,)).argmax()) for i, entry in enumerate(entries) if entry[3]]

    def generate(ids, new):
        llama.llama_memory_clear(memory, True)
        times = [time.perf_counter()]
        tokens = [step([(token, at, answer, at + 1 == len(row)) for at, token in enumerate(row)])[0] for answer, row in enumerate(ids)]
        times.append(time.perf_counter())
        for at in range(len(ids[0]), len(ids[0]) + new - 1):
            tokens = step([(token, at, answer, True) for answer, token in enumerate(tokens)])
            times.append(time.perf_counter())
        return [b - a for a, b in zip(times, times[1:])]

    generate([row[:16] for row in prompts(batch)], 3)
    print(json.dumps(generate(prompts(batch), options.new)))


def in_process(peer, folder, precision, batch, options):
    command = [sys.executable, __file__, "--work", f"{peer},{folder},{precision},{batch}", "--threads", options.threads, "--new", options.new]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{peer} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.split("\n")[-2])


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
    """The bytes of the weights that a step of the program reads: all but the rows of tables that are looked up."""
    report = json.loads(Path(f"{compiled(folder, precision, batch)}.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    positions = 4 * config["n_positions"] * config["n_embd"] if config["model_type"] == "gpt2" else 0
    return sum(row["bytes"] + row.get("scale_bytes", 0) for row in report["per_rank"][0]["weights"].values()) - positions


def bytes_of_peer(name, folder, precision, weights):
    """The bytes that a step of a peer reads."""
    if name == "llama.cpp":
        return llama_file(folder, precision.split("+")[-1]).stat().st_size
    return weights / (1 if precision == "f32" else 2)


def processor():
    """Its name, and its instructions for vectors that matter here."""
    text = Path("/proc/cpuinfo").read_text()
    names = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in text]
    return f"{text.partition('model name')[2].partition(chr(10))[0].strip(': ' + chr(9))} ({', '.join(names)})"


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
    for name, default in (("shapes", ",".join(SHAPES)), ("precisions", "f32,bf16,int8,int4"), ("batches", "1,8"), ("work", "")):
        parser.add_argument("--" + name, default=default)
    for name, default in (("threads", 1), ("rounds", 3), ("new", 64)):
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()
    if options.work:
        peer, folder, precision, batch = options.work.split(",")
        return {"transformers": work, "llama.cpp": work_of_llama}[peer](folder, precision, int(batch), options)
    runs = []
    peers = [name for name, module in (("transformers", "transformers"), ("llama.cpp", "llama_cpp")) if importlib.util.find_spec(module) or print(f"{name} is not installed")]
    of_transformers = ["f32", "bf16"] if "bf16" in processor() else ["f32"]
    result = ROOT / "bench/results" / f"{options.name}.json"
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as temporary:
        peak = Path(temporary) / "read_peak"
        subprocess.run(["clang++-22", "-std=c++20", "-O3", "-march=native", ROOT / "bench/read_peak.cpp", "-o", peak, "-pthread"], check=True)
        for shape in options.shapes.split(","):
            folder = Path(temporary) / shape
            weights = make(folder, shape)
            for _ in range(options.rounds):
                for precision in options.precisions.split(","):
                    for batch in map(int, options.batches.split(",")):
                        rate = json.loads(subprocess.run([peak], check=True, capture_output=True, text=True).stdout)
                        rate = rate["one_thread_gbytes" if options.threads == 1 else "all_threads_gbytes"]
                        for name in ["pc", *(name for name in peers if name == "llama.cpp" or precision in of_transformers)]:
                            first, *steps = of_program(folder, precision, batch, options) if name == "pc" else in_process(name, folder, precision.split("+")[-1], batch, options)
                            step = statistics.median(steps[len(steps) // 4:])
                            read = stored(folder, precision, batch) if name == "pc" else bytes_of_peer(name, folder, precision, weights)
                            runs.append(dict(shape=shape, precision=precision, batch=batch, by=name, prompt_tokens_per_s=sum(map(len, prompts(batch))) / first, step_ms=step * 1e3,
                                             read_bytes=read, share=read / step / 1e9 / rate, read_gbytes=rate, load=os.getloadavg()[0]))
                            result.write_text(json_runs.text({"processor": processor(), "options": vars(options), "runs": runs}))
    print("| shape | precision | answers | by | prompt tokens/s | ms per step | share of the read rate |\n|---|---|---|---|---|---|---|")
    for key in dict.fromkeys((run["shape"], run["precision"], run["batch"], run["by"]) for run in runs):
        rows = [run for run in runs if (run["shape"], run["precision"], run["batch"], run["by"]) == key]
        median = {field: statistics.median(run[field] for run in rows) for field in ("prompt_tokens_per_s", "step_ms", "share")}
        print(f"| {' | '.join(map(str, key))} | {median['prompt_tokens_per_s']:.0f} | {median['step_ms']:.1f} | {median['share']:.0%} |")


if __name__ == "__main__":
    main()
