"""usage: replicas.py PC_RUN PROGRAMS

Tests that --check-replicas finds a bit that is changed in the memory of one rank, and nothing else."""
from harness import *

work_in("replicas.work")
for mesh in ["1-1-1", "2-1-1", "1-2-1", "2-2-2"]:
    for environment in [{}, {"PCRT_TRANSPORT": "tcp"}]:
        succeeds(f"{mesh} {environment}", mesh, "--steps", 20, "--check-replicas", 1, **environment)
refused("a share of a step", 2, ["--check-replicas"], "2-1-1", "--check-replicas", "0.5")

# The arenas lie in the memory that pc-run holds. Without a learning rate, parameters do not change.
succeeds("the values", "2-1-1", "--steps", 0, "--save", "first")
text = read("first/model.safetensors")
values = text[8 + struct.unpack("<Q", text[:8])[0]:][:256]
process = start(command("2-1-1", "--steps", 10**9, "--lr", 0, "--weight-decay", 0, "--check-replicas", 50, "--metrics", "m.jsonl", launcher=["--restarts", "0"]))
wait_for(lambda: os.path.exists("m.jsonl") and len(read("m.jsonl").splitlines()) > 200)


def places(memory):
    """Where these values begin in a large file that is mostly holes."""
    end, found = 0, []
    while True:
        try:
            begin = os.lseek(memory, end, os.SEEK_DATA)
        except OSError:
            return found
        end = os.lseek(memory, begin, os.SEEK_HOLE)
        data, at = os.pread(memory, end - begin, begin), -1
        while (at := data.find(values, at + 1)) >= 0:
            found.append(begin + at)


ranks = 0
for name in os.listdir(f"/proc/{process.pid}/fd"):
    path = f"/proc/{process.pid}/fd/{name}"
    if "memfd:pcrt" in os.readlink(path):
        memory = os.open(path, os.O_RDWR)
        found = places(memory)
        ranks += len(found)
        os.pwrite(memory, bytes([values[40] ^ 1]), found[-1] + 40)
good("the memory of both ranks was found", ranks == 2, ranks)
code, said = finish(process)
good("one bit is found", code == 9 and "rank 1 has different bits than rank 0 in a tensor that both hold:" in said, f"exit {code}: {said}")
good("one message", said.count("error: ") == 1, said)
end()
