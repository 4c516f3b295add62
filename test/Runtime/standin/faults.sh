#!/usr/bin/env bash
# usage: faults.sh STANDIN PC_RUN RANKS PROGRAM FLAGS...: runs a program on the stand-in, and then once for each wait, event
# record and graph edge that it has, without that one; and for each pair of neighbouring collectives with these two
# exchanged on one rank. Each fault has to be named by a checker (or refused by CUDA's rules), or be redundant: then
# results are the same bits. A fault that changes results without a report fails. PC_FAULT_STRIDE=N: only every N-th record
# and edge.
set -u
standin=$1 pc_run=$2 ranks=$3
shift 3
export PCRT_CUDA_LIBRARIES=standin:$standin PCRT_CACHE_DIR='' PC_STANDIN_SEED=${PC_STANDIN_SEED:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# What hangs is ended after 5 seconds of silence, but the program itself has its time.
patience=20
run() { timeout 60 "$pc_run" -n "$ranks" --timeout $patience "$@" --save "$work/out" --overwrite >"$work/stdout" 2>"$work/stderr"; }

if ! run "$@"; then
  echo "FAILED: the program itself"
  cat "$work/stderr"
  exit 1
fi
cp "$work/out/model.safetensors" "$work/expected"
patience=5

for kind in wait record edge swap; do
  named=0 redundant=0 step=${PC_FAULT_STRIDE:-1}
  [[ $kind = wait || $kind = swap ]] && step=1
  for ((i = 0; ; i += step)); do
    rank=0
    [[ $kind = swap ]] && rank=$((ranks - 1))
    rm -rf "$work/out"
    PC_STANDIN_FAULT="$kind:$i@$rank" run "$@"
    code=$?
    grep -q 'pc_standin: fault: ' "$work/stderr" || { ((code == 0)) && break; }
    if ((code != 0)) && grep -Eq 'pc_standin: (\[.*\] )?error: |error: ' "$work/stderr"; then
      named=$((named + 1))
    elif ((code == 0)) && cmp -s "$work/out/model.safetensors" "$work/expected"; then
      redundant=$((redundant + 1))
    else
      echo "FAILED $kind:$i (exit $code): not named"
      cat "$work/stderr"
      failed=$((failed + 1))
    fi
    [[ -n ${VERBOSE:-} ]] && { echo "$kind:$i exit $code"; grep -E 'fault: |error: ' "$work/stderr" | head -3; }
  done
  echo "$kind: $named named, $redundant redundant"
done
exit $((failed != 0))
