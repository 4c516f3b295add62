#!/usr/bin/env python3
"""usage: test/EndToEnd/random-stages.py SEED     PC_LONG=1: a hundred plans of the seed, else five

Draws random models (layers, tied or not), stages, numbers of microbatches, chunk maps, schedules (named, or any legal
order of tasks), other axes, ZeRO and recomputation. Each is compiled to `scheduled`, and on the way the programs of all
stages are verified: there must be no false alarm. Every tenth is also interpreted and must compute what its step
computes."""
import json
import random
import subprocess
import sys

from cases import BIN, LONG, SMALL_LLAMA, Case


# Names of schedules, and their chunks per stage (0: any number).
SCHEDULES = [(name, int(chunks)) for name, chunks in
             map(str.split, subprocess.check_output([BIN / "pc-schedules-test", "--names"], text=True).splitlines())]


def legal_order(rng, stages, chunks, microbatches, split, recompute):
    """Tasks of every stage: any order that respects dependencies and takes microbatches one after another."""
    device = list(range(stages)) + [rng.randrange(stages) for _ in range(chunks - stages)]
    rng.shuffle(device)
    kinds = "F" + ("R" if recompute else "") + "B" + ("W" if split else "")
    done, order = set(), [[] for _ in range(stages)]
    following = {(kind, chunk): 0 for kind in kinds for chunk in range(chunks)}

    def ready(kind, chunk, i):
        before = {"F": [("F", chunk - 1)] if chunk else [], "R": [("F", chunk)], "W": [("B", chunk)],
                  "B": [("R" if recompute else "F", chunk)] + [("B", chunk + 1)] * (chunk + 1 < chunks)}
        return all((*task, i) in done for task in before[kind])

    while len(done) < len(kinds) * chunks * microbatches:
        candidates = [(k, c, i) for (k, c), i in following.items() if i < microbatches and ready(k, c, i)]
        task = rng.choice(candidates)
        done.add(task)
        following[task[0], task[1]] += 1
        order[device[task[1]]].append(f"{task[0]}{task[1]}.{task[2]}")
    return "".join(" ".join(tasks) + "\n" for tasks in order)


def random_plan(rng, order):
    """The model's config, the flags, and the batch; `order`: the file for an order of tasks."""
    stages = rng.choice([2, 2, 2, 3, 4, 5])
    layers = rng.randint(max(1, stages - 2), 8)
    llama = rng.random() < 0.5
    # If the order has tasks R, every chunk recomputes, so it needs a layer.
    microbatches = rng.randint(1, 9)
    dp, tp = rng.choice([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
    flags, axes = [], [f"pp={stages}"] + [f"dp={dp}"] * (dp > 1) + [f"tp={tp}"] * (tp > 1)
    rng.shuffle(axes)
    flags += ["--mesh", ",".join(axes), f"--microbatches={microbatches}"]
    if dp > 1:
        flags.append(f"--zero={rng.randint(0, 3)}")
    if tp > 1 and rng.random() < 0.6:
        flags.append("--sequence-parallel")
    if rng.random() < 0.25:
        flags.append("--precision=bf16")
    recompute = rng.choice(["none", "none", "selective", "full"])
    flags.append(f"--recompute={recompute}")
    names = []
    for name, per_stage in SCHEDULES:
        most = (layers + 2) // stages  # chunks a stage
        names += [name] if most >= (per_stage or 2) else []
        names += [f"{name}:3"] if not per_stage and most >= 3 else []
    if layers + 2 >= 2 * stages:
        names.append("auto")
    if rng.random() < 0.4 and recompute == "none":
        chunks = rng.randint(stages, min(layers + 2, 2 * stages))
        order.write_text(legal_order(rng, stages, chunks, microbatches, rng.random() < 0.5, False))
        flags.append(f"--pipeline={order}")
    else:
        flags.append(f"--pipeline={rng.choice(names)}")
    if llama:
        config = SMALL_LLAMA | dict(num_hidden_layers=layers, num_key_value_heads=2, tie_word_embeddings=rng.random() < 0.5)
    else:
        config = dict(model_type="gpt2", vocab_size=32, n_positions=16, n_embd=16, n_layer=layers, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return config, flags, microbatches * dp


class Stages(Case):
    def plan(self, rng, number):
        folder = self.work / str(number)
        folder.mkdir()
        config, flags, batch = random_plan(rng, folder / "order")
        (folder / "config.json").write_text(json.dumps(config))
        model, step, stages = (folder / name for name in ("model", "step", "stages"))
        self.needs("pc-import", folder, "--batch", batch, "--seq", 8, "-o", model)
        if self.holds(f"plan {number}: {' '.join(flags)}", "pc-compile", model, *flags, "--to=scheduled", "-o", stages) and number % 10 == 0:
            same = [flag for flag in flags if flag.startswith(("--microbatches", "--precision"))]
            self.needs("pc-compile", model, *same, "--to=step", "-o", step)
            self.holds(f"plan {number}, interpreted", "pc-equal", step, stages)

    def body(self):
        for number in range(100 if LONG else 5):
            self.plan(random.Random(int(sys.argv[1]) * 1000003 + number), number)


stages = Stages(f"random-stages-{sys.argv[1]}")
stages.run(stages.body)
