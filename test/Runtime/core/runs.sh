#!/usr/bin/env bash
# usage: runs.sh PC_RUN DIRECTORY [NAME]: runs the hand-written program (DIRECTORY/NAME-<dp>-<tp>-<microbatches>, core-program or
# cuda-program) on several meshes, and with every kind of bad input. Exit codes, messages, files.
# shellcheck disable=SC2046,SC2086 # names of meshes have no spaces
set -u
# shellcheck source=test/Runtime/core/checks.sh
source "$(dirname "$0")/checks.sh"
pc_run=$1 programs=$2 prefix=${3:-core-program}
pcrt=$(cd "$(dirname "$0")" && pwd)/../../../runtime/include/pcrt/pcrt.h
compare=$(dirname "$(dirname "$programs")")/Runtime/core/core-compare
work=$programs/runs.work
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
# program MESH FLAGS...: one run. MESH: dp-tp-microbatches.
program() {
  local mesh=$1 dp tp
  shift
  IFS=- read -r dp tp _ <<<"$mesh"
  timeout 60 "$pc_run" -n $((dp * tp)) "$programs/$prefix-$mesh" -- --data tokens.bin --seed 3 --lr 0.01 --clip 0.3 "$@"
}

# expect CODE REGEX NAME COMMAND...: the command ends with CODE and says REGEX in its one error message.
expect() {
  local code=$1 regex=$2 name=$3 got=0
  shift 3
  "$@" >out 2>err || got=$?
  if ((got == code)) && grep -Eq -- "$regex" err && (($(grep -c 'error: ' err) == 1)); then
    passed=$((passed + 1))
    return
  fi
  echo "FAILED $name: exit $got, not $code, or no single message with '$regex':"
  cat err
  failed=$((failed + 1))
}

# 500 tokens below 32: not a multiple of the batch, so that the file wraps inside one.
x=1
for ((i = 0; i < 500; i++)); do
  x=$(((x * 1103515245 + 12345) % 2147483648))
  # shellcheck disable=SC2059
  printf "\\x$(printf %02x $((x >> 16 & 31)))\\x00"
done >tokens.bin

# Every mesh starts from the same bits and learns the same.
meshes="1-1-1 1-1-2 2-1-1 1-2-1 2-2-2"
for mesh in $meshes; do
  good "$mesh initial values" program $mesh --steps 0 --save first-$mesh
  good "$mesh same first bits" cmp first-$mesh/model.safetensors first-1-1-1/model.safetensors
  good "$mesh run" program $mesh --steps 20 --metrics $mesh.jsonl --summary $mesh.json --save $mesh --trace $mesh.trace \
    --dump-grads $mesh.grads.safetensors --dump-logits $mesh.logits.safetensors
  good "$mesh losses" "$compare" losses 1-1-1.jsonl $mesh.jsonl --tolerance 1e-5
  for dump in grads logits; do
    good "$mesh $dump" "$compare" tensors 1-1-1.$dump.safetensors $mesh.$dump.safetensors --tolerance 1e-5
  done
  good "$mesh parameters" "$compare" tensors 1-1-1/model.safetensors $mesh/model.safetensors --tolerance 1e-3
  good "$mesh trace" grep -q '"name": "head input gradient"' $mesh.trace
  good "$mesh again" program $mesh --steps 20 --save $mesh-again
  good "$mesh same bits again" cmp $mesh/model.safetensors $mesh-again/model.safetensors
  good "$mesh half" program $mesh --steps 8 --save $mesh-half
  good "$mesh rest" program $mesh --steps 20 --load $mesh-half --save $mesh-rest
  good "$mesh resumed bits" cmp $mesh/model.safetensors $mesh-rest/model.safetensors
  good "$mesh resumed state" cmp $mesh/training_state.safetensors $mesh-rest/training_state.safetensors
  # Through another mesh and back.
  good "$mesh load elsewhere" program 2-2-2 --steps 8 --load $mesh-half --save $mesh-elsewhere
  good "$mesh bits elsewhere" cmp $mesh-half/training_state.safetensors $mesh-elsewhere/training_state.safetensors
  good "$mesh --init" program $mesh --steps 0 --init $mesh --save $mesh-init
  good "$mesh --init bits" cmp $mesh/model.safetensors $mesh-init/model.safetensors
