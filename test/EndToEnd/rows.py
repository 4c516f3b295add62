#!/usr/bin/env python3
"""usage: test/EndToEnd/rows.py

Counts the rows that experts send and compute. Choices are drawn in several ways (equally often, nearly all of few
experts, experts without tokens, all of one rank's experts), and runs of many plans (the quick run: of some) read them.
From the choices that a run then dumps, this file computes anew the bytes that every rank must have sent as
all_to_all_rows in each phase, and the largest and mean number of its experts' rows, per round if there are rounds."""
import json
import random

from cases import LONG, Case, data_flags, mesh_flags, ranks_of
from choices import read, written

STEPS, BATCH, SEQUENCE, EXPERTS, PER_TOKEN, LAYERS, WIDTH = 2, 4, 16, 4, 2, 2, 32
ROWS = "--expert-exchange=rows"
PLANS = [f"ep=2 {ROWS}", f"ep=4 {ROWS}", f"dp=2,ep=2 {ROWS}", "ep=4 --expert-exchange=gather", "1", f"ep=2,dp=2 {ROWS}", f"ep=2,tp=2 {ROWS}", f"ep=2,cp=2 --context-parallel=heads {ROWS}",
         f"dp=2,ep=2 --zero=3 {ROWS}", f"ep=2 {ROWS} --microbatches=2", f"ep=2,tp=2 {ROWS} --microbatches=2", f"ep=2 {ROWS} --recompute=full", f"ep=2 {ROWS} --recompute=selective", "dp=2,ep=2 --expert-exchange=gather"]
IN_ROUNDS = ["ep=2 --experts-limit=23", "1 --experts-limit=50", "ep=4 --experts-limit=7", "ep=2,tp=2 --microbatches=2 --experts-limit=9", "dp=2 --experts-limit=1000"]
WEIGHTS = {"even": [1, 1, 1, 1], "skewed": [60, 50, 1, 1], "empty": [3, 2, 1, 0], "last": [0, 0, 1, 1], "first": [1e6, 1, 1, 1]}
CAPACITIES = {"mixtral": SEQUENCE, "mixtral-capacity": 5}


def drawn(weights, seed):
    """Choices [steps, layers, batch, sequence, experts of a token]."""
    draw, numbers = random.Random(seed), []
    for _ in range(STEPS * LAYERS * BATCH * SEQUENCE):
        left = list(weights)
        for _ in range(PER_TOKEN):
            numbers.append(draw.choices(range(EXPERTS), left)[0])
            left[numbers[-1]] = 0
    return numbers


