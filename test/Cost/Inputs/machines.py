"""usage: machines.py WORK PAGE.md

Compiles WORK/m.mlir for machines. Their figures must be those of the page, and on machines that are infinitely fast but
for a few members the predicted seconds must follow from these members."""
import json
import subprocess
import sys

work, page = sys.argv[1], open(sys.argv[2]).read()


def report(*flags):
    subprocess.run(["pc-compile", work + "/m.mlir", *flags, "--to=planned", "-o", work + "/p", "--report=" + work + "/r.json"],
                   check=True, stderr=subprocess.DEVNULL)
    return json.load(open(work + "/r.json"))


def seconds(members, *flags):
    """Returns the seconds of a step on a machine that is infinitely fast except for `members`."""
    fast = {"like": "cpu", "f32_flops": 1e30, "memory_bandwidth": 1e30, "node_bandwidth": 1e30, "network_bandwidth": 1e30,
            "move_seconds": 0, "collective_seconds": 0}
    json.dump(fast | members, open(work + "/machine.json", "w"))
    return report("--machine=" + work + "/machine.json", *flags)["predicted"]["step_seconds"]


def near(a, b):
    assert abs(a - b) <= 1e-3 * abs(b), (a, b)


names = ["cpu", "a100", "h100", "h200", "b200"]
for name in names:
    m = report("--machine=" + name)["predicted"]["machine"]
    cells = [name, m["device"], f"{m['f32_flops'] / 1e12:g}", f"{m['bf16_flops'] / 1e12:g}", m["product_share"], m["multiprocessors"] or "-", f"{m['shared_bandwidth'] / 1e9:g}" if m["shared_bandwidth"] else "-",
             m["unaligned_share"], m["attention_share"], f"{m['attention_keys']:g}",
             f"{m['memory_bytes'] / 1e9:g}" if m["memory_bytes"] else "-", f"{m['memory_bandwidth'] / 1e9:g}", m["memory_share"],
             m["stream_share"], m["node_ranks"] or "all", f"{m['node_bandwidth'] / 1e9:g}",
             f"{m['network_bandwidth'] / 1e9:g}", m["link_share"]]
    row = "| " + " | ".join(map(str, cells)) + " |\n"
    assert row in page, row
print(*names, end=": as on the page\n")
chosen = [report(*flags)["predicted"]["machine"]["name"] for flags in
          ([], ["--target=cuda"], ["--target=cuda", "--arch=sm_90a"], ["--target=cuda", "--arch=sm_100a,sm_80"])]
print("by default: {}; {} for cuda; {} for sm_90a; {} for sm_100a".format(*chosen))

# Scores under the mask are not counted, so subtract them from the sum of all flops.
layers, batch, heads, tokens, head = 2, 8, 4, 64, 8
attention = layers * (2 + 5) * 2 * batch * heads * tokens * tokens * head
whole = report()["flops_per_step"]
near(seconds({"f32_flops": 1e9, "product_share": 0.5, "attention_share": 0.25}), (whole - attention) / 0.5e9 + attention / 2 / 0.25e9)
print("products alone: flops over rate and share")
# A query sees 32 of 64 keys on average, and there are 256 other queries. Heads of 8 elements reach 2 x 8 / 136 of the
# rate.
near(seconds({"f32_flops": 1e9, "product_share": 0.5, "attention_share": 0.25, "attention_keys": 16}),
     (whole - attention) / 0.5e9 + attention / 2 / (0.25e9 * 16 / 136 * 32 / 48 * 64 / 320))
print("attention by shape: keys, mask and heads")
near(seconds({"memory_bandwidth": 1e9}), 2 * seconds({"memory_bandwidth": 2e9}))
print("memory alone: bandwidth doubles, time halves")
# AdamW reads and writes four tensors more than SGD. No further access is needed for a tensor that is updated in place.
near(seconds({"memory_bandwidth": 1e9}) - seconds({"memory_bandwidth": 1e9}, "--optimizer=sgd"), 4 * 4 * report()["parameters"] / 1e9)
print("AdamW beside SGD: two states, read and written")
# In all microbatches except the first, products add to the gradients of the layers' matrices. In a stage that has the
# head, they also add to the head's gradient.
matrices, head_matrix, adds = layers * 12 * 32 * 32, 96 * 32, {"bf16_flops": 1e30, "accumulate_seconds": 1e-6}
assert seconds(adds, "--microbatches=4") < 1e-9 and seconds(adds, "--precision=bf16") < 1e-9
near(seconds(adds, "--precision=bf16", "--microbatches=4"), 3 * matrices * 1e-6)
near(seconds(adds, "--precision=bf16", "--mesh=pp=2", "--microbatches=2"), (matrices + head_matrix) * 1e-6)
print("products that add to f32 in bf16: each element of the sum")


