#!/usr/bin/env bash
# usage: bench/gpt2_124m.sh [NAME] [--precision f32|bf16] [--forms] [--batch N] [--seq N] [--rounds N] [--steps N] [--only PART,PART]
# GPT-2 124M against PyTorch on this machine (bench/gpt2_124m.py says how); prints a table, writes bench/results/NAME.json. In bf16
# PyTorch runs under autocast, and the peak is that of a large matrix product.
# PyTorch comes from PyPI into a virtual environment outside the repository: $PC_VENV, by default ~/.cache/pc-bench-venv.
set -euo pipefail
cd "$(dirname "$0")/.."
name="" precision=f32 batch="" seq="" forms="" rest=()
while (($#)); do
  case $1 in
  --precision) precision=$2; shift ;;
  --batch) batch=$2; shift ;;
  --seq) seq=$2; shift ;;
  --forms) forms=_forms; rest+=("$1") ;;
  --*) rest+=("$1" "$2"); shift ;;
  *) name=$1 ;;
  esac
  shift
done
# GPT-2's own context; of --forms, whose pipelines take 8 sequences a step, a quarter of it.
: "${batch:=$([[ -n $forms ]] && echo 4 || echo 2)}" "${seq:=$([[ -n $forms ]] && echo 256 || echo 1024)}"
[[ -n $name ]] || name=gpt2_124m$([[ $precision == f32 ]] || echo "_$precision")$forms

scripts/build
bin=$PWD/build/bin
work=$PWD/build/bench
mkdir -p "$work"

venv=${PC_VENV:-$HOME/.cache/pc-bench-venv}
if [[ ! -x $venv/bin/python ]]; then
  # torch.compile calls g++ and includes Python.h.
  if ! python3 -c 'import ensurepip' 2>/dev/null || ! command -v g++ >/dev/null; then
    as_root=()
    ((EUID)) && as_root=(sudo)
    "${as_root[@]}" apt-get -q -y install --no-install-recommends g++ python3-dev python3-venv
  fi
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet torch numpy
fi

if [[ $precision == bf16 ]]; then
  clang++-22 -std=c++20 -O2 bench/bf16_peak.cpp -o "$work/peak" -ldnnl -pthread
else
  clang++-22 -std=c++20 -O3 -march=native -ffp-contract=fast bench/fma_peak.cpp -o "$work/peak" -pthread
fi
find -L /usr/lib/llvm-22/include/llvm -name '*.h' -print0 | LC_ALL=C sort -z | xargs -0 cat >"$work/text"
"$bin/pc-import" examples/gpt2-124m -o "$work/model.mlir" --batch "$batch" --seq "$seq"
"$bin/pc-compile" "$work/model.mlir" -o "$work/one-rank" --precision="$precision"
"$bin/pc-compile" "$work/model.mlir" -o "$work/two-ranks" --mesh dp=2 --precision="$precision"
# FSDP2 keeps what belongs to no block gathered through the step (the root module's default); so does this plan.
"$bin/pc-compile" "$work/model.mlir" -o "$work/zero3" --mesh dp=2 --zero=3 --zero-keep='wte.*|wpe.*|ln_f.*' --precision="$precision"
# The pipeline's model: embedding and head not tied, 8 microbatches of one sequence.
mkdir -p "$work/untied"
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' examples/gpt2-124m/config.json >"$work/untied/config.json"
"$bin/pc-import" "$work/untied" -o "$work/untied.mlir" --batch 8 --seq "$seq"
"$bin/pc-compile" "$work/untied.mlir" -o "$work/pipeline" --mesh pp=2 --pipeline=1f1b --microbatches=8 --precision="$precision"
"$bin/pc-compile" "$work/untied.mlir" -o "$work/pipeline-auto" --mesh pp=2 --pipeline=auto --microbatches=8 --precision="$precision"
exec "$venv/bin/python" bench/gpt2_124m.py drive --config examples/gpt2-124m/config.json --data "$work/text" \
  --pc-run "$bin/pc-run" --one-rank "$work/one-rank" --two-ranks "$work/two-ranks" \
  --zero3 "$work/zero3" --pipeline "$work/pipeline" --pipeline-auto "$work/pipeline-auto" --peak "$work/peak" --precision "$precision" --batch "$batch" \
  --sequence "$seq" --work "$work" --name "$name" "${rest[@]}"