done
# Virtual ranks: the same bits in every file, and a summary that counts the same.
for mesh in 1-1-1 2-1-1 2-2-2; do
  IFS=- read -r dp tp _ <<<"$mesh"
  virtual() {
    timeout 60 "$pc_run" --virtual -n $((dp * tp)) "$programs/$prefix-$mesh" -- --data tokens.bin --seed 3 --lr 0.01 --clip 0.3 "$@"
  }
  good "$mesh virtual ranks" virtual --steps 20 --metrics virtual.jsonl --summary virtual.json --save virtual-$mesh --trace virtual.trace \
    --dump-grads virtual.grads.safetensors --dump-logits virtual.logits.safetensors
  good "$mesh virtual parameters" cmp $mesh/model.safetensors virtual-$mesh/model.safetensors
  good "$mesh virtual state" cmp $mesh/training_state.safetensors virtual-$mesh/training_state.safetensors
  for dump in grads logits; do
    good "$mesh virtual $dump" cmp $mesh.$dump.safetensors virtual.$dump.safetensors
  done
  good "$mesh virtual losses" cmp <(cut -d, -f1-5 $mesh.jsonl) <(cut -d, -f1-5 virtual.jsonl)
  good "$mesh virtual summary" "$compare" reports $mesh.json virtual.json
  good "$mesh virtual steps do not allocate" grep -q '"step_allocations": 0,' virtual.json
  good "$mesh virtual trace" grep -q '"name": "head input gradient"' virtual.trace
done
good "virtual ranks of one program" env PCRT_TRANSPORT=virtual "$programs/$prefix-2-2-2" --data tokens.bin --steps 2
good "virtual ranks of pc-run by the environment are one run" env PCRT_TRANSPORT=virtual "$pc_run" -n 4 "$programs/$prefix-2-2-2" -- --data tokens.bin --steps 3 --save by-environment --metrics by-environment.jsonl
good "whose steps are told once" [ "$(wc -l < by-environment.jsonl)" = 3 ]
expect 2 'needs 4 ranks, but the run has 3' "virtual ranks, too few" "$pc_run" --virtual -n 3 "$programs/$prefix-2-2-2" -- --data tokens.bin
expect 9 'cannot read nosuch' "virtual ranks, no data" "$pc_run" --virtual -n 4 "$programs/$prefix-2-2-2" -- --data nosuch

good "config.json, but for the type of the weights" test "$(cat 2-2-2/config.json)" = \
  '{"dtype": "float32", "model_type": "linear",  "vocab_size": 32, "torch_dtype":"float32", "eps": 1e-05, "cap": 7.0}'
good "no other files" test "$(cd 2-2-2 && echo *)" = "config.json model.safetensors training_state.safetensors trajectory.json"
good "twenty lines" test "$(wc -l <2-2-2.jsonl)" = 20
good "one thread, same losses" env PCRT_THREADS=1 "$programs/$prefix-1-1-1" --data tokens.bin --seed 3 --lr=0.01 --clip=0.3 \
  --steps 20 --metrics one-thread.jsonl
good "one thread" "$compare" losses 1-1-1.jsonl one-thread.jsonl --tolerance 1e-6
good "evaluation" "$programs/$prefix-1-1-1EVAL" --data tokens.bin --seed 3 --eval --steps 2 --metrics eval.jsonl \
  --dump-logits eval.logits.safetensors
good "evaluation's loss" "$compare" losses 1-1-1.jsonl eval.jsonl --first 1 --tolerance 1e-6
good "text as tokens" bash -c "head -c 300 /dev/zero >text && '$programs/$prefix-1-1-1' --data text:text --steps 1"
good "--help" bash -c "'$programs/$prefix-1-1-1' --help | grep -q -- --dump-logits"
good "--help of pc-run" bash -c "'$pc_run' --help | grep -A1 '^Time' | grep -q -- --timeout"
good "--info" bash -c "'$programs/$prefix-2-2-2' --info | grep -q dp=2,tp=2"
abi=$(sed -n "s/#define PCRT_ABI_VERSION //p" "$pcrt")
cat >info.py <<'INFO'
import json, sys
info = json.load(sys.stdin)
wanted = {"model": "linear", "mode": "train", "mesh": {"dp": 2, "tp": 2}, "stages": 1, "microbatches": 2, "optimizer": "adamw",
          "parameters": 1152, "target": sys.argv[1], "abi": int(sys.argv[3]), "compiler": "none (written by hand)", "runtime": sys.argv[2]}
