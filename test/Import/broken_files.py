#!/usr/bin/env python3
"""usage: broken_files.py WORK

Breaks a model's directory: files that were not fetched, are cut off, or were written by a wrapper of the model.
pc-import, and a run that starts from them, must name the cause and the remedy."""
import json
import math
import os
import shutil
import struct
import subprocess
import sys

WORK = sys.argv[1]
CONFIG = dict(model_type="llama", vocab_size=11, hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
              max_position_embeddings=8, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False)
LAYER = {"input_layernorm": [4], "post_attention_layernorm": [4], "mlp.down_proj": [4, 6], "mlp.gate_proj": [6, 4], "mlp.up_proj": [6, 4],
         **{f"self_attn.{x}_proj": [4, 4] for x in "kqvo"}}
TENSORS = {"model.embed_tokens.weight": [11, 4], "model.norm.weight": [4], "lm_head.weight": [11, 4],
           **{f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()}}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 548118077\n"
bad = 0


def weights(rename=lambda name: name, dtype="F32", values=lambda name, count: [0.01] * count):
    header, data = {}, b""
    for name, shape in TENSORS.items():
        raw = struct.pack(f"<{math.prod(shape)}{'f' if dtype == 'F32' else 'e'}", *values(name, math.prod(shape)))
        header[rename(name)] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(name, data):
    path = os.path.join(WORK, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.remove(path)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path


def link(name, target):
    path = write(name, "")
    os.remove(path)
    os.symlink(target, path)


def run(*command):
    done = subprocess.run([str(word) for word in command], cwd=WORK, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def expect(what, got, code, *words):
    """Exit `code`, and one error that has all of the words."""
    global bad
    errors = [line for line in got[1].splitlines() if "error:" in line]
    if got[0] != code or len(errors) != (code != 0) or not all(word in "".join(errors) for word in words):
        bad += 1
        print(f"{what}: exit {got[0]}, not {code} with {words}: {got[1]}")


def imports(code, *words):
    expect("import", run("pc-import", "hf", "--batch", 2, "--seq", 4, "-o", "/dev/null"), code, *words)


def starts(code, *words, init="hf"):
    expect("run", run("./train", "--data", "tokens.bin", "--steps", 1, "--init", init), code, *words)


def breaks(name, *words, code=9):
    """Both tools refuse the file."""
    imports(code, name, *words)
    if name != "config.json":
        starts(9, name, *words)


shutil.rmtree(WORK, ignore_errors=True)
config, good = json.dumps(CONFIG), weights()
write("hf/config.json", config)
write("hf/model.safetensors", good)
write("tokens.bin", bytes(2 * 200))
assert run("pc-import", "hf", "--batch", 2, "--seq", 4, "-o", "model.mlir")[0] == 0
assert run("pc-compile", "model.mlir", "-o", "train")[0] == 0
imports(0)
starts(0)

# Files are pointers of Git LFS, empty, links to nothing, or cut off.
for name in ["config.json", "model.safetensors"]:
    status, whole = (3, config) if name == "config.json" else (9, good)
    write(f"hf/{name}", POINTER)
    breaks(name, "Git LFS pointer", "git lfs pull", code=status)
    write(f"hf/{name}", "")
    breaks(name, "empty", "download it again", code=status)
    link(f"hf/{name}", "../../blobs/1234")
    breaks(name, "link to '../../blobs/1234', which does not exist", "cp -L", code=status)
    write(f"hf/{name}", whole[:len(whole) // 2])
    breaks(name, "truncated" if status == 9 else "cut off", code=status)
    write(f"hf/{name}", whole)
write("hf/model.safetensors", good[:100])
breaks("model.safetensors", "truncated")
os.remove(os.path.join(WORK, "hf/model.safetensors"))

# The same errors are found in shards and their index.
index = json.dumps({"weight_map": dict.fromkeys(TENSORS, "model-00001-of-00001.safetensors")})
for name, whole in [("model.safetensors.index.json", index), ("model-00001-of-00001.safetensors", good)]:
    write("hf/model.safetensors.index.json", index)
    write("hf/model-00001-of-00001.safetensors", good)
    write(f"hf/{name}", POINTER)
    breaks(name, "Git LFS pointer", "git lfs pull")
    write(f"hf/{name}", "")
    breaks(name, "empty", "download it again")
    link(f"hf/{name}", "nowhere")
    breaks(name, "link to 'nowhere', which does not exist")
os.remove(os.path.join(WORK, "hf/model.safetensors.index.json"))
os.remove(os.path.join(WORK, "hf/model-00001-of-00001.safetensors"))

# Wrappers such as torch.compile have changed the names of tensors. The names of a model without a head are known.
for wrapped, part, by in [("_orig_mod.{}", "_orig_mod", "torch.compile"), ("module.{}", "module", "DistributedDataParallel"),
                          ("module._orig_mod.{}", "module", "DataParallel"), ("_fsdp_wrapped_module.{}", "_fsdp_wrapped_module", "FullyShardedDataParallel")]:
    write("hf/model.safetensors", weights(wrapped.format))
    breaks("", "tensor 'model.embed_tokens.weight' is missing", f"'{wrapped.format('model.embed_tokens.weight')}' exists", by, f"'{part}.'")
write("hf/model.safetensors", weights(lambda name: name.replace("layers.0.", "layers.0._orig_mod.")))
breaks("", "'model.layers.0._orig_mod.", "torch.compile")
write("hf/model.safetensors", weights(lambda name: "_orig_mod." + name.removeprefix("model.")))
breaks("", "'_orig_mod.embed_tokens.weight' exists")
write("hf/model.safetensors", weights(lambda name: name.removeprefix("model.")))
imports(0)
starts(0)

# Weights are NaN or infinite. pc-import does not read weights, so only the run refuses them.
for dtype, value, says in [("F32", math.nan, "a NaN"), ("F16", math.inf, "an infinity"), ("F32", -math.inf, "an infinity")]:
    def values(name, count):
        return [0.01] * (count - 2) + [value if "up_proj" in name else 0.01, 0.01]
    write("hf/model.safetensors", weights(dtype=dtype, values=values))
    imports(0)
    for init in ["hf", "hf/model.safetensors"]:
        starts(9, "hf/model.safetensors: tensor 'model.layers.0.mlp.up_proj.weight' has", says, "at element 22", dtype, init=init)
print(f"{bad} are wrong")
