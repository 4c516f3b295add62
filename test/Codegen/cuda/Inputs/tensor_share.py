"""usage: tensor_share.py HEADS64 HEADS128 WORK

Compiles a program of one layer for sm_90 and sm_90a and compares the reports' figures of its attention on an H100. This
file also counts the operations by itself."""
import json
import subprocess
import sys

BATCH, TOKENS = 4, 256


def attention(model, arch, work, machine="h100"):
    """Rows of the report by whether they are of the gradient."""
    subprocess.run(["pc-compile", model, "--target=cuda", "--arch=" + arch, "--machine=" + machine, "--precision=bf16", "--attention=generated", "--to=planned",
                    "--report=" + work + ".json", "-o", work + ".planned"], check=True, stderr=subprocess.DEVNULL)
    rows = [row for row in json.load(open(work + ".json"))["kernels"] if row["kind"] == "attention"]
    return [[row for row in rows if ("grad" in row["op"]) == gradient] for gradient in (False, True)]


def operations(heads, head, block, tile, products):
    """Of causal attention whose blocks of queries meet tiles of keys up to their last query."""
    tiles = sum(-(-(first + block) // tile) for first in range(0, TOKENS, block))
    return BATCH * heads * tiles * block * tile * head * 2 * products


def exponentials(model, arch, work):
    """The additional time of exponentials, in percent of the forward pass and of the gradient. Memory takes no time here."""
    seconds = []
    for shared in (30.9e12, 0):
        with open(work + ".machine.json", "w") as file:
            json.dump({"name": "fast", "like": "h100", "memory_bandwidth": 1e18, "shared_bandwidth": shared}, file)
        seconds.append([sum(row["seconds"] for row in rows) for rows in attention(model, arch, work, work + ".machine.json")])
    return [round(100 * (counted / without - 1)) for counted, without in zip(*seconds)]


for model, heads, head in ((sys.argv[1], 2, 64), (sys.argv[2], 2, 128)):
    for name, old, new in zip(("forward", "gradient"), attention(model, "sm_90", sys.argv[3]), attention(model, "sm_90a", sys.argv[3])):
        shares = [min(row["tensor_share"] for row in rows) for rows in (old, new)]
        assert shares[1] >= 1.99 * shares[0], shares
        print(f"heads of {head}, {name}: {shares[0]:.2f} of the peak by mma.sync, {shares[1]:.2f} by warpgroups")
        if name == "forward":
            assert old[0]["flops"] == operations(heads, head, 64, 64 if head == 64 else 32, 2), old
            # Heads of 128 multiply the tile of keys after the last one, too.
            ahead = BATCH * heads * TOKENS * 64 * head * 2 if head == 128 else 0
            assert new[0]["flops"] == operations(heads, head, 128, 64, 2) + ahead, new
        assert sum(row["seconds"] for row in new) < sum(row["seconds"] for row in old)
    print(f"heads of {head}, exponentials by warpgroups: {exponentials(model, 'sm_90a', sys.argv[3])} %")
