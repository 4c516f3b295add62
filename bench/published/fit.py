#!/usr/bin/env python3
"""usage: bench/published/fit.py [ROUNDS [CONSTANT,...]]     build/bin in PATH

Fits constants.json to the rows of cost_runs.csv whose set is `fit`, by least squares of the rows' log errors. All rows
have the same weight, and errors above a tenth count linearly. The compiler's prediction is nearly linear in the figures
that model the software (`software.wanted`): the first of ROUNDS (3) takes its slopes from compilations in which one of
these figures is changed at a time, and Gauss-Newton steps use them. Each round compiles all rows with the constants of
the previous one. With CONSTANTs only these are fitted, to the rows that depend on one of them.
"""
import collections
import json
import math
import multiprocessing
import sys

import compiled
import software

STEP = 1.1     # a figure that is changed for a slope
NEAR = 0.15    # weight of the distance of a constant's logarithm from its start
LARGE = 0.1    # of the published seconds: where errors begin to count linearly


class Row:
    """A row around the constants of a round."""

    def __init__(self, row, known, slopes=None):
        self.row, self.known = row, known
        self.machine = compiled.predict(row, more=software.flags(row))["machine"]
        self.sizes = software.wanted(row, self.machine, known)
        self.base = self.compiled(self.sizes)
        self.slopes = slopes or {}
        for name, size in self.sizes.items() if not slopes else ():
            # Tasks have no moves, and what a layer takes longer goes into them as it is.
            if name != "step_seconds" and (row["part"] == "step" or name == "op_seconds"):
                other = self.compiled(dict(self.sizes, **{name: size * STEP}))
                self.slopes[name] = (self.figure(other) - self.figure(self.base)) / (size * (STEP - 1))

    def figure(self, report):
        kind = {"F": "forward", "B": "backward", "W": "weight"}.get(self.row["part"])
        return report["tasks"][kind] if kind else report["step"]

    def compiled(self, sizes):
        return compiled.predict(self.row, software.changes(self.row, self.machine, sizes), software.flags(self.row))

    def error(self, known):
        """The logarithm of predicted over published seconds, by the slopes."""
        row, sizes, report = self.row, software.wanted(self.row, self.machine, known), self.base
        if row["part"] != "step":
            part = {"F": "forward", "B": "backward"}.get(row["part"])
            now, then = (dict(zip(("forward", "backward"), software.layer(row, self.machine, k))) for k in (known, self.known))
            report = dict(report, tasks={kind: value + self.slopes["op_seconds"] * (sizes["op_seconds"] - self.sizes["op_seconds"])
                                         for kind, value in report["tasks"].items()})
            value = software.seconds(row, report, self.machine, dict(self.known, launch_seconds=known["launch_seconds"]))
            if part:
                value += (row["layers"] + 2) / row["pp"] * (now[part] - then[part]) + known["message_seconds"] - self.known["message_seconds"]
            return math.log(max(value, 0.1 * row["seconds"]) / row["seconds"])
        step = report["step"] + sum(slope * (sizes[name] - self.sizes[name]) for name, slope in self.slopes.items())
        step += sizes["step_seconds"] - self.sizes["step_seconds"]
        spread = (report["step"] - self.sizes["step_seconds"]) / report["program"]
        return math.log(max(step + software.messages(row, self.machine, known) * spread, 0.1 * row["seconds"]) / row["seconds"])


def expressed(row, known, slopes):
    try:
        return Row(row, known, slopes)
    except compiled.Inexpressible:
        return None  # published.py names it


def solved(a, b):
    """x of a x = b, by elimination."""
    n, a = len(b), [list(row) + [x] for row, x in zip(a, b)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda j: abs(a[j][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for j in range(i + 1, n):
            q = a[j][i] / a[i][i]
            a[j] = [x - q * y for x, y in zip(a[j], a[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][j] * x[j] for j in range(i + 1, n))) / a[i][i]
    return x


def depending(rows, known, names):
    """The rows whose steps take longer or shorter by one of these constants."""
    machines = {}
    for row in rows:
        if row["gpu"] not in machines:
            machines[row["gpu"]] = compiled.predict(row, more=software.flags(row))["machine"]
        sizes, less = (software.wanted(row, machines[row["gpu"]], of) for of in (known, known | {name: known[name] / STEP for name in names}))
        if sizes != less:
            yield row


def fitted(rows, start, names, steps=15):
    def residuals(known):
        soft = [math.copysign(min(abs(e), math.sqrt(LARGE * abs(e))), e) for e in (row.error(known) for row in rows)]
        return soft + [NEAR * math.log(known[name] / start[name]) for name in names]

    def cost(values):
        return sum(x * x for x in values)

    known, damping = dict(start), 1e-2
    errors = residuals(known)
    for _ in range(steps):
        slopes = [[(y - x) / math.log(1.01) for x, y in zip(errors, residuals(dict(known, **{name: known[name] * 1.01})))] for name in names]
        normal = [[sum(x * y for x, y in zip(a, b)) for b in slopes] for a in slopes]
        right = [-sum(x * y for x, y in zip(a, errors)) for a in slopes]
        for _ in range(6):
            damped = [[x + (damping * (x + 1e-9) if i == j else 0) for j, x in enumerate(line)] for i, line in enumerate(normal)]
            trial = dict(known, **{name: known[name] * math.exp(max(-0.3, min(0.3, step))) for name, step in zip(names, solved(damped, right))})
            trial = {name: min(value, 1.0) if name.endswith("_share") else value for name, value in trial.items()}
            if cost(then := residuals(trial)) < cost(errors):
                known, errors, damping = trial, then, damping / 3
                break
            damping *= 4
    return known


def main():
    known, slopes = software.constants(), {}
    names, rows = list(known), [row for row in compiled.rows(compiled.HERE / "cost_runs.csv") if row["set"] == "fit"]
    if len(sys.argv) > 2:
        names = sys.argv[2].split(",")
        rows = list(depending(rows, known, names))
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        todo = [(row, known, slopes.get(row["id"])) for row in rows]
        with multiprocessing.Pool(2) as pool:
            near = [row for row in pool.starmap(expressed, todo, chunksize=1) if row]
        slopes = {row.row["id"]: row.slopes for row in near}
        known = {name: float(f"{value:.3g}") for name, value in fitted(near, known, names).items()}
        by = collections.defaultdict(list)
        for row in near:
            by[row.row["source"]].append(100 * abs(math.exp(row.error(known)) - 1))
        print(known, {source: f"{sum(errors) / len(errors):.1f} % by slopes" for source, errors in by.items()}, sep="\n", flush=True)
    software.CONSTANTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
