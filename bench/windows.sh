#!/usr/bin/env bash
# usage: bench/windows.sh [NAME] [--rounds N] [--steps N] [--only PART]
# GPT-2 124M (batch 4, T 256) with tensor and sequence parallelism over 2 ranks, its moves whole or as windows (--window=tp), and with 2D
# tensor parallelism over 4 ranks (a core has two then), plain or with windows over rows, columns or both; f32 and bf16, alternating rounds in one run.
# --only: plans whose name holds PART ("2d-"). Prints a table, writes bench/results/NAME.json.
set -euo pipefail
cd "$(dirname "$0")/.."
name=windows
if [[ -n ${1:-} && $1 != --* ]]; then name=$1; shift; fi
rounds=3 steps=4 only=
while (($#)); do
  case $1 in
  --rounds) rounds=$2 ;;
  --steps) steps=$2 ;;
  --only) only=$2 ;;
  *) sed -n 2p "$0" >&2; exit 2 ;;
  esac
  shift 2
done

scripts/build
bin=$PWD/build/bin
work=$PWD/build/bench/windows
rm -rf "$work"
mkdir -p "$work"
find -L /usr/lib/llvm-22/include/llvm -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$work/text"
"$bin/pc-import" examples/gpt2-124m -o "$work/model.mlir" --batch 4 --seq 256

# NAME RANKS FLAGS...
plans=$(
  for precision in f32 bf16; do
    echo "tp-plain-$precision 2 --precision=$precision --mesh tp=2 --sequence-parallel"
    echo "tp-window-$precision 2 --precision=$precision --mesh tp=2 --sequence-parallel --window=tp"
  done
  for window in plain row col row,col; do
    echo "2d-${window/,/+}-f32 4 --mesh row=2,col=2 --tensor-parallel=2d $([[ $window == plain ]] || echo --window=$window)"
  done
)
plans=$(grep -e "^[^ ]*$only" <<<"$plans")
while read -r -a plan; do
  "$bin/pc-compile" "$work/model.mlir" -o "$work/${plan[0]}" "${plan[@]:2}" --report="$work/${plan[0]}.report.json"
done <<<"$plans"
for ((round = 1; round <= rounds; ++round)); do
  while read -r -a plan; do
    file=$work/${plan[0]}.$round
    "$bin/pc-run" -n "${plan[1]}" "$work/${plan[0]}" -- --data "text:$work/text" --steps $((steps + 1)) --lr 3e-4 --clip 1.0 --seed 1 \
      --metrics "$file.jsonl" --summary "$file.summary.json" </dev/null >/dev/null
  done <<<"$plans"
done

cat >"$work/table.py" <<'PYTHON'
import json, pathlib, statistics, sys

import json_runs

work, out, rounds, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
result, medians = {}, {}
for name in names:
    runs = []
    for round in range(1, rounds + 1):
        lines = [json.loads(line) for line in (work / f"{name}.{round}.jsonl").read_text().splitlines()]
        runs.append({"step_seconds": [line["step_seconds"] for line in lines][1:], "losses": [line["loss"] for line in lines],
                     "summary": json.loads((work / f"{name}.{round}.summary.json").read_text())})
    rank = json.loads((work / f"{name}.report.json").read_text())["per_rank"][0]
    result[name] = {"runs": runs, "arena_bytes": rank["arena_bytes"]["device"], "wire_bytes": sum(row["wire_bytes"] for row in rank["traffic"])}
    medians[name] = statistics.median(s for run in runs for s in run["step_seconds"])
print("| plan | step, ms | best | of plain | arena, MB | sent, MB | last loss |")
print("|---|---|---|---|---|---|---|")
for name in names:
    form, kind, precision = name.split("-")
    plain = medians.get(f"{form}-plain-{precision}", medians[name])
    runs = result[name]["runs"]
    print(f"| {name} | {1e3 * medians[name]:.0f} | {1e3 * min(s for run in runs for s in run['step_seconds']):.0f} | {medians[name] / plain:.3f} | "
          f"{result[name]['arena_bytes'] / 1e6:.0f} | {result[name]['wire_bytes'] / 1e6:.1f} | {runs[0]['losses'][-1]:.5f} |")
out.parent.mkdir(exist_ok=True)
out.write_text(json_runs.text(result))
print(f"\nraw figures: {out}")
PYTHON
mapfile -t names < <(cut -d' ' -f1 <<<"$plans")
PYTHONPATH=bench python3 "$work/table.py" "$work" "bench/results/$name.json" "$rounds" "${names[@]}"
