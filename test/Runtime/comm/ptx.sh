#!/usr/bin/env bash
# usage: ptx.sh Reduce.ptx Blocks.ptx
# The runtime's own kernels as the build made them have the parameters that it gives them (ReduceArguments of VirtualMoves.cpp
# is one structure of 568 bytes), and ptxas, where there is one, compiles them without spilling registers.
set -euo pipefail
# has FILE KERNEL PARAMETER-TYPE...: as PTX says them.
has() {
  local file=$1 kernel=$2 got
  shift 2
  got=$(sed -n "/^\.visible \.entry $kernel($/,/^)/s/^\s*\.param \(.*\) ${kernel}_param_[0-9]*\(\[[0-9]*\]\)\?,\?$/\1\2/p" "$file" | sed 's/ \.ptr \.align 1//' | tr '\n' ' ')
  [ "$got" = "$* " ] || { echo "$kernel takes $got, not $*"; exit 1; }
}
for entry in reduce_{f32,bf16,i32}_{sum,max}; do
  has "$1" "$entry" '.align 8 .b8[568]'
done
for entry in swap_{2,4,16}; do
  has "$2" "$entry" .u64 .u64 .u64 .u64 .u64
done
has "$2" note .u64 .u32
PATH=$PATH:/usr/local/cuda/bin
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for ptx; do
  ! grep -q '^\.extern' "$ptx" || { echo "$ptx needs something from elsewhere"; exit 1; }
  command -v ptxas >/dev/null || continue
  for arch in sm_80 sm_90a sm_100a; do
    ptxas -arch "$arch" -v "$ptx" -o "$made/cubin" 2>"$made/log" || { cat "$made/log"; exit 1; }
    ! grep -E '[1-9][0-9]* bytes spill' "$made/log" || { echo "$arch: registers spill"; exit 1; }
  done
done
