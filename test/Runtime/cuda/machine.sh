#!/usr/bin/env bash
# usage: machine.sh PC_RUN DIRECTORY: what a program for CUDA devices needs of a machine, and what it says where something is
# missing, too old or broken. DIRECTORY has cuda-program-*, cuda-fake.so and cuda-fake-gpu.so. Nothing but the loader and the
# C++ library is in the root that the programs are run in.
set -u
pc_run=$(realpath "$1") programs=$(realpath "$2")
work=$programs/machine.work
if grep -q __asan_init "$programs/cuda-program-1-1-1"; then
  echo "skipped: sanitizers need more of a machine"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work/root/lib" "$work/root/lib64" "$work/root/tmp"
cd "$work" || exit 1
failed=0 passed=0
unset PCRT_CUDA_LIBRARIES CUDA_HOME CUDA_PATH VIRTUAL_ENV LD_LIBRARY_PATH
export PCRT_CACHE_DIR=

# judge CODE REGEX NAME GOT: whether a command that ended with GOT, and wrote the files out and err, did what was expected.
judge() {
  local code=$1 regex=$2 name=$3 got=$4
  cat out err >both
  if ((got == code)) && grep -Eq -- "$regex" both && (((code == 0) || $(grep -c 'error: ' err) == 1)); then
    passed=$((passed + 1))
    return
  fi
  echo "FAILED $name: exit $got, not $code, or no single message with '$regex':"
  head -5 both
  failed=$((failed + 1))
}

# expect CODE REGEX NAME COMMAND...: the command ends with CODE and says REGEX (in one error message, unless it succeeds).
expect() {
  local code=$1 regex=$2 name=$3 got=0
  shift 3
  timeout 60 "$@" >out 2>err || got=$?
  judge "$code" "$regex" "$name" "$got"
}

# What the files need beside themselves.
for file in "$pc_run" "$programs/cuda-program-1-1-1" "$programs/cuda-program-2-1-1"; do
  other=$(ldd "$file" | awk '{print $1}' | grep -Ev '^(linux-vdso|libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt)\.so|^/lib.*/ld-linux')
  expect 0 '^$' "$(basename "$file") needs $other" echo "$other"
  cp "$file" root
  ldd "$file" | grep -o '/[^ ]*' | while read -r library; do cp -nL "$library" "root/$(dirname "$library" | cut -d/ -f2)/"; done
done
cp "$programs"/cuda-fake.so "$programs"/cuda-fake-gpu.so root
head -c 1000 /dev/zero >root/data

# in_root COMMAND...: in a root of its own, with an empty environment but for the assignments in $variables.
variables=()
if ! unshare -r chroot root /cuda-program-1-1-1 --info >/dev/null 2>err; then
  if ((EUID)) || ! chroot root /cuda-program-1-1-1 --info >/dev/null 2>err; then
    echo "skipped: no root of its own here: $(cat err)"
    ((failed == 0)) && exit 77
    exit 1
  fi
  in_root() { env -i PCRT_CACHE_DIR= LD_LIBRARY_PATH=/lib:/lib64 "${variables[@]}" "$(command -v chroot)" root "$@"; }
else
  in_root() { env -i PCRT_CACHE_DIR= LD_LIBRARY_PATH=/lib:/lib64 "${variables[@]}" "$(command -v unshare)" -r "$(command -v chroot)" root "$@"; }
