#!/usr/bin/env python3
"""Shows the placements that the search finds from seconds alone for a layer of Llama 8B with head and loss, forward,
backward and optimizer, on one axis of 8 H100, and on two. Prints the tables of docs/rationale/placement-by-cost.md.

usage: placements.py [DIRECTORY OF TOOLS]"""
import json, os, re, subprocess, sys, tempfile, time

tools = sys.argv[1] if len(sys.argv) > 1 else "build/bin"
CONFIG = {"model_type": "llama", "vocab_size": 32768, "hidden_size": 4096, "intermediate_size": 14336,
          "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 2048}
WEIGHTS = "kv_heads,ffn,vocab"
SPLIT = "must={0} parameters={0} states={0} optimizer={0} accumulated={0} fixed".format(WEIGHTS)
# Which dims may be split, sequences, options of pc-propagate, layers.
CASES = [
    ("1D by hand", 1, SPLIT, 1),
    ("sequence; must split heads, ffn, vocab", 1, f"free must={WEIGHTS} may=sequence", 1),
    ("heads, ffn, vocab", 1, "free may=" + WEIGHTS, 1),
    ("and sequence", 1, "free may=sequence," + WEIGHTS, 1),
    ("and embed instead", 1, "free may=embed," + WEIGHTS, 1),
    ("all", 1, "free", 1),
    ("batch", 8, "free may=batch", 1),
    ("heads, ffn, vocab", 8, "free may=" + WEIGHTS, 1),
    ("sequence; must split heads, ffn, vocab", 8, f"free must={WEIGHTS} may=sequence", 1),
    ("sequence, heads, ffn, vocab", 8, "free may=sequence," + WEIGHTS, 1),
    ("batch, heads, ffn, vocab", 8, "free may=batch," + WEIGHTS, 1),
    ("all", 8, "free", 1),
    ("batch, embed", 8, "free may=batch,embed", 1),
    ("batch, embed; 1 ns a byte", 8, "free byte-price=1e-9 may=batch,embed", 1),
    ("all", 1, "free", 4),
    ("all", 1, "free", 32),
]


# Sequences, meshes and flags of pc-compile on 4 layers: whole steps, predicted from the planned program.
STEPS = [(8, ["tp=8", "tp=8 --sequence-parallel", "dp=8", "tp=8 --tensor-parallel=free"]),
         (8, ["tp=16 --sequence-parallel", "dp=2,tp=8 --sequence-parallel", "row=4,col=4 --tensor-parallel=2d",
              "row=4,col=4 --tensor-parallel=free:row,col", "row=4,col=4 --tensor-parallel=free:col,row"]),
         (64, ["dp=64", "dp=8,tp=8 --sequence-parallel", "dp=8,tp=8 --tensor-parallel=free",
               "row=8,col=8 --tensor-parallel=2d", "row=8,col=8 --tensor-parallel=free:row,col"])]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    return done


def model(directory, layers, batch):
    """Made once."""
    path = f"{directory}/{layers}-{batch}.mlir"
    if not os.path.exists(path):
        os.makedirs(f"{directory}/{layers}", exist_ok=True)
        with open(f"{directory}/{layers}/config.json", "w") as config:
            json.dump(CONFIG | {"num_hidden_layers": layers}, config)
        run(f"{tools}/pc-import", f"{directory}/{layers}", f"--batch={batch}", "--seq=2048", "-o", path)
    return path


DIMS = {"kv_heads": "heads", "head_dim": "head dim"}
LEAVES = {"embed_tokens": "embedding", "q_proj": "q", "k_proj": "k", "o_proj": "o", "gate_proj": "gate",
          "down_proj": "down", "lm_head": "head", "input_layernorm": "norm"}
VALUES = {"pc.embedding": ("embedded", "batch sequence embed"), "pc.rms_norm": ("normed", "batch sequence embed"),
          "pc.attention": ("attended", "batch sequence kv_heads group head_dim"),
          "pc.activation": ("activated", "batch sequence ffn"), "pc.output logits": ("logits", "batch sequence vocab")}


def lies(place, names):
    """Names of the dims that are split, of `[_, tp, _]`."""
    inner = re.match(r"\[(.*)\]", place).group(1)
    parts = re.findall(r"\([^)]*\)|[^, ]+", inner)
    split = [DIMS.get(name, name) + (" " + part if len(axes_of(place)) > 1 else "")
             for part, name in zip(parts, names) if part != "_"]
    rest = place[place.index("]") + 1:].strip()
    return " ".join(split + (["sum"] if rest.startswith("sum") else [])) or "whole"


def axes_of(place):
    return {axis for axis in re.findall(r"\w+", place[1:place.index("]")]) if axis != "_"}


def places(program):
    found = {}
    for line in program.splitlines():
        leaf = re.search(r'pc.parameter "([^"]+)" dims \[([^\]]*)\].*#pc.place<(.*)>> loc', line) or \
            re.search(r'pc.parameter "([^"]+)" dims \[([^\]]*)\].*#pc.place<(.*)>>', line)
        if leaf:
            for part, name in LEAVES.items():
                if part in leaf[1]:
                    found.setdefault(name, lies(leaf[3], re.findall(r'"(\w+)"', leaf[2])))
        for op, (name, dims) in VALUES.items():
            if f"{op} " in line and "grad" not in line:
                types = re.findall(r"#pc.place<([^>]*)>", line.split(" : ", 1)[1])
                rank = len(dims.split())
                fits = [t for t in types if len(re.findall(r"\([^)]*\)|[^, ]+",
                                                           re.match(r"\[(.*?)\]", t).group(1))) == rank]
                if fits:
                    found.setdefault(name, lies(fits[-1], dims.split()))
    return found


def summary(found):
    """"whole: norm; by heads: q, k; ..." """
    by = {}
    for name, where in found.items():
        by.setdefault(where, []).append(name)
    return "; ".join(f"{'by ' if where != 'whole' else ''}{where}: {', '.join(names)}"
                     for where, names in sorted(by.items()))


def search(directory, layers, batch, options):
    """Seconds, what is said and the program of a propagation in bf16."""
    path = f"{directory}/step.mlir"
    run(f"{tools}/pc-opt", model(directory, layers, batch), "--pc-differentiate",
        "--pc-mixed-precision=compute=bf16", "--pc-set-mesh=mesh=tp=8", "-o", path)
    start = time.time()
    done = run(f"{tools}/pc-opt", path, f"--pc-propagate=axis=tp cost=seconds machine=h100 tell {options}")
    said = re.search(r"remark: pc-propagate: ([\d.]+) ms per step, ([\d.]+) MB .*gap ([\d.]+) %, largest "
                     r"table (\d+)(?:; (.*))?", done.stderr)
    return time.time() - start, said.groups(), done.stdout


def predicted(directory, batch, flags):
    """Milliseconds of a step."""
    done = run(f"{tools}/pc-compile", model(directory, 4, batch), "--precision=bf16", "--machine=h100", "--to=planned",
               "-o", os.devnull, "--mesh", *flags.split())
    return 1e3 * float(re.search(r"a step takes ([\d.e-]+) s", done.stderr)[1])


def main():
    with tempfile.TemporaryDirectory() as directory:
        print("| dims it may split | sequences | layers | ms | GB a rank | gap | largest table | s | what comes out |")
        print("|---|---|---|---|---|---|---|---|---|")
        for title, batch, options, layers in CASES:
            took, (ms, megabytes, gap, table, left), program = search(directory, layers, batch, options)
            out = summary(places(program)) + (f" ({left})" if left else "")
            print(f"| {title} | {batch} | {layers} | {float(ms):.2f} | {float(megabytes) / 1e3:.2f} | {gap} % | "
                  f"{int(table):,} | {took:.1f} | {out} |", flush=True)
        print("\n| sequences | plan | ms |\n|---|---|---|")
        for batch, plans in STEPS:
            for flags in plans:
                print(f"| {batch} | `{flags}` | {predicted(directory, batch, flags):.1f} |", flush=True)


if __name__ == "__main__":
    main()
