"""Runs random (model, mesh, order of tactics) triples through import, step, placement, interpreter and erasure.

usage: random_plans.py FOLDER COUNT"""
import json, os, random, subprocess, sys

FAMILIES = {
    "gpt2": dict(architectures=["GPT2LMHeadModel"], activation_function="gelu_new", layer_norm_epsilon=1e-5,
                 attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True),
    "llama": dict(architectures=["LlamaForCausalLM"], hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0),
    "mistral": dict(architectures=["MistralForCausalLM"], hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
                    sliding_window=None),
    "qwen2": dict(architectures=["Qwen2ForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6, rope_theta=10000.0),
    "qwen3": dict(architectures=["Qwen3ForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6, rope_theta=10000.0,
                  attention_bias=False),
}


def config(r, family):
    """A random small model: (config.json, key/value heads, query heads per group)."""
    heads, group, layers = r.choice([1, 2, 4]), r.choice([1, 2, 4]), r.choice([1, 2])
    if family == "gpt2":
        heads, group = r.choice([2, 4]), 1
    head_dim, vocab = r.choice([2, 4]), r.choice([16, 21, 32])
    hidden, ffn = heads * group * head_dim, r.choice([8, 16])
    c = dict(FAMILIES[family], model_type=family, vocab_size=vocab, torch_dtype="float32", initializer_range=0.02)
    if family == "gpt2":
        c.update(n_positions=8, n_embd=hidden, n_layer=layers, n_head=heads, n_inner=ffn)
    else:
        c.update(hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads * group,
                 num_key_value_heads=heads, head_dim=head_dim, max_position_embeddings=8, tie_word_embeddings=r.random() < .5)
    return c, heads, group


def plan(r, heads, group):
    """A random mesh with up to three axes and a tactic for each, in any order: (axes, tactics, ranks of the vocabulary)."""
    tensor = [n for n in (1, 2, 4) if heads % n == 0 or n % heads == 0 and group % (n // heads) == 0]
    axes, tactics, tp = {}, [], 1
    if r.random() < .8:
        tp = axes["tp"] = r.choice(tensor[1:] * 8 + tensor)
        tactics.append("--pc-tensor-parallel")
    if not axes or r.random() < .7:
        axes["dp"] = 2
        tactics.append("--pc-data-parallel")
        if r.random() < .2:
            axes["outer"] = 2
            tactics.append("--pc-data-parallel=axis=outer")
    names = list(axes)
    r.shuffle(names)
    r.shuffle(tactics)
    return ",".join(f"{a}={axes[a]}" for a in names), tactics, tp


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"FAILED: {' '.join(command)}\n{result.stderr[-4000:]}")
    return result.stdout


def main(folder, count):
    r = random.Random(int(os.environ.get("PC_SEED", "3")))
    os.makedirs(folder, exist_ok=True)
    for i in range(count):
        family = list(FAMILIES)[i % len(FAMILIES)]
        c, heads, group = config(r, family)
        mesh, tactics, tp = plan(r, heads, group)
        microbatches = r.choice([1, 2])
        with open(f"{folder}/config.json", "w") as f:
            json.dump(c, f)
        model, step, placed = (f"{folder}/{name}.mlir" for name in ("model", "step", "placed"))
        run("pc-import", folder, "-o", model, "--batch", str(4 * microbatches), "--seq", "4")
        run("pc-opt", model, f"--pc-pad-vocabulary=multiple={tp}", f"--pc-differentiate=microbatches={microbatches}", "-o", step)
        # The interpreter fails if a value differs from its one-device value.
        run("pc-opt", step, f"--pc-set-mesh=mesh={mesh}", *tactics, "--pc-fuse-moves", "--pc-verify-placed",
            "--pc-interpret=print=none", "-o", placed)
        if run("pc-opt", placed, "--pc-erase-placements") != open(step).read():
            sys.exit(f"FAILED: erasure of {family} {mesh} {tactics}")
        print(f"{family} heads {heads}x{group} microbatches {microbatches} mesh {mesh} {' '.join(tactics)}")
    print(f"{count} plans placed, compared and erased")


main(sys.argv[1], int(sys.argv[2]))
