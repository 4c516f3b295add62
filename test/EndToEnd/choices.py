"""Reads and writes files of choices of experts without the runtime."""
import json
import struct


def read(path):
    """Reads a file of choices: its header and all numbers."""
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:end])
    kind = {"U8": "B", "U16": "H", "I32": "i", "I64": "q"}[header["routing"]["dtype"]]
    return header, list(struct.unpack(f"<{(len(content) - end) // struct.calcsize(kind)}{kind}", content[end:]))


def written(numbers, shape, dtype="I32", name="routing", **says):
    kind = {"U8": "B", "I32": "i", "I64": "q", "F32": "f"}[dtype]
    data = struct.pack(f"<{len(numbers)}{kind}", *numbers)
    header = {name: dict(dtype=dtype, shape=shape, data_offsets=[0, len(data)])} | ({"__metadata__": says} if says else {})
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data
