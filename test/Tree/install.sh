#!/usr/bin/env bash
# usage: install.sh BUILD SOURCE WORK
# Installs BUILD into a folder, moves that, and works with what is there alone, from another directory: the tour's model on two
# ranks, over MPI, and on the stand-in of a GPU; a CMake project that uses the package; and completion.
set -euxo pipefail # -x: a failing line is the last one
build=$1 source=$2 work=$3
rm -rf "$work"
mkdir -p "$work/elsewhere"
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
prefix=$work/prefix
# Nothing there knows where it was built or installed (but for what sanitizers tell).
[[ $build == *-asan ]] ||
  (! grep -rlF -e "$build/lib" -e "$build/bin" -e "$source/" -e "$work/first" "$prefix")

cd "$work/elsewhere"
export PATH=$prefix/bin:/usr/bin:/bin PCRT_CACHE_DIR=
run=(--data "text:$source/README.md" --steps 2 --seed 1 --summary summary.json)
pc-import "$source/examples/tour" -o model.mlir --batch 2 --seq 16
pc-compile model.mlir -o train --mesh dp=2 --report=report.json
pc-run -n 2 ./train -- "${run[@]}"
pc-compare reports report.json summary.json
PCRT_CACHE_DIR=$work/cache pc-train "$source/examples/tour" -n 2 "${run[@]}"
# A plug-in is found by the program itself, wherever it is started.
if [[ -e $prefix/lib/pcrt_mpi.so ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  PCRT_TRANSPORT=mpi mpirun --oversubscribe -n 2 ./train "${run[@]}"
fi
pc-compile model.mlir -o train-cuda --target=cuda --arch=sm_90a --stand-in
PCRT_CUDA_LIBRARIES=standin:$prefix/lib/libpc_standin.so ./train-cuda "${run[@]}"
(! ldd train-cuda | grep dnnl)

sanitized=()
[[ $build != *-asan ]] ||
  sanitized=(-DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 -DCMAKE_EXE_LINKER_FLAGS=-fsanitize=address,undefined)
cmake -S "$source/test/Tree/Inputs/package" -B package "${sanitized[@]}" -DCMAKE_PREFIX_PATH="$prefix" -DMODELS="$source/examples" \
  -DBY_HAND="$source/test/Runtime/core/program.c" >/dev/null
cmake --build package
pc-run -n 2 package/train -- "${run[@]}"
package/by-hand --info

# replies LINE: what the line can be completed to.
source "$prefix/share/bash-completion/completions/pc-compile"
replies() {
  COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
  _pc "${1%% *}"
  echo "${COMPREPLY[*]}"
}
[[ $(replies "pc-compile model.mlir --zer") == "--zero= --zero-keep= --zero-outer=" ]]
[[ $(replies "pc-compile --to=pl") == "placed planned" ]]
[[ $(replies "pc-run --vir") == "--virtual" ]]
[[ $(replies "pc-run -n 2 ./train -- --metr") == "--metrics" ]]
complete -p pc-equal

# Every tool has a manual page.
for tool in "$prefix"/bin/*; do
  page=$prefix/share/man/man1/${tool##*/}.1
  [[ -s $page ]]
  command -v groff >/dev/null || continue
  (! groff -man -ww -z "$page" 2>&1 | grep .)
done
grep -q 'zero=STAGE' "$prefix/share/man/man1/pc-compile.1"