sys.exit({key: info.get(key) for key in wanted if info.get(key) != wanted[key]} or 0)
INFO
version=$("$pc_run" --version)
good "--version" bash -c "diff <('$programs/$prefix-1-1-1' --version) <(
  printf '%-14s%s\n' compiler 'none (written by hand)' runtime '${version#pc-run }, ABI $abi')"
target=${prefix%-program}
good "--info=json" bash -c "'$programs/$prefix-2-2-2' --info=json | python3 info.py ${target/core/cpu} '${version#pc-run }' $abi"
expect 2 "--info takes json or nothing, not 'xml'" "--info=xml" "$programs/$prefix-1-1-1" --info=xml

# unread NAME COMMAND...: nobody reads what it prints after the first line. It ends, with the code of SIGPIPE and without a word.
unread() {
  local name=$1 status
  shift
  "$@" --steps 1000000000 2>err | head -n 1 >out
  status=("${PIPESTATUS[@]}")
  good "$name" test "${status[0]} $(wc -l <out) $(wc -c <err)" = "141 1 0"
}
unread "an unread pipe" timeout 60 "$programs/$prefix-1-1-1" --data tokens.bin
unread "an unread pipe of ranks" program 2-2-2
unread "an unread pipe of ranks that save" program 2-2-2 --save unread
good "what they saved" test -s unread/model.safetensors

# The counted traffic, worked out by hand for dp=2,tp=2 with 2 microbatches of 16 rows a rank, 576 parameters a rank.
cat >report.json <<'REPORT'
{"parameters": 1152, "per_rank": [{"ranks": [0, 1, 2, 3], "arena_bytes": {"device": 851968, "host": 0}, "traffic": [
 {"axis": "tp", "move": "all_reduce", "phase": "forward", "count": 2, "payload_bytes": 4096, "wire_bytes": 4096},
 {"axis": "dp", "move": "all_reduce", "phase": "forward", "count": 2, "payload_bytes": 8, "wire_bytes": 8},
 {"axis": "dp", "move": "all_reduce", "phase": "backward", "count": 1, "payload_bytes": 2304, "wire_bytes": 2304},
 {"axis": "tp", "move": "all_reduce", "phase": "optimizer", "count": 1, "payload_bytes": 4, "wire_bytes": 4}]}]}
REPORT
[[ $prefix = core-program ]] || sed -i s/851968/917504/ report.json # the workspace of matrix products
good "summary" "$compare" reports report.json 2-2-2.json