def sent(report):
    return max(sum(row["wire_bytes"] for row in entry["traffic"]) for entry in report["per_rank"])


slow = {"node_bandwidth": 2e6, "network_bandwidth": 1e6, "link_share": 0.5}
# Work that takes no time hides no move.
two = sent(report("--mesh=dp=2"))
near(seconds(slow, "--mesh=dp=2"), two / 1e6)
near(seconds(slow | {"node_ranks": 2}, "--mesh=dp=2"), two / 1e6)
near(seconds(slow | {"node_ranks": 1}, "--mesh=dp=2"), two / 0.5e6)
print("dp=2 in a node and between nodes: bytes over bandwidth")
four = sent(report("--mesh=dp=4"))
near(seconds(slow | {"node_ranks": 2}, "--mesh=dp=4"), four / 1e6)
near(seconds(slow | {"node_ranks": 3}, "--mesh=dp=4"), four / 0.5e6)
print("dp=4 on two nodes: two adapters carry a ring")
# The sums of both gradients are all_reduces, one after the other. Each takes 2 (n - 1) hops of a ring, because no tree
# is shorter within a node.
hops = [seconds({"node_hop_seconds": 1e-3}, "--mesh=dp=" + str(n)) for n in (2, 4)]
near(3 * hops[0], hops[1])
apart = {"node_hop_seconds": 1e-3, "network_hop_seconds": 1e-2, "tree_hop_seconds": 4e-3, "node_ranks": 2}
near(seconds(apart, "--mesh=dp=4"), hops[0] / 2e-3 * 2 * (1e-3 + 4e-3))  # up and down a tree of two nodes; round the ring: 2 (2 + 10) ms
near(seconds({"collective_seconds": 1e-3}, "--mesh=dp=4"), hops[0] / 2)
one, all = (seconds({"collective_seconds": 1e-3}, "--mesh=dp=4", "--bucket-bytes=" + size) for size in ("1", "1G"))
assert all < 3.5e-3 < 20e-3 < one, (one, all)
print("moves that are started together go round their ring together")
print("latency alone: hops round a ring in a node, over a tree of nodes")

# The only tile is as large as any product, so each product takes one wave, in which all multiprocessors wait for one of
# them.
heads = {"f32_flops": 1e12, "multiprocessors": 3, "product_ramp": 36, "product_tiles": [[1 << 20, 1 << 20, 1]]}
few = seconds(heads, "--mesh=dp=1")
near(seconds(heads | {"multiprocessors": 6}, "--mesh=dp=1"), 2 * few)  # one tile is one wave of them all
near(seconds(heads | {"product_tiles": [[1 << 20, 1 << 20, 0.5], [1 << 20, 1 << 20, 1]]}, "--mesh=dp=1"), few)
print("products in tiles: whole waves, the best of the tiles")

# If moves slow down concurrent work, a step takes longer, by at most the share of the bytes that they copy.
both = {"f32_flops": 1e9, "node_bandwidth": 1e9}
alone, beside = (seconds(both | {"contend_share": share}, "--mesh=dp=2", "--bucket-bytes=1K") for share in (0, 0.5))
assert alone < beside <= alone + 0.5 * two / 1e9, (alone, beside)
print("hidden moves cost the work beside them")
# Ranks need slightly different times for s seconds of work. When they synchronise, they wait sqrt(s x jitter) for the
# last one.
worked = seconds({"f32_flops": 1e9}, "--mesh=dp=2")
near(seconds({"f32_flops": 1e9, "jitter_seconds": 0.04 * worked}, "--mesh=dp=2", "--bucket-bytes=1G"), 1.2 * worked)
once, often = (seconds({"f32_flops": 1e9, "jitter_seconds": 1e-4}, "--mesh=" + mesh) for mesh in ("dp=2", "tp=2"))
assert worked < once < often, (worked, once, often)
print("ranks wait where they meet, the longer the more often")
near(seconds(slow | {"node_ranks": 1, "straggle_share": 0.1, "step_seconds": 3}, "--mesh=dp=4"), 1.2 * seconds(slow | {"node_ranks": 1}, "--mesh=dp=4") + 3)
print("four nodes are out of step twice; a step takes seconds of its own")
