"""usage: events.py PC_RUN PROGRAMS

Tests --tensorboard. This file reads records, sums and messages by itself; if the package tensorboard is there, or with
PC_LONG=1, which installs it, TensorBoard reads them, too."""
import glob
import json

from harness import *

work_in("events.work")
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data):
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer."""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7) or (varint() if key & 7 == 2 else 0)
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            yield key >> 3, message[at:at + size]
            at += size


def curves(directory):
    """{tag: [(step, value)]}, of all files in their order; a start makes an end of the steps from its own on."""
    result = {}
    for file in sorted(glob.glob(f"{directory}/events.out.tfevents.*"), key=os.path.getmtime):
        content, at, first = read(file), 0, True
        while at < len(content):
            size, of_size = struct.unpack_from("<QI", content, at)
            event, (of_event,) = content[at + 12:at + 12 + size], struct.unpack_from("<I", content, at + 12 + size)
            if masked(content[at:at + 8]) != of_size or masked(event) != of_event:
                good(f"sums at {at}", False)
            at += size + 16
            event = dict(fields(event))
            if first:
                good("the version comes first", event.get(3) == b"brain.Event:2")
            first = False
            if 7 in event:
                result = {tag: [point for point in points if point[0] < event[2]] for tag, points in result.items()}
            for _, value in fields(event.get(5, b"")):
                value = dict(fields(value))
                result.setdefault(value[1].decode(), []).append((event.get(2, 0), struct.unpack("<f", value[2])[0]))
    return result


def near(points, lines, key):
    return [step for step, _ in points] == [line["step"] for line in lines] and all(abs(value - line[key]) <= 1e-5 * abs(line[key]) for (_, value), line in zip(points, lines))


succeeds("a run", "2-1-1", "--steps", 12, "--lr-steps", 20, "--tensorboard", "tb/run", "--save", "twelve", "--metrics", "lines.jsonl")
succeeds("that goes on", "1-1-1", "--steps", 20, "--lr-steps", 20, "--tensorboard", "tb/run", "--load", "twelve", "--metrics", "lines.jsonl")
succeeds("and once more from there", "1-1-1", "--steps", 20, "--lr-steps", 20, "--tensorboard", "tb/run", "--load", "twelve", "--metrics", "lines.jsonl")
lines = [json.loads(line) for line in open("lines.jsonl")]
read_here = curves("tb/run")
for tag, key in [("train/loss", "loss"), ("train/learning_rate", "lr"), ("train/gradient_norm", "grad_norm")]:
    good(f"{tag}, twenty steps", near(read_here.get(tag, []), lines, key), read_here.get(tag))
good("three files", len(os.listdir("tb/run")) == 3, os.listdir("tb/run"))
write("taken", "a user's own")
refused("a file in the way", 6, ["cannot write to taken"], "1-1-1", "--steps", 1, "--tensorboard", "taken")

python = sys.executable
if LONG:
    subprocess.run([python, "-m", "venv", "venv"], check=True)
    python = "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "tensorboard", "setuptools<81"], check=True)
if subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode == 0:
    done = subprocess.run([python, "-c", READER, "tb/run"], capture_output=True, text=True)
    if good("TensorBoard reads them", done.returncode == 0, done.stderr[-2000:]):
        there = json.loads(done.stdout)
        good("as they are read here", {tag: [tuple(point) for point in points] for tag, points in there.items()} == read_here, there)
else:
    print("tensorboard is not installed here: its own reader did not run")
end()