class Plan:
    """Where tokens and experts lie: the batch on dp and then ep, the sequence on cp, experts on ep."""

    def __init__(self, text, capacity):
        mesh, *self.flags = text.split()
        self.text, self.mesh, self.ranks = text, mesh, ranks_of(mesh)
        self.axes = [(axis.split("=")[0], int(axis.split("=")[1])) for axis in mesh.split(",")] if mesh != "1" else []
        self.microbatches = int(next((word.split("=")[1] for word in self.flags if word.startswith("--microbatches")), 1))
        self.size = dict(self.axes)
        self.ep = self.size.get("ep", 1)
        # The tokens of a rank, and the rows that they need if they are exchanged or gathered.
        sharers = self.size.get("dp", 1) * self.size.get("cp", 1) * self.microbatches
        self.tokens = BATCH * SEQUENCE // sharers
        self.worst = self.tokens * min(PER_TOKEN, EXPERTS // self.ep)
        self.balanced = self.tokens * PER_TOKEN // self.ep
        length = SEQUENCE // self.size.get("cp", 1)
        taken = self.tokens // length * min(capacity, length) * EXPERTS // self.ep
        self.balanced = min(self.balanced, taken)
        if ROWS not in self.flags: # rows that are sent have memory for all choices
            self.worst = min(self.worst, taken)
        self.limit = int(next((word.split("=")[1] for word in self.flags if word.startswith("--experts-limit")), self.worst))
        self.rounds = max(1, -(-self.worst // self.limit))

    def at(self, rank):
        """The coordinates of a rank."""
        place = {}
        for axis, size in reversed(self.axes):
            place[axis], rank = rank % size, rank // size
        return place

    def blocks(self, place, choices):
        """For one layer and microbatch ([sequences][tokens] -> experts): returns the tokens that each rank of the ep
        group of `place` has."""
        dp, cp = self.size.get("dp", 1), self.size.get("cp", 1)
        rows, columns = len(choices) // (dp * self.ep), SEQUENCE // cp
        first = place.get("cp", 0) * columns
        return [[choices[row][column] for row in range(begin, begin + rows) for column in range(first, first + columns)]
                for begin in ((place.get("dp", 0) * self.ep + ep) * rows for ep in range(self.ep))]


def taken(layer, capacity):
    """Keeps, of the choices of a layer ([sequences][tokens] -> experts), the first ones of each sequence and expert."""
    left = []
    for sequence in layer:
        had = [0] * EXPERTS
        left.append([])
        for experts in sequence:
            for expert in experts:
                had[expert] += 1
            left[-1].append([expert for expert in experts if had[expert] <= capacity])
    return left


class Rows(Case):
    def compute(self, plan, numbers, capacity):
        """For each rank: the bytes that the last step sent forward and backward, the largest and the average number of
        rows, and the number of rounds that have rows."""
        numbers, found = iter(numbers), []
        steps = [[[[[next(numbers) for _ in range(PER_TOKEN)] for _ in range(SEQUENCE)] for _ in range(BATCH)] for _ in range(LAYERS)] for _ in range(STEPS)]
        steps = [[taken(layer, capacity) for layer in step] for step in steps]
        width, part = EXPERTS // plan.ep, BATCH // plan.microbatches
        again = 2 if "--recompute" in plan.text else 1  # the backward pass needs what went to experts
        for rank in range(plan.ranks):
            place, sent, had = plan.at(rank), [0, 0], []
            me = place.get("ep", 0)
            for number, step in enumerate(steps):
                for layer in step:
                    for m in range(plan.microbatches):
                        blocks = plan.blocks(place, layer[m * part:(m + 1) * part])
                        out = sum(expert // width != me for experts in blocks[me] for expert in experts)
                        back = sum(expert // width == me for other, block in enumerate(blocks) if other != me for experts in block for expert in experts)
                        rows = sum(expert // width == me for block in blocks for experts in block for expert in experts)
                        had += [min(max(rows - first, 0), plan.limit) for first in range(0, plan.rounds * plan.limit, plan.limit)]
                        if ROWS in plan.flags and number == STEPS - 1:
                            sent = [sent[0] + 4 * WIDTH * (out + back), sent[1] + 4 * WIDTH * (again * out + back)]
            found.append((sent, max(had), sum(had) / len(had), plan.rounds * sum(rows > 0 for rows in had) / len(had) if plan.rounds > 1 else None))
        return found

    def counted(self):
        found = {}
        for group in json.loads((self.work / "summary.json").read_text())["per_rank"]:
            sent = [sum(row["wire_bytes"] for row in group["traffic"] if row["move"] == "all_to_all_rows" and row["phase"] == phase) for phase in ("forward", "backward")]
            for rank in group["ranks"]:
                found[rank] = (sent, *(group["rows"].get(key) for key in ("most", "mean", "rounds_with_rows")))
        return [found[rank] for rank in sorted(found)]

    def on_plan(self, model, text):
        plan = Plan(text, CAPACITIES[model])
        self.needs("pc-compile", f"{model}.mlir", *mesh_flags(plan.mesh), *plan.flags, "--report=report.json", "-o", "train")
        said = json.loads((self.work / "report.json").read_text())["per_rank"][0]["rows"]
        rounds = dict(rounds=plan.rounds, at_once=plan.limit) if plan.rounds > 1 else {}
        self.check(f"{text}: rows in the report", said == dict(at_worst=plan.worst, balanced=plan.balanced) | rounds, said)
        for kind in WEIGHTS:
            self.needs("pc-run", "-n", plan.ranks, "./train", "--", *data_flags(model), "--steps", STEPS, "--lr", 1e-3, "--clip", 1, "--routing", f"{kind}.told", "--dump-routing", "there.routing",
                       "--summary", "summary.json", "--check-replicas", 1)
            numbers = read(self.work / "there.routing")[1]
            self.check(f"{text}, {kind}: choices are those that were told", numbers == [expert for pair in self.told[kind] for expert in sorted(pair)])
            wanted, found = self.compute(plan, numbers, CAPACITIES[model]), self.counted()
            near = lambda a, b: a[:2] == b[:2] and all(x == y or abs(x - y) < 1e-9 for x, y in zip(a[2:], b[2:]))
            self.check(f"{text}, {kind}: bytes sent and rows", len(wanted) == len(found) and all(map(near, wanted, found)), f"counted {found}, and choices make {wanted}")
            self.check(f"{text}, {kind}: no more rows than there is memory for", all(rows[1] <= min(said["at_worst"], plan.limit) for rows in found), f"{found} {said}")
            self.holds(f"{text}, {kind}: report and summary", "pc-compare", "reports", "report.json", "summary.json")

    def body(self):
        self.told = {}
        for seed, (kind, weights) in enumerate(WEIGHTS.items()):
            numbers = drawn(weights, seed)
            (self.work / f"{kind}.told").write_bytes(written(numbers, [STEPS, LAYERS, BATCH, SEQUENCE, PER_TOKEN]))
            self.told[kind] = list(zip(numbers[::2], numbers[1::2]))
        for model, quick in (("mixtral", PLANS[:3] + IN_ROUNDS[:1]), ("mixtral-capacity", PLANS[2:4] + IN_ROUNDS[2:3])):
            self.model(model, BATCH, SEQUENCE, to=f"{model}.mlir")
            for text in PLANS + IN_ROUNDS if LONG else quick:
                self.on_plan(model, text)


case = Rows("rows")
case.run(case.body)
