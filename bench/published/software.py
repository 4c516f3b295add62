"""Models the seconds that published software takes and the compiler's program does not. software.json has the
properties of each software by name, constants.json the fitted figures.

The compiler simulates a row with its own machine, except for these members, which model the software:
* op_seconds: kernels that are launched one by one;
* attention_share: the time of a layer outside its products. Attention is the only op that occurs once in each layer, so
  it gets all the time by which a layer is longer;
* node_bandwidth, contend_share, collective_seconds, node_hop_seconds, network_hop_seconds: moves that a host drives;
* step_seconds: data, the loss on the host, logging.
The cost of stages is a closed form: seconds per message, times the number of messages of the slowest stage.
"""
import json

from compiled import HERE

PROFILES = json.loads((HERE / "software.json").read_text())
CONSTANTS = HERE / "constants.json"


def constants():
    return json.loads(CONSTANTS.read_text())


def forward_passes(row):
    return 2 if row["recompute"] == "full" else 1


def all_reduce(bytes_, ranks, machine):
    """Returns the seconds of a sum over `ranks` ranks of one node."""
    if ranks == 1:
        return 0.0
    hops = 2 * (ranks - 1)
    return machine["collective_seconds"] + hops * machine["node_hop_seconds"] + hops / ranks * bytes_ / (machine["node_bandwidth"] * machine["link_share"])


def layer(row, machine, known):
    """Seconds of a layer and microbatch besides its products, forward and backward, on one rank."""
    profile = PROFILES[row["software"]]
    heads, dim, seq = row["heads"] / row["tp"], row["hidden"] // row["heads"], row["seq"]
    flops = 2.0 * row["micro"] * heads * dim * seq * seq  # of a product, masked scores too, or of both without them
    peak, memory = machine["bf16_flops"], machine["memory_bandwidth"]
    stream = memory * machine["stream_share"]
    if profile["attention"] == "memory":  # two products forward and four backward, and passes over their scores: softmax, mask, dropout
        once = 2.0 * row["micro"] * heads * seq * seq / (memory * known["scores_share"])
        product = max(once, flops / (peak * machine["product_share"] * dim / (dim + machine["product_ramp"] / 2)))
        forward, backward = (count * product + passes * once for count, passes in zip((2, 4), profile["score_passes"]))
    else:  # FlashAttention of the first generation
        rate = peak * known["flash_" + row["gpu"].split("-")[0]] * seq / (seq + 512.0)
        forward, backward = flops / rate, 2.5 * flops / (0.85 * rate)
    unit = 2.0 * row["micro"] * seq * row["hidden"] / stream  # a pass over the activations
    more = known[profile["passes"]] * unit if profile["passes"] else 0
    parameters = layer_parameters(row)
    backward += known["copies_scale"] * profile["copies"] * parameters / stream
    forward, backward = forward + known["layer_seconds"], backward + 1.5 * known["layer_seconds"]
    if row["recompute"] == "full":  # all of the layer is made again; the compiler leaves out its last product, and the sum of its result over tensor ranks
        backward += 2.0 * row["micro"] * seq * row["hidden"] * row["ffn"] / row["tp"] / (peak * machine["product_share"])
        backward += all_reduce(2.0 * row["micro"] * seq * row["hidden"], row["tp"], machine)
    if row["microbatches"] > 1:
        backward += profile["sums"] * parameters / stream
    return forward + more, backward + 1.5 * more