# Bad input.
one=1-1-1 four=2-2-2
for mesh in $one $four; do
  expect 9 'cannot read nosuch' "$mesh no data" program $mesh --data nosuch
  : >empty.bin
  expect 9 'empty.bin.*empty' "$mesh empty data" program $mesh --data empty.bin
  { head -c 100 tokens.bin; printf '\x20\x00'; tail -c +103 tokens.bin; } >range.bin
  expect 9 'range.bin: token 32 at position 50 .*vocabulary of 32' "$mesh token out of range" program $mesh --data range.bin
  expect 2 "unknown flag '--frobnicate'" "$mesh unknown flag" program $mesh --frobnicate
  expect 2 "--steps takes .*'many'" "$mesh bad number" program $mesh --steps many
  expect 2 "--lr takes" "$mesh negative rate" program $mesh --lr -1
  expect 2 "--lr-decay takes none, linear, cosine, wsd or inverse-sqrt" "$mesh unknown decay" program $mesh --lr-decay step
  expect 2 "--min-lr must not be larger than --lr" "$mesh rate that would rise" program $mesh --lr 0.1 --min-lr 1
  expect 2 "needs a value" "$mesh missing value" program $mesh --save
  expect 2 "mode=eval" "$mesh --eval of a training program" program $mesh --eval
  expect 2 "exclude" "$mesh --init and --load" program $mesh --init x --load y
  expect 2 "before that" "$mesh loaded beyond --steps" program $mesh --load $mesh --steps 3
  expect 9 'nosuch' "$mesh no weights" program $mesh --init nosuch
  expect 9 'nosuch' "$mesh no checkpoint" program $mesh --load nosuch
  mkdir -p half
  cp $mesh/model.safetensors half
  expect 9 'half is not a checkpoint.*--init' "$mesh weights are no checkpoint" program $mesh --load half
  mkdir -p wrong
  for edit in 's/lm_head.weight/lm_head.weighs/;/lm_head.weight.*missing' 's/"shape":\[16,32\]/"shape":[32,16]/;/lm_head.weight.*shape \[32, 16\]' \
    's/"dtype":"F32","shape":\[16,32\]/"dtype":"I32","shape":[16,32]/;/lm_head.weight.*I32'; do
    sed "${edit%;/*}" $mesh/model.safetensors >wrong/model.safetensors
    expect 9 "${edit#*;/}" "$mesh ${edit%%;*}" program $mesh --init wrong
  done
  head -c 3000 $mesh/model.safetensors >wrong/model.safetensors
  expect 9 'truncated' "$mesh truncated weights" program $mesh --init wrong
  for flag in metrics summary trace dump-grads dump-logits; do
    expect 6 'nosuchdir' "$mesh unwritable --$flag" program $mesh --$flag nosuchdir/file
  done
  expect 6 'tokens.bin/save' "$mesh --save into a file" program $mesh --save tokens.bin/save
  good "$mesh full --metrics" program $mesh --metrics /dev/full --steps 20 --save endured-$mesh
  good "$mesh a warning of full --metrics" test "$(grep -c 'warning: cannot write /dev/full: No space' err)" = 1
  expect 10 'loss is not finite' "$mesh non-finite loss" program $mesh --lr 1e38 --steps 20
  [[ $prefix = core-program ]] || continue # the limit would hit the image of the kernels, which is loaded as a file
  cp -r $mesh survivor-$mesh
  expect 6 'saving the checkpoint failed.*too large' "$mesh full disk" "$pc_run" -n $([[ $mesh = "$one" ]] && echo 1 || echo 4) bash -c \
    'ulimit -f 4; trap "" XFSZ; exec "$@"' limited "$programs/$prefix-$mesh" --data tokens.bin --steps 1 --save survivor-$mesh --overwrite
  good "$mesh the old checkpoint survives" diff -r $mesh survivor-$mesh
  good "$mesh nothing is left of the new one" test "$(echo survivor-$mesh*)" = survivor-$mesh
done
if [[ $prefix = core-program ]]; then # the kernels of a device report nothing
  expect 3 "this program was compiled for runtime ABI 1, but this runtime has ABI $abi; compile it again" "another ABI" \
    "$programs/$prefix-1-1-1OLD" --data tokens.bin
  # Token 50 is in row 6 of the first batch, which only rank 1 of two holds: rows 4 to 7, 8 tokens each.
  expect 9 "rank 1: 'embed wte': element 18 is out of range" "a kernel's bad element, on one rank" program 2-1-1LOOSE --data range.bin
fi
# The launcher says why a rank is gone though another one has noticed before it.
killed_unseen() {
  local launcher ranks
  : >killed.out
  PCRT_TRANSPORT=tcp "$pc_run" -n 2 "$programs/$prefix-2-1-1" --data tokens.bin --steps 100000000 >killed.out &
  launcher=$!
  until grep -q step killed.out || ! kill -0 $launcher; do sleep 0.05; done
  read -ra ranks <"/proc/$launcher/task/$launcher/children"
  kill -STOP $launcher
  kill -KILL "${ranks[1]}"
  until [[ $(ps -o stat= -p "${ranks[0]}") == Z* ]]; do sleep 0.05; done
  kill -CONT $launcher
  wait $launcher
}
expect 7 'rank 1 was killed by signal 9' "a rank killed before the eyes of another one" killed_unseen
expect 2 'needs 4 ranks, but the run has 3' "mesh against ranks" "$pc_run" -n 3 "$programs/$prefix-2-2-2" -- --data tokens.bin
expect 2 'needs 4 ranks, but the run has 1' "mesh against one rank" "$programs/$prefix-2-2-2" --data tokens.bin
expect 2 'this program has no output gradients to write to g; it was compiled with --mode=eval' "gradients of an evaluation" "$programs/$prefix-1-1-1EVAL" --data tokens.bin --dump-grads g
expect 2 'mode=train' "saving an evaluation" "$programs/$prefix-1-1-1EVAL" --data tokens.bin --save s

echo "$passed passed, $failed failed"
((failed == 0))
