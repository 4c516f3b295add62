#!/usr/bin/env bash
# usage: files.sh PC_RUN DIRECTORY FAILING_READS: the hand-written program (DIRECTORY/core-program-<dp>-<tp>-<microbatches>) with every kind of token
# file, with files that shrink under it or are no files, and where its own output cannot be written. Exit codes and messages.
# shellcheck disable=SC2015,SC2086 # names of meshes have no spaces
set -u
# shellcheck source=test/Runtime/core/checks.sh
source "$(dirname "$0")/checks.sh"
pc_run=$(realpath "$1") programs=$(realpath "$2") failing_reads=$(realpath "$3")
work=$programs/files.work
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
# expect CODES REGEX NAME COMMAND...: the command ends with CODES (an extended regex), and stderr says REGEX, without control characters.
expect() {
  local codes=$1 regex=$2 name=$3 got=0
  shift 3
  "$@" >out 2>err || got=$?
  if [[ $got =~ ^($codes)$ ]] && grep -Eq -- "$regex" err && ! grep -q '[[:cntrl:]]' err; then
    passed=$((passed + 1))
    return
  fi
  echo "FAILED $name: exit $got, not $codes, or no message with '$regex':"
  cat -v err | head -20
  failed=$((failed + 1))
}

# program MESH FLAGS...: one run. MESH: dp-tp-microbatches.
program() {
  local mesh=$1 dp tp
  shift
  IFS=- read -r dp tp _ <<<"$mesh"
  timeout 60 "$pc_run" ${virtual:+--virtual} -n $((dp * tp)) "$programs/core-program-$mesh" -- "$@"
}

# integers BYTES VALUES...: little-endian, on standard output.
integers() {
  local bytes=$1 value text='' i
  shift
  for value; do
    for ((i = 0; i < bytes; ++i)); do
      text+=$(printf '\\x%02x' $((value >> (8 * (i < 8 ? i : 7)) & 255)))
    done
  done
  # shellcheck disable=SC2059
  printf "$text"
}
zeros() { head -c "$1" /dev/zero; }

# 150 tokens below 32: more than a batch, and none that it is a multiple of.
tokens=() x=1
for ((i = 0; i < 150; i++)); do
  x=$(((x * 1103515245 + 12345) % 2147483648))
  tokens+=($((x >> 16 & 31)))
done
integers 2 "${tokens[@]}" >u16.bin
integers 4 "${tokens[@]}" >i32.bin
integers 8 "${tokens[@]}" >i64.bin
{ integers 4 20240520 1 150; zeros 1012; cat u16.bin; } >version1.bin
{ integers 4 20240801 7 150; zeros 1012; cat i32.bin; } >version7.bin
npy() { # DTYPE FILE
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': (150,), }"
  cat "$2"
}
npy '<u2' u16.bin >u2.npy
npy '<i4' i32.bin >i4.npy
npy '<i8' i64.bin >i8.npy

# Every kind of file trains the same bits.
good "raw 16-bit tokens" program 1-1-1 --data u16.bin --steps 5 --save reference
for data in version1.bin version7.bin u32:i32.bin u2.npy i4.npy i8.npy; do
  for mesh in 1-1-1 2-2-2; do
    good "$mesh $data" program $mesh --data $data --steps 5 --save other-$mesh --overwrite
  done
  good "$data is the same" cmp reference/model.safetensors other-1-1-1/model.safetensors
  good "a step does not allocate" program 2-1-1 --data $data --steps 5 --summary summary.json
  good "a step does not allocate" grep -q '"step_allocations": 0,' summary.json
done
for mesh in 1-1-1 2-2-2; do
  expect 9 'i32.bin: every other 16-bit number is zero, so this looks like a file of 32-bit numbers; use u32:i32.bin' "$mesh 32 bits read as 16" \
    program $mesh --data i32.bin
  expect 9 'i64.bin: every other 32-bit number is zero, so this looks like a file of 64-bit numbers' "$mesh 64 bits read as 16" program $mesh --data i64.bin
  { head -c 40 i32.bin; integers 4 -100; tail -c +45 i32.bin; } >negative.bin
  expect 9 'negative.bin: token 4294967196 \(-100 if signed\) at position 10 is not in the vocabulary of 32' "$mesh a negative token" \
    program $mesh --data u32:negative.bin
  expect 9 'u16.bin: 300 bytes|u16.bin: token [0-9]+ at' "$mesh 16 bits read as 32" program $mesh --data u32:u16.bin
done

# A data file that shrinks while the run reads it. At its end only, as well: where a mapping would show zeros.
shrink() { # BYTES COMMAND...
  local bytes=$1 run code=0
  shift
  cp u16.bin shrinks.bin
  : >running
  "$@" >running &
  run=$!
  until grep -q step running || ! kill -0 $run; do sleep 0.02; done 2>/dev/null
  truncate -s "$bytes" shrinks.bin
  wait $run || code=$?
  return $code
}
message='shrinks.bin was truncated while it was being read: it had 300 bytes'
endless=(--data shrinks.bin --steps 1000000000)
for bytes in 0 200; do
  expect 9 "$message" "one rank, to $bytes bytes" shrink $bytes "$programs/core-program-1-1-1" "${endless[@]}"
  for transport in shm tcp; do
    expect 9 "pc-run: error: .*$message" "$transport, to $bytes bytes" env PCRT_TRANSPORT=$transport bash -c "
      $(declare -f shrink program); pc_run=$pc_run programs=$programs; shrink $bytes program 2-2-2 ${endless[*]}"
  done
