#!/usr/bin/env bash
# usage: bench/precision.sh [STEPS] [LR] [WARMUP]
# How far training in bf16 lies from training in f32: examples/gpt2-14m on the demo's text, batch 8, T 256, AdamW, by this compiler and by
# PyTorch (bf16 autocast), all from the same weights. It also compares ours in fp8 with ours in bf16. Prints a table; as in the demo 100 steps at
# 6e-4 after 20 of warm-up unless told. (At that rate without warm-up training is chaotic after some 20 steps.) A control shows how
# far f32 lies from f32 when the rate is 0.05 % larger.
# PyTorch and transformers come from PyPI into $PC_VENV (by default ~/.cache/pc-bench-venv), as for gpt2_124m.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-100}
lr=${2:-6e-4}
warmup=${3:-20}

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

# train PRECISION LR NAME
train() {
  "$bin/pc-run" -n 1 "$work/$1" -- --data "text:$work/text" --init "$work/weights" --steps "$steps" --lr "$2" --lr-warmup "$warmup" --clip 1.0 \
    --metrics "$work/$3.jsonl" >/dev/null
}

for precision in f32 bf16 fp8; do
  "$bin/pc-compile" "$work/model.mlir" -o "$work/$precision" --precision=$precision
  train $precision "$lr" ours.$precision
  [[ $precision = fp8 ]] && continue
  "$venv/bin/python" bench/precision.py train --weights "$work/weights" --data "$work/text" --steps "$steps" \
    --precision $precision --lr "$lr" --warmup "$warmup" --out "$work/torch.$precision.jsonl"
done
train f32 "$(awk "BEGIN { print $lr * 1.0005 }")" ours.control
"$venv/bin/python" bench/precision.py table "ours, bf16:$work/ours.bf16.jsonl:$work/ours.f32.jsonl" \
  "ours, fp8, against bf16:$work/ours.fp8.jsonl:$work/ours.bf16.jsonl" \
  "control, ours in f32 with 0.05 % more learning rate:$work/ours.control.jsonl:$work/ours.f32.jsonl" "PyTorch autocast:$work/torch.bf16.jsonl:$work/torch.f32.jsonl" "ours f32 against PyTorch f32:$work/ours.f32.jsonl:$work/torch.f32.jsonl"
