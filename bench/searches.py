#!/usr/bin/env python3
"""usage: bench/searches.py [ROW...]     a ROW is a part of a row's name; without one, all rows run

Measures --auto for models of published sizes, on all cores. It times whole searches, up to the accepted plan, which the
search has compiled whole, and searches that Ctrl-C ends after five seconds; these must return a plan composed of the
measurements of few layers. Prints seconds (also processor seconds of all threads), peak memory, the number of programs,
and the gap: by how much a plan that was not tried could be faster. Fails if a search takes more than 60 s of each core
(20 s for a model of 12 layers) or 2 GiB, has a gap above 2 %, or has no plan when it is interrupted. Writes
results/searches.md, with failed rows, when all rows ran."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / "build/bin"
LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8, "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": False}
BERT = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
        "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "layer_norm_eps": 1e-12}
MODELS = {
    "Llama 8B": {**LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "Llama 70B": {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "Llama 405B": ROOT / "examples/llama-3.1-405b",
    "MT-NLG 530B": ROOT / "examples/mt-nlg-530b",
    "GPT-2 124M": ROOT / "examples/gpt2-124m",
    "BERT base": {**BERT, "vocab_size": 30522},
    "T5 base": {"model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12,
                "dropout_rate": 0, "feed_forward_proj": "relu", "tie_word_embeddings": True, "decoder_start_token_id": 0, "pad_token_id": 0},
    "BERT of ViT-B/16's size": {**BERT, "vocab_size": 1000},
}
# Model, ranks, machine, sequences, tokens of each.
ROWS = [("Llama 8B", 64, "h100", 512, 2048), ("Llama 70B", 64, "h100", 512, 2048), ("Llama 70B", 1024, "h100", 1024, 2048), ("Llama 405B", 1024, "h100", 1024, 2048),
        ("Llama 405B", 16384, "h100", 2048, 2048), ("MT-NLG 530B", 2240, "a100", 1920, 2048),
        *((name, ranks, "h100", 512, tokens) for name, tokens in (("GPT-2 124M", 1024), ("BERT base", 512), ("T5 base", 512), ("BERT of ViT-B/16's size", 196))
          for ranks in (2, 4, 8, 16, 32, 64))]
LARGE = ("Llama 8B", "Llama 70B", "Llama 405B", "MT-NLG 530B")
SECONDS, SMALL_SECONDS, BYTES, GAP, INTERRUPTED = 60, 20, 2 << 30, 2.0, 5


def imported(work, name, batch, tokens):
    source = MODELS[name]
    if isinstance(source, dict):
        (work / "model").mkdir(exist_ok=True)
        (work / "model/config.json").write_text(json.dumps(source))
        source = work / "model"
    subprocess.run([BIN / "pc-import", source, "-o", work / "model.mlir", f"--batch={batch}", f"--seq={tokens}"], check=True, stderr=subprocess.DEVNULL)


def search(work, ranks, machine, interrupted):
    """Returns the exit code, seconds, processor seconds, peak bytes and output."""
    command = [BIN / "pc-compile", work / "model.mlir", "--auto", f"--ranks={ranks}", f"--machine={machine}", "--precision=bf16", "--search-compositions=100000",
               "--to=step", "-o", os.devnull]
    begin = time.monotonic()
    with open(work / "said", "w+") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        if interrupted:
            time.sleep(INTERRUPTED)
            os.kill(child.pid, signal.SIGINT)  # which may have ended, and is waited for below
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return child.returncode, time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, said.read()


def processor():
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores of {found[1] if found else 'a processor'}"


rows = [row for row in ROWS if not sys.argv[1:] or any(part in f"{row[0]} {row[1]}" for part in sys.argv[1:])]
lines, bad = [], []
for name, ranks, machine, batch, tokens in rows:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        imported(work, name, batch, tokens)
        code, _, _, _, early = search(work, ranks, machine, True)
        composed = re.search(r"^chosen +([\d.]+ m?s) ", early, re.M)
        # Where the search had just ended, the signal ends the compile that follows it.
        if code not in (0, -signal.SIGINT) or not composed:
            bad.append(f"{name} on {ranks}: no plan {INTERRUPTED} s after the start (exit {code}): {early[:300]}")
        code, seconds, busy, peak, said = search(work, ranks, machine, False)
        chosen = re.search(r"^chosen +(\S+ m?s) ", said, re.M)
        plans = re.search(r"searched (\d+) plans.*priced from (\d+) compiled programs.*gap ([\d.]+) %", said)
        if code or not chosen or not plans:
            bad.append(f"{name} on {ranks}: exit {code}: {said}")
            continue
        most = SECONDS if name in LARGE else SMALL_SECONDS
        if busy / os.cpu_count() > most or peak > BYTES or float(plans[3]) > GAP:
            bad.append(f"{name} on {ranks}: {seconds:.1f} s, {busy:.1f} s of the processor, {peak >> 20} MiB, gap {plans[3]} %")
        cells = [f"{name}, {ranks} {machine.upper()}, {batch} sequences of {tokens}", plans[1], plans[2], composed[1] if composed else "none", f"{seconds:.0f} s",
                 f"{busy:.0f} s", f"{peak / 1e6:.0f} MB", chosen[1], f"{plans[3]} %"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
for line in bad:
    print("FAIL", line)
if len(lines) == len(ROWS):
    title = f"# Searches of models of published sizes\n\n`bench/searches.py` on {processor()}, bf16. Written by it.\n"
    head = f"| search | plans | compiles of few layers | step of the plan after {INTERRUPTED} s | whole search | of the processor | peak memory | step of the accepted plan | gap |"
    (ROOT / "bench/results/searches.md").write_text("\n".join([title, head, "|---" * 9 + "|", *lines, "", *(f"* Above a limit: {line}" for line in bad), ""]))
print(f"{len(rows) - len(bad)} passed, {len(bad)} failed")
sys.exit(bool(bad))