fi
# check CODE REGEX NAME [VARIABLE=VALUE...] -- COMMAND...: expect, in the root.
check() {
  local code=$1 regex=$2 name=$3
  shift 3
  variables=()
  while [[ $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  shift
  local got=0
  in_root "$@" >out 2>err || got=$?
  judge "$code" "$regex" "$name" "$got"
}
run=(/cuda-program-1-1-1 --data text:/data --steps 3)
fake=PCRT_CUDA_LIBRARIES=standin:/cuda-fake.so

check 0 'model +linear' "--info without anything" -- /cuda-program-1-1-1 --info
check 0 'step 3/3' "a run without anything but the device" $fake -- "${run[@]}"
check 0 'step 3/3' "two ranks" $fake PCRT_CUDA_COMM=host PCRT_TRANSPORT=shm -- /pc-run -n 2 /cuda-program-2-1-1 -- --data text:/data --steps 3
check 6 'the CUDA driver was not found on this machine; looked for libcuda.so.1, .*/libcuda.so.1; install' "no driver" -- "${run[@]}"
check 0 'step 3/3' "memory that no other process can open" $fake FAKE_HANDLES=0 -- "${run[@]}"
check 0 'step 3/3' "memory that no network card reaches" $fake FAKE_RDMA=0 -- "${run[@]}"
check 0 'step 3/3' "memory that no network card reaches, and a driver that says it does" $fake FAKE_RDMA=2 FAKE_HANDLES=0 -- "${run[@]}"
check 6 'cannot load the stand-in .*/nosuch' "no stand-in" PCRT_CUDA_LIBRARIES=standin:/nosuch -- "${run[@]}"
check 6 "version 12.4, but 12.9 or newer is needed; install" "an old driver" $fake FAKE_DRIVER=12040 -- "${run[@]}"
check 6 'needs a driver for CUDA 13.0, but this driver is for CUDA 12.9' "a driver older than the library" $fake FAKE_DRIVER=12090 -- "${run[@]}"
check 6 'finds no device' "no device" $fake FAKE_DEVICES=0 -- "${run[@]}"
check 6 'finds no device' "no device, says the driver" $fake FAKE_INIT=100 -- "${run[@]}"
check 6 'does not start' "a driver that does not start" $fake FAKE_INIT=999 -- "${run[@]}"
check 6 'the arena needs 0.00 GiB, 0.00 GiB of 0.00 GiB are free' "too little memory" $fake FAKE_MEMORY=1000000 -- "${run[@]}"

mkdir root/only-driver root/both root/old root/broken
cp root/cuda-fake-gpu.so root/only-driver/libcuda.so.1
cp root/cuda-fake-gpu.so root/both/libcuda.so.1
cp root/cuda-fake-gpu.so root/both/libcublasLt.so.13
check 6 'cuBLASLt was not found on this machine; looked for /only-driver/libcublasLt.so.13, .*/usr/local/cuda/lib64/libcublasLt.so.12; install' \
  "no cuBLASLt" PCRT_CUDA_LIBRARIES=/only-driver FAKE_KERNELS=1 -- "${run[@]}"
check 6 'rank 1 of this machine has no device of its own, because the number of devices is 1' "more ranks than devices" PCRT_CUDA_LIBRARIES=/both \
  FAKE_DEVICES=1 FAKE_KERNELS=1 PCRT_TRANSPORT=shm -- /pc-run -n 2 /cuda-program-2-1-1 -- --data text:/data
check 6 'has kernels for the stand-in, sm_90a, but not for fake device \(sm_80\); compile it with --arch=sm_80' "another device" \
  PCRT_CUDA_LIBRARIES=/only-driver FAKE_MAJOR=8 -- "${run[@]}"
check 1 'cannot load the kernels for sm_90a' "a broken image" PCRT_CUDA_LIBRARIES=/only-driver -- "${run[@]}"
cp root/lib/libm.so.6 root/old/libcuda.so.1
check 6 'is too old: it has no cuInit, cuDriverGetVersion, cuGetErrorName and [0-9]+ more; install' "a driver without functions" PCRT_CUDA_LIBRARIES=/old -- "${run[@]}"
echo "no library" >root/broken/libcuda.so.1
check 6 'looked for /broken/libcuda.so.1, libcuda.so.1, .*(invalid ELF|file too short)' "a driver that is no library" PCRT_CUDA_LIBRARIES=/broken -- "${run[@]}"

# Where libraries are found: nothing runs, the products are timed. The same file is every library.
found() {
  local name=$1 directory=$2
  shift 2
  mkdir -p "root$directory"
  cp root/cuda-fake-gpu.so "root$directory/libcublasLt.so.13"
  check 0 '' "cuBLASLt $name" PCRT_CUDA_LIBRARIES=/only-driver FAKE_KERNELS=1 "$@" -- /cuda-program-1-1-1 --data text:/data --steps 0
  rm "root$directory/libcublasLt.so.13"
}
found "in a directory of ours" /ours PCRT_CUDA_LIBRARIES=/nowhere:/ours:/only-driver
found "where the loader looks" /lib
found "in CUDA_HOME" /cuda/lib64 CUDA_HOME=/cuda
found "in CUDA_PATH" /cuda/lib64 CUDA_PATH=/cuda
found "in /usr/local/cuda" /usr/local/cuda/lib64
found "in a virtual environment" /venv/lib/python3.12/site-packages/nvidia/cu13/lib VIRTUAL_ENV=/venv
found "in a virtual environment, CUDA 12" /venv/lib/python3.12/site-packages/nvidia/cublas/lib VIRTUAL_ENV=/venv
mkdir -p root/py/bin
printf '#!/bin/sh\n' >root/py/bin/python3
chmod +x root/py/bin/python3
found "beside python3" /py/lib/python3.11/site-packages/nvidia/cu13/lib PATH=/nowhere:/py/bin

# Faults of the device.
for launch in 2 9; do # of the first step, which is made call by call, and of a graph
  check 1 'CUDA_ERROR_ILLEGAL_ADDRESS.*run again with PCRT_CUDA_BLOCKING=1' "a fault" $fake FAKE_FAIL=$launch -- "${run[@]}"
done
check 1 "kernel 'cross_entropy' failed: CUDA_ERROR_ILLEGAL_ADDRESS" "a fault, found where it is" $fake FAKE_FAIL=2 PCRT_CUDA_BLOCKING=1 -- "${run[@]}"
check 1 "rank 0: .*kernel '.*' failed: CUDA_ERROR_ILLEGAL_ADDRESS|rank 1: .*kernel '.*' failed: CUDA_ERROR_ILLEGAL_ADDRESS" "a fault of a rank" $fake FAKE_FAIL=2 \
  PCRT_CUDA_BLOCKING=1 PCRT_CUDA_COMM=host PCRT_TRANSPORT=shm -- /pc-run -n 2 /cuda-program-2-1-1 -- --data text:/data --steps 3

# The choice of algorithms is remembered, and no state of the cache is an error.
tuned=(PCRT_CUDA_LIBRARIES=standin:/cuda-fake.so PCRT_CUDA_TUNE=1 PCRT_CACHE_DIR=/tmp/a/b)
timed() {
  local count=$1
  shift
  check 0 'step 3/3' "a run with a cache" "${tuned[@]}" "$@" -- "${run[@]}" --summary /tmp/summary.json
  expect 0 "\"products_timed\": $count,?" "$count products are timed" grep products_timed root/tmp/summary.json
}
timed 3
expect 0 '^3$' "three lines of cache" bash -c 'cat root/tmp/a/b/cublaslt-* | wc -l'
timed 0
sed -i 's/^/x/' root/tmp/a/b/cublaslt-*
timed 3
sed -i 's/ .*/ zz/' root/tmp/a/b/cublaslt-*
timed 3
head -c 100000 /dev/urandom >"$(echo root/tmp/a/b/cublaslt-*)"
timed 3
timed 3 PCRT_CACHE_DIR=/data/x
timed 3 PCRT_CACHE_DIR=
timed 3 FAKE_CUBLASLT=130200
check 0 'step 3/3' "no graph" $fake PCRT_CUDA_GRAPH=0 -- "${run[@]}" --summary /tmp/summary.json
expect 0 '"graph": false' "no graph was made" grep graph root/tmp/summary.json

echo "$passed passed, $failed failed"
((failed == 0))
