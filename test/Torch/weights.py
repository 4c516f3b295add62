"""Weights and tokens that the tests here compute, by the same formulas with and without PyTorch, so that no binary file is committed."""
import json
import math
import re
import struct
from pathlib import Path

STEPS, BATCH, SEQUENCE, VOCABULARY = 5, 8, 16, 96
RATE, DECAY = "1e-3", "1e-2"


def parameters_of(text):
    """Returns {tensor: (shape, kind and value of init)} for the text of a program."""
    found = re.findall(r'pc\.parameter ".*?" (?:frozen )?dims .*? init <(\w+), (\S+?)> source <"(.*?)", shape = \[(.*?)\]', text)
    return {name: ([int(n) for n in shape.split(",") if n.strip()], kind, float(value)) for kind, value, name, shape in found}


def values(name, shape, kind, value):
    """The elements of a tensor: waves, around 0 or around the number with which the init fills it."""
    phase = sum(map(ord, name)) * 0.37
    centre, size = (value, 0.05) if kind == "fill" else (0.0, 1.4 * min(value, 1.0))
    return [centre + size * math.sin(phase + 1.7 * i + 0.003 * i * i) for i in range(math.prod(shape))]


def tokens():
    """One more than the steps read."""
    return [(7 * i * i + 13 * i + i // 5) % VOCABULARY for i in range(STEPS * BATCH * SEQUENCE + 1)]


def write(folder, text):
    """Makes a directory that pc-compile and pc-run start from: the program, its weights, and tokens."""
    folder = Path(folder)
    header, data = {}, b""
    for name, (shape, kind, value) in parameters_of(text).items():
        part = struct.pack(f"<{math.prod(shape)}f", *values(name, shape, kind, value))
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + len(part)])
        data += part
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "model.mlir").write_text(text.replace("@directory@", str(folder)))
    (folder / "config.json").write_text("{}")
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens())}H", *tokens()))
