#!/usr/bin/env bash
# usage: bench/precision.sh [STEPS]
# How far training in bf16 lies from training in f32: examples/gpt2-14m on the demo's text, batch 8, T 256, AdamW, by this compiler and by
# PyTorch (bf16 autocast), all from the same weights. Prints a table; 100 steps unless told.
# PyTorch and transformers come from PyPI into $PC_VENV (by default ~/.cache/pc-bench-venv), as for gpt2_124m.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-100}

scripts/build
bin=$PWD/build/bin
work=$PWD/build/bench/precision
mkdir -p "$work"
venv=${PC_VENV:-$HOME/.cache/pc-bench-venv}
[[ -x $venv/bin/python ]] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import torch, transformers, numpy' 2>/dev/null || "$venv/bin/pip" install --quiet torch transformers numpy

find -L /usr/lib/llvm-22/include/llvm -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$work/text"
"$venv/bin/python" bench/precision.py init --config examples/gpt2-14m/config.json --out "$work/weights"
"$bin/pc-import" examples/gpt2-14m -o "$work/model.mlir" --batch 8 --seq 256
for precision in f32 bf16; do
  "$bin/pc-compile" "$work/model.mlir" -o "$work/$precision" --precision=$precision
  "$bin/pc-run" -n 1 "$work/$precision" -- --data "text:$work/text" --init "$work/weights" --steps "$steps" --lr 6e-4 --clip 1.0 \
    --metrics "$work/ours.$precision.jsonl" >/dev/null
  "$venv/bin/python" bench/precision.py train --weights "$work/weights" --data "$work/text" --steps "$steps" \
    --precision $precision --out "$work/torch.$precision.jsonl"
done
"$venv/bin/python" bench/precision.py table "ours:$work/ours.bf16.jsonl:$work/ours.f32.jsonl" \
  "PyTorch autocast:$work/torch.bf16.jsonl:$work/torch.f32.jsonl" "ours f32 against PyTorch f32:$work/ours.f32.jsonl:$work/torch.f32.jsonl"