done
virtual=1
expect 9 "pc-run: error: .*$message" "virtual ranks" shrink 0 program 2-2-2 "${endless[@]}"
virtual=
# Under another launcher each rank finds it, or hears of it.
torchrun() { # BYTES
  local rank pids=() code codes=''
  for rank in 0 1; do
    env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000)) \
      timeout 60 "$programs/core-program-2-1-1" "${endless[@]}" &
    pids+=($!)
  done
  for rank in 0 1; do
    code=0
    wait ${pids[rank]} || code=$?
    codes+=$code
  done
  [[ $codes == *9* ]] && return 9 || return $((10#$codes % 256))
}
for transport in shm tcp; do
  expect 9 "$message" "torchrun's environment, $transport" env PCRT_TRANSPORT=$transport bash -c "
    $(declare -f shrink torchrun); programs=$programs endless=(${endless[*]}); shrink 0 torchrun"
done

# Weights that shrink while they are loaded, tokens after which the disk fails: at a read of every rank's own.
failing() { # FILE READS COMMAND...
  local file=$1 reads=$2
  shift 2
  env LD_PRELOAD="$failing_reads" ASAN_OPTIONS=verify_asan_link_order=0 FAIL_FILE=$file FAIL_AFTER=$reads PCRT_THREADS=1 PC_RUN=$pc_run \
    bash -c "$(declare -f program); pc_run=\$PC_RUN programs=$programs virtual=$virtual; program $*"
}
for virtual in '' 1; do
  for mesh in 1-1-1 2-2-2; do
    rm -rf weights
    cp -r reference weights
    expect 9 'error: .*cannot read .*weights/model.safetensors: Input/output error' "a disk that fails under weights: $mesh $virtual" \
      failing weights/model.safetensors 3 $mesh --data u16.bin --init weights --steps 1
    # Virtual ranks may open the file when it has shrunk already.
    expect 9 'error: .*model.safetensors(: .*may be truncated| was truncated while it was being read)' "weights that shrink: $mesh $virtual" \
      env FAIL_SHRINK=1 bash -c "$(declare -f failing program); failing_reads=$failing_reads pc_run=$pc_run programs=$programs virtual=$virtual
        failing weights/model.safetensors 2 $mesh --data u16.bin --init weights --steps 1"
    expect 9 'error: .*cannot read u16.bin: Input/output error' "a disk that fails under tokens: $mesh $virtual" \
      failing /u16.bin 10 $mesh --data u16.bin --steps 100
  done
done
virtual=

# What is no file is refused, not waited for.
mkfifo pipe
for what in "pipe pipe" "/dev/zero device" ". directory"; do
  read -r path kind <<<"$what"
  for flag in "--data $path" "--data text:$path" "--data u32:$path"; do
    expect 9 "cannot read $path: it is not a regular file but a $kind" "a $kind as tokens: $flag" program 1-1-1 $flag
  done
  [[ $kind = directory ]] ||
    expect 9 "cannot read $path: it is not a regular file but a $kind" "a $kind as weights" program 2-1-1 --data u16.bin --init $path
done
mkdir model
mkfifo model/model.safetensors
expect 9 'cannot read model/model.safetensors: it is not a regular file but a pipe' "a pipe in a directory of weights" program 1-1-1 --data u16.bin --init model

# What a file says is shown, not obeyed.
header='{"\u001b[2Jw\u0007\r":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}'
{ integers 8 ${#header}; printf %s "$header"; zeros 4; } >names.safetensors
expect 9 "tensor '.x1b\[2Jw.x07.x0d': unknown dtype" "control characters in a name" program 1-1-1 --data u16.bin --init names.safetensors
expect 9 "tensor '.x1b\[2Jw.x07.x0d': unknown dtype" "control characters in a name, of four ranks" program 2-2-2 --data u16.bin --init names.safetensors

# Output that cannot be written.
for command in --help --info "--data u16.bin --steps 2"; do
  expect 6 'cannot write to standard output' "full standard output: $command" bash -c "'$programs/core-program-1-1-1' $command >/dev/full"
  expect 6 'cannot write to standard output' "full standard output of ranks: $command" \
    bash -c "'$pc_run' -n 4 '$programs/core-program-2-2-2' -- $command >/dev/full"
done
expect 6 'pc-run: error: cannot write to standard output' "full standard output of pc-run" bash -c "'$pc_run' --help >/dev/full"
good "what was to be saved is saved" cmp reference/model.safetensors <(
  "$programs/core-program-1-1-1" --data u16.bin --steps 5 --save full >/dev/full 2>/dev/null
  cat full/model.safetensors)
good "closed standard output" bash -c "'$programs/core-program-1-1-1' --data u16.bin --steps 2 --metrics closed.jsonl >&-"
good "nothing else in the metrics" test "$(grep -vc '^{.*}$' closed.jsonl)" = 0
# limited RANKS MESH FLAGS...: a run whose ranks can write no more than 4 KiB to a file.
limited() {
  local ranks=$1 mesh=$2
  shift 2
  # shellcheck disable=SC2016 # for the inner shell
  timeout 60 "$pc_run" -n $ranks bash -c 'ulimit -f 4; exec "$@"' limited "$programs/core-program-$mesh" --data u16.bin "$@"
}
for run in "1 1-1-1" "4 2-2-2"; do
  expect 6 'saved.*model.safetensors.*File too large' "limit of file sizes: $run" limited $run --steps 1 --save saved --overwrite
  good "limit of file sizes, metrics: $run" limited $run --steps 1000 --metrics limited.jsonl
  good "a warning of it: $run" test "$(grep -c 'warning: cannot write limited.jsonl: File too large' err)" = 1
  expect 6 'cannot create shared memory: File too large' "limit of file sizes, pc-run: $run" \
    bash -c "ulimit -f 4; '$pc_run' -n 1 '$programs/core-program-1-1-1' -- --data u16.bin"
done

echo "$passed passed, $failed failed"
((failed == 0))
