#!/usr/bin/env bash
# usage: reduce-ptx.sh Reduce.ptx
# The kernels of virtual ranks as the build made them: every entry takes one structure of 568 bytes (ReduceArguments of
# VirtualMoves.cpp), and ptxas, where there is one, compiles them without spilling registers.
set -euo pipefail
for entry in reduce_{f32,bf16,i32}_{sum,max}; do
  grep -q "^\.visible \.entry $entry($" "$1" || { echo "no entry $entry"; exit 1; }
  grep -qF "${entry}_param_0[568]" "$1" || { echo "$entry: another parameter"; exit 1; }
done
! grep -q _param_1 "$1" || { echo "more than one parameter"; exit 1; }
! grep -q '^\.extern' "$1" || { echo "it needs something from elsewhere"; exit 1; }
PATH=$PATH:/usr/local/cuda/bin
command -v ptxas >/dev/null || exit 0
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for arch in sm_80 sm_90a sm_100a; do
  ptxas -arch "$arch" -v "$1" -o "$made/cubin" 2>"$made/log" || { cat "$made/log"; exit 1; }
  ! grep -E '[1-9][0-9]* bytes spill' "$made/log" || { echo "$arch: registers spill"; exit 1; }
done
