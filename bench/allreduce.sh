#!/usr/bin/env bash
# usage: bench/allreduce.sh [BUILD] [ROUNDS]: a 64 MiB all_reduce over shared memory beside memcpy of the same bytes and
# OpenMPI, in the same processes and in turns, on 2 and 4 ranks. Prints a table.
set -eu
build=${1:-build} rounds=${2:-15}
program=$build/bench/bench-allreduce
echo "CPU: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs), $(nproc) cores"
echo '| ranks | what                      |   min ms | median ms | GB/s | x memcpy |'
echo '|---|---|---|---|---|---|'
for ranks in 2 4; do
  if command -v mpirun >/dev/null && ldd "$program" | grep -q libmpi; then
    # Root is allowed because build machines are often containers; ranks may outnumber the cores.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PCRT_TRANSPORT=shm \
      mpirun --oversubscribe -n $ranks "$program" "$rounds"
  else
    "$build/bin/pc-run" -n $ranks "$program" "$rounds"
  fi
done
