#!/usr/bin/env python3
"""Changes every key of golden models' config.json, and those that transformers adds, to other values. The importer must
refuse the change, or make a program that computes the same as transformers.

usage: mutated_keys.py [MODEL...]                       compares with mutated_keys.json
       mutated_keys.py --write[=CASE] [MODEL...]        writes it, or one case of each
--write needs torch, transformers and safetensors from PyPI.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "EndToEnd/golden"
FIGURES = HERE / "mutated_keys.json"
MODELS = ["gpt2-dropout", "llama", "llama-tied", "mistral-window", "qwen2", "qwen2-yarn", "qwen3", "phi3", "olmo2", "gpt_neox", "gpt_neox-serial", "gemma",
          "gemma2", "gemma3", "opt", "opt-post", "gpt_neo", "bloom", "bert", "t5", "t5-gated",
          "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"]
# For strings: other possible values.
STRINGS = {"activation": ["relu", "gelu", "silu"], "hidden_act": ["relu", "gelu", "silu"], "dense_act_fn": ["relu", "gelu", "silu"],
           "feed_forward_proj": ["relu", "gated-gelu", "gated-silu", "gelu"], "rope_type": ["linear", "dynamic"],
           "model_type": ["gpt_bigcode"]}


def others(key, value):
    """Two other values, or one of a flag."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(value // 2, 0)] if value else [1, 3]
    if isinstance(value, float):
        return [value / 2, value * 1.5 + (0.1 if value == 0 else 0)] if value else [0.1, 0.5]
    if isinstance(value, str):
        return [text for name, texts in STRINGS.items() if key.startswith(name) for text in texts if text != value][:2] or ["other"]
    if isinstance(value, list):
        return [value[::-1], value[:1]]
    return [5, True, 5.0]  # of null


def mutations(config):
    """Pairs of a name and a changed config."""
    for key, value in config.items():
        if isinstance(value, dict):
            for inner, changed in mutations(value):
                yield f"{key}.{inner}", config | {key: changed}
            continue
        for other in others(key, value):
            yield f"{key}={json.dumps(other)}", config | {key: other}
        if value is not None:
            yield f"{key}=null", config | {key: None}
            yield f"{key} missing", {name: copy.deepcopy(x) for name, x in config.items() if name != key}


def cases(model):
    config = json.loads((GOLDEN / model / "config.json").read_text())
    yield "as it is", config
    yield from mutations(config)


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def ours(model, config, folder, known):
    """Returns the importer's refusal as text, or loss and norm. `known` has the results of programs that were run before."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "tokens.bin", "targets.bin"):
        if (GOLDEN / model / name).exists():
            (folder / name).symlink_to(GOLDEN / model / name)
    flags = GOLDEN / model / "import-flags"
    more = flags.read_text().split() if flags.exists() else []
    done = run("pc-import", folder, "-o", folder / "model.mlir", "--batch", 4, "--seq", 16, *more)
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip()}"
    program = "".join(line for line in (folder / "model.mlir").read_text().splitlines() if "pc.program" not in line and not line.startswith("#"))
    if program not in known:
        step = run("pc-compile", folder / "model.mlir", "--to=step", "-o", folder / "step.mlir")
        shown = run("golden-interpret", folder / "step.mlir", folder, "figures")
        if step.returncode or shown.returncode:
            sys.exit(f"{model}: {step.stderr}{shown.stderr}")
        known[program] = [float(line.split()[1]) for line in sorted(shown.stdout.splitlines(), reverse=True)]
    return known[program]


def check(models):
    figures = json.loads(FIGURES.read_text())
    bad = compared = refused = alone = 0
    for model in models:
        known = {}
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, config) in enumerate(cases(model)):
                got, want = ours(model, config, Path(folder) / str(number), known), figures[model][name]
                if isinstance(got, str):
                    refused += 1
                    good = got.startswith(("exit 3", "exit 9")) and name != "as it is"
                elif isinstance(want, str):
                    alone += 1  # transformers refuses it
                    continue
                else:
                    compared += 1
                    good = all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(got, want)) and len(got) == len(want)
                if not good:
                    bad += 1
                    print(f"{model}: {name}: {got}, wanted {want}")
    print(f"{compared} configs compute what transformers computes, {refused} are refused, {alone} transformers alone refuses; {bad} are wrong")
    sys.exit(bad > 0)


def write(models, only):
    os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
    sys.path.append(str(GOLDEN))
    import make_golden  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel
    import transformers  # pylint: disable=import-outside-toplevel
    from safetensors.torch import load_file  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)

    def theirs(model, config):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config))
            loaded = transformers.AutoConfig.from_pretrained(folder)
        if hasattr(loaded, "num_experts_per_tok"):
            loaded._experts_implementation = "eager"  # pylint: disable=protected-access
        net = make_golden.auto_class(model).from_config(loaded, attn_implementation="eager", dtype=torch.float32).train()
        weights = make_golden.in_memory(loaded, load_file(GOLDEN / model / "model.safetensors"))
        heads = {"lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"} & net.state_dict().keys()
        tied = heads if loaded.tie_word_embeddings else set()
        if model.startswith("t5"):  # what it has of its own is that of its embedding, unless the file has another one
            if "lm_head.weight" in weights:
                net.lm_head.weight = torch.nn.Parameter(net.lm_head.weight.detach().clone())
            tied = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"} | (heads - weights.keys())
        left = net.load_state_dict({name: value for name, value in weights.items() if name not in tied}, strict=False)
        if set(left.missing_keys) - tied or left.unexpected_keys:
            return f"other weights: {sorted(left.missing_keys + left.unexpected_keys)[0]}"
        if not model.startswith("t5"):
            net.tie_weights()
        _, loss = make_golden.forward(net, make_golden.Stream.read(GOLDEN / model), 0)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).norm()
        return [round(loss.item(), 7), round(norm.item(), 7)]

    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for model in models:
        figures.setdefault(model, {})
        for name, config in cases(model):
            if only not in ("", name):
                continue
            try:
                figures[model][name] = theirs(model, config)
            except Exception as error:  # pylint: disable=broad-except
                figures[model][name] = f"{type(error).__name__}"
        print(f"{model}: {len(figures[model])} configs", flush=True)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--write")] or MODELS
    written = [argument.partition("=")[2] for argument in sys.argv[1:] if argument.startswith("--write")]
    if written:
        write(chosen, written[0])
    else:
        check(chosen)