def host_bandwidth(row, machine, known):
    """Of a node's links, as the ring sees it where a host drives one move a tensor: bytes of a layer's weights, and launches and hops of each of its moves."""
    nodes = -(-row["dp"] // machine["node_ranks"])
    hops = (row["dp"] - nodes) * machine["node_hop_seconds"] + (nodes - 1) * machine["network_hop_seconds"]
    bytes_ = 2.0 * layer_parameters(row)
    rate = known["host_ring_share"] * machine["node_ranks"] * machine["network_bandwidth"]
    return bytes_ / (bytes_ / rate + known["host_moves"] * machine["link_share"] * (machine["collective_seconds"] + hops))


def full_share(row, machine):
    """Seconds of the compiler's attention at the machine's peak: forward, and what the backward pass has of it."""
    forward = 4.0 * row["micro"] * row["heads"] / row["tp"] * (row["hidden"] // row["heads"]) * row["seq"] ** 2 / 2 / machine["bf16_flops"]
    return forward, 2.5 * forward


def wanted(row, machine, known):
    """Members of the machine that stand for the software, by physical size: seconds of attention in a layer in place of its share."""
    profile = PROFILES[row["software"]]
    forward, backward = layer(row, machine, known)
    result = {"attention": forward_passes(row) * forward + backward, "op_seconds": known["launch_seconds"], "step_seconds": known["step_seconds"]}
    if profile["host_moves"]:
        result["node_bandwidth"] = host_bandwidth(row, machine, known)
        result["contend_share"] = known["host_contend_share"]
    return result


def changes(row, machine, sizes):
    """`wanted` as members of the machine's file."""
    result = dict(sizes)
    forward, backward = full_share(row, machine)
    result["attention_share"] = min(1.0, (forward_passes(row) * forward + backward) / result.pop("attention"))
    fixed = {"attention_keys": 0}
    if PROFILES[row["software"]]["host_moves"]:  # concurrent work loses a share of all of their time: launches and hops are part of the bandwidth
        fixed |= dict.fromkeys(("collective_seconds", "node_hop_seconds", "network_hop_seconds"), 0)
    return {name: float(f"{value:.6g}") for name, value in result.items()} | fixed


def layer_parameters(row):
    return (4 * row["hidden"] ** 2 + 2 * row["hidden"] * row["ffn"]) / row["tp"]


def flags(row):
    """Of the compiler's program too: what gradients are reduced in, and how many of them at once."""
    profile = PROFILES[row["software"]]
    bits = profile["gradient_bits"]
    reduced = {"layer": f"{1.1 * layer_parameters(row) * bits / 8:.0f}", "all": "1T"}
    return [f"--gradient-precision={'bf16' if bits == 16 else 'f32'}"] + ([f"--bucket-bytes={reduced[profile['reduced']]}"] if profile["reduced"] else [])


def messages(row, machine, known):
    """Seconds of a step that stages spend on messages which the compiler's program hides."""
    profile, p = PROFILES[row["software"]], row["pp"]
    if p == 1:
        return 0.0
    bytes_, t = 2.0 * row["micro"] * row["seq"] * row["hidden"], row["tp"]
    one = bytes_ / (t if profile["split_messages"] else 1) / (machine["network_bandwidth"] * machine["link_share"])
    if profile["split_messages"] and t > 1:  # each tensor rank sends its part; the parts are gathered in the node
        one += (t - 1) / t * bytes_ / (machine["node_bandwidth"] * machine["link_share"]) + machine["collective_seconds"]
    return 2 * (row["microbatches"] * row["chunks"] + p - 1) * (one + known["message_seconds"])


def seconds(row, report, machine, known):
    """Of the row, from the report of a compile with `changes`: of a step, or of one task."""
    if row["part"] == "step":
        return report["step"] + messages(row, machine, known) * (report["step"] - report["machine"]["step_seconds"]) / report["program"]
    kind = {"F": "forward", "B": "backward", "W": "weight"}[row["part"]]
    layers = (row["layers"] + 2) / row["pp"]
    # Sums of biases' gradients, 9 h read, are in B there; in the compiler's program they go with the weights' gradients, as W.
    sums = 9 * layers * 2.0 * row["micro"] * row["seq"] * row["hidden"] / (machine["memory_bandwidth"] * machine["stream_share"])
    sums += 4 * layers * known["launch_seconds"]
    result = report["tasks"][kind] + {"F": 0, "B": sums, "W": -sums}[row["part"]]
    if row["part"] == "W":
        return result
    # The two passes of attention differ otherwise than the compiler's, which the machine's one share keeps.
    passes = dict(zip("FB", layer(row, machine, known)))
    own = dict(zip("FB", full_share(row, machine)))
    return result + layers * (passes[row["part"]] - own[row["part"]] / report["machine"]["attention_share"]) + known["message_seconds"]
