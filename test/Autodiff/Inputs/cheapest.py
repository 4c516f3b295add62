"""usage: cheapest.py MODEL WORK LIMIT FLAGS...

Checks the choice of --recompute=auto under the limit: it fits, computes the same as the step, and is the least
recomputation, which means that the last recomputed layer, full or selective, cannot be recomputed less. Prints the
choice."""
import json
import re
import subprocess
import sys

model, work, limit, *flags = sys.argv[1:]


def arenas(*arguments):
    subprocess.run(["pc-compile", model, *arguments, "--to=planned", "-o", work + ".planned", "--report=" + work + ".json"], check=True)
    return [entry["arena_bytes"]["device"] for entry in json.load(open(work + ".json"))["per_rank"]]


chosen = arenas("--recompute=auto", "--memory-limit=" + limit, "--emit-plan=" + work + ".plan", *flags)
assert max(chosen) <= int(limit), chosen
plan = open(work + ".plan").read()
assert arenas("--plan=" + work + ".plan", "--memory-limit=" + limit) == chosen
levels = {}
for mode, text in re.findall(r'"pc-recompute\{mode=(\w+) layers=([\d,-]+)\}"', plan):
    for part in text.split(","):
        first, last = (part.split("-") * 2)[:2]
        levels.update({layer: mode for layer in range(int(first), int(last) + 1)})


def with_levels(levels):
    tactics = [f'"pc-recompute{{mode={mode} layers={",".join(str(layer) for layer in levels if levels[layer] == mode)}}}"'
               for mode in ("selective", "full") if mode in levels.values()]
    rest = [tactic for tactic in re.findall(r'"[^"]*"', plan) if "pc-recompute" not in tactic]
    return re.sub(r"\[.*\]", "[" + ", ".join(tactics + rest) + "]", plan)


for mode, layer in {mode: layer for layer, mode in sorted(levels.items())}.items():
    fewer = {**levels, layer: "selective"} if mode == "full" else {other: levels[other] for other in levels if other != layer}
    open(work + ".fewer", "w").write(with_levels(fewer))
    code = subprocess.run(["pc-compile", model, "--plan=" + work + ".fewer", "--memory-limit=" + limit, "--to=planned", "-o", work + ".planned"],
                          stderr=subprocess.DEVNULL).returncode
    assert code == 6, f"layer {layer} need not be {mode}: exit code {code}"
same = [flag for flag in flags if flag.startswith("--microbatches")]
subprocess.run(["pc-compile", model, *same, "--to=step", "-o", work + ".step"], check=True)
subprocess.run(["pc-compile", model, "--plan=" + work + ".plan", "--to=local", "-o", work + ".local"], check=True)
subprocess.run(["pc-equal", work + ".step", work + ".local"], check=True, stdout=subprocess.DEVNULL)
print(*[f"{mode} {','.join(str(layer) for layer in sorted(levels) if levels[layer] == mode)}" for mode in sorted(set(levels.values()))] or ["nothing"])
