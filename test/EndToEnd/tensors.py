"""usage: tensors.py header|data FILE, tensors.py framed, tensors.py shards FILE FOLDER,
       tensors.py zero FILE NAME FIRST END, tensors.py also FILE NAME COPY

Reads and edits a safetensors file. header and data print the text of its header and the bytes that follow it; framed
puts the length of a header from standard input before it; shards writes the same tensors into a folder of two files
with an index; zero sets bytes FIRST to END of a tensor to zero; also adds a tensor a second time, as COPY."""
import json
import struct
import sys
from pathlib import Path

what, *arguments = sys.argv[1:]


def parts(path):
    content = Path(path).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return content[8:end], content[end:]


def framed(header):
    return struct.pack("<Q", len(header)) + header


def shards(path, folder):
    header, data = parts(path)
    entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
    names, place = sorted(entries, key=lambda name: entries[name]["data_offsets"]), {}
    for shard, some in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        begin, end = entries[some[0]]["data_offsets"][0], entries[some[-1]]["data_offsets"][1]
        moved = {name: entries[name] | {"data_offsets": [at - begin for at in entries[name]["data_offsets"]]} for name in some}
        file = f"model-0000{shard}-of-00002.safetensors"
        Path(folder, file).write_bytes(framed(json.dumps(moved).encode()) + data[begin:end])
        place |= dict.fromkeys(some, file)
    Path(folder, "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place}))


def also(path, name, copy):
    header, data = parts(path)
    entries = json.loads(header)
    begin, end = entries[name]["data_offsets"]
    entries[copy] = entries[name] | {"data_offsets": [len(data), len(data) + end - begin]}
    Path(path).write_bytes(framed(json.dumps(entries).encode()) + data + data[begin:end])


def zero(path, name, first, end):
    header, data = parts(path)
    begin = json.loads(header)[name]["data_offsets"][0]
    zeros = bytes(int(end) - int(first))
    Path(path).write_bytes(framed(header) + data[: begin + int(first)] + zeros + data[begin + int(end) :])


if what in ("header", "data"):
    sys.stdout.buffer.write(parts(arguments[0])[what == "data"])
elif what == "framed":
    sys.stdout.buffer.write(framed(sys.stdin.buffer.read()))
else:
    {"shards": shards, "zero": zero, "also": also}[what](*arguments)
