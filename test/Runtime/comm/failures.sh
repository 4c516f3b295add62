#!/usr/bin/env bash
# usage: failures.sh PC_RUN VICTIM [STANDIN]: runs in which one rank fails; looks at exit codes, messages, the time it takes
# and at what is left behind. The limits in milliseconds are those of a machine that does nothing else; PC_TEST_SLACK (10)
# multiplies them, so that a busy one fails only where ranks hang.
set -u
slack=${PC_TEST_SLACK:-10}
pc_run=$1 victim=$2 standin=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# Other programs on the machine come and go: MPI's, torch's.
# shellcheck disable=SC2010 # names as they are
shm_files() { ls -A /dev/shm | grep -Ev '^(vader_|torch_|sem\.|psm|open_mpi|pmix)'; }
shm_before=$(shm_files)

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

complain() {
  echo "FAILED $name: $1"
  sed 's/^/    /; 40q' "$work/err"
  failed=$((failed + 1))
}

# expect NAME EXIT-CODE LIMIT-MS 'extended regex;extended regex...' COMMAND...: every regex has to be in stderr.
expect() {
  name=$1
  local code=$2 limit=$3 words=$4
  shift 4
  local start=$(milliseconds)
  timeout -k 5 $((50 + limit * slack / 1000)) "$@" >"$work/out" 2>"$work/err"
  local got=$? took=$(($(milliseconds) - start))
  [ $got = "$code" ] || complain "exit code $got, not $code"
  [ $took -le $((limit * slack)) ] || complain "took $took ms, not at most $limit (x $slack)"
  local regex
  while IFS= read -r -d ';' regex; do
    [ -z "$regex" ] || grep -Eq -- "$regex" "$work/err" || complain "nothing like '$regex' in stderr"
  done <<<"$words;"
  leftovers
  echo "$name: $took ms"
}

leftovers() {
  for ((wait = 0; wait < slack; ++wait)); do
    pgrep -f "^$victim" >/dev/null || break
    sleep 0.3
  done
  ! pgrep -fa "^$victim" >>"$work/err" || complain "processes left behind"
  [ "$(shm_files)" = "$shm_before" ] || complain "files left in /dev/shm"
}

expect 'all is well' 0 1000 '' "$pc_run" -n 2 "$victim" none
expect 'more ranks than cores' 0 10000 '' "$pc_run" -n 8 "$victim" count
expect 'killed' 7 1500 'rank 0: in .all_reduce .*rank 2 was killed by signal 9;rank 1.*: in .*rank 2 was killed;pc-run: error: rank 2 was killed by signal 9 \(Killed\)' \
  "$pc_run" -n 4 "$victim" kill 2
expect 'killed while others compute' 7 2000 'error: rank 0: rank 1 was killed by signal 9;the run has ended;pc-run: error: rank 1' \
  "$pc_run" -n 3 "$victim" kill-compute
expect 'killed before joining' 7 1500 'rank 0: in barrier: rank 1 was killed' "$pc_run" -n 2 "$victim" die-early
expect 'rank 0 killed' 7 1500 'rank 1: in .*rank 0 was killed by signal 9' "$pc_run" -n 2 "$victim" kill 0
expect 'crashed' 7 2500 'pc-run: error: rank 1 was killed by signal 6 \(Aborted\)' "$pc_run" -n 2 "$victim" crash
expect 'ends early' 7 1500 'rank 0: rank 1 ended before joining .all_reduce gradient' "$pc_run" -n 2 "$victim" exit-0
expect 'calls exit early' 7 1500 'rank 1 ended before joining .all_reduce gradient' "$pc_run" -n 2 "$victim" std-exit-0
expect 'ends with a code' 9 1500 'rank 1 ended' "$pc_run" -n 2 "$victim" exit-9
expect 'gives up' 9 1500 'rank 0: in .*rank 1 failed: token 70000;pc-run: error: rank 1 failed: token 70000' \
  "$pc_run" -n 2 "$victim" abort-9
expect 'different moves' 1 1500 "rank 0: ranks run different collectives as number 101 of group \(dp: ranks 0, 1\): rank 0 runs 'all_reduce gradient' .*, rank 1 runs 'all_reduce logits'" \
  "$pc_run" -n 2 "$victim" order
expect 'different sizes' 1 1500 'rank 0 runs .*\[1000, 1, 1\].*rank 1 runs .*\[999, 1, 1\]' "$pc_run" -n 2 "$victim" size
expect 'different order of groups' 1 3000 "deadlock: rank;rank 0 waits for rank 1 in 'all_reduce logits';rank 1 waits for rank 0 in 'all_reduce gradient';the ranks run their collectives in different orders" \
  "$pc_run" -n 2 "$victim" cross
expect 'different order of starts' 1 1500 "ranks run different collectives as number 101 of group \(dp: ranks 0, 1\): rank . runs 'all_reduce .*, rank . runs 'all_reduce" \
  "$pc_run" -n 2 "$victim" start-order
expect 'a start without a wait' 8 3000 "rank 0: no answer within 1 s from rank 1 in 'all_reduce (gradient|logits)' .*group \(dp: ranks 0, 1\)" \
  "$pc_run" -n 2 --timeout 1 "$victim" start-no-wait
# Where rank 0 has not taken the message before, rank 2 still waits to send it the next one.
expect 'killed between messages' 7 1500 "rank 2: in (send|receive) of message 1 of 'forward of chunk 1': rank 1 was killed by signal 9 \(Killed\) in forward of microbatch 1 \(stage 1\)" \
  "$pc_run" -n 3 "$victim" flow-kill
# Both neighbours wait for it; the first whose time is up speaks.
expect 'stopped between messages' 8 3000 "rank [02]: no answer within 1 s from rank 1 \(in forward of microbatch 1 \(stage 1\)\) in (send of message 2|receive of message 1) of 'forward of chunk 1'" \
  "$pc_run" -n 3 --timeout 1 "$victim" flow-stop
expect 'ends between messages' 7 1500 "rank 1 ended before joining receive of message 1 of 'forward of chunk 1'" "$pc_run" -n 2 "$victim" flow-leave
expect 'messages in a circle' 1 3000 "deadlock: rank;rank 1 waits for rank 0 in receive of message 1 of 'forward of chunk 1'" "$pc_run" -n 2 "$victim" flow-deadlock
expect 'different messages' 1 1500 "'forward of chunk 1' .flow 0 from rank 1 to rank 2: 4 messages of 999 bytes, 1 slots. is .* of 1000 bytes, 1 slots. on rank 2" \
  "$pc_run" -n 3 "$victim" flow-differs
expect 'ends between messages of virtual ranks' 7 2500 "rank 1 ended before joining receive of message 1 of 'forward of chunk 1'" \
  "$pc_run" -n 2 --virtual "$victim" flow-leave
expect 'ends between messages over tcp' 7 2500 "rank 1 ended before joining receive of message 1 of 'forward of chunk 1'" \
  env PCRT_TRANSPORT=tcp "$pc_run" -n 2 "$victim" flow-leave
expect 'messages in a circle of virtual ranks' 1 1500 "deadlock: rank 0 waits for rank 1 in receive of message 1 of 'forward of chunk 1', rank 1 waits for rank 0" \
  "$pc_run" -n 2 --virtual "$victim" flow-deadlock
expect 'killed between messages over tcp' 7 2500 "rank 2: in (send|receive) of message [01] of 'forward of chunk 1': rank 1 (died|was killed)" \
  env PCRT_TRANSPORT=tcp "$pc_run" -n 3 "$victim" flow-kill
expect 'stopped between messages over tcp' 8 4000 "rank [02]: no answer within 1 s from rank 1 \(.*\) in (send|receive) of message [0-2] of 'forward of chunk 1'" \
  env PCRT_TRANSPORT=tcp "$pc_run" -n 3 --timeout 1 "$victim" flow-stop
# Over tcp everything passes rank 0. Whoever is stopped, and whoever speaks first: it alone is blamed.
blamed_alone() { # RANK
  grep -o 'no answer within 1 s from rank [0-9]*' "$work/err" | grep -qv "rank $1\$" && complain "another one than rank $1 is blamed"
  grep -Eq "from rank $1 \([^)]*(\([^)]*\))?\), rank" "$work/err" && complain "others are blamed beside rank $1"
}
for rank in 0 ${PC_LONG:+1 2 3}; do
  expect "rank $rank stopped over tcp" 8 4000 "pc-run: error: rank . stopped: no answer within 1 s from rank $rank \(it does not answer\) in " \
    env PCRT_TRANSPORT=tcp "$pc_run" -n 4 --timeout 1 "$victim" stop "$rank"
  blamed_alone "$rank"
done
for rank in 3 ${PC_LONG:+0 1 2}; do
  expect "rank $rank stopped between messages over tcp" 8 4000 "pc-run: error: rank . stopped: no answer within 1 s from rank $rank \(it does not answer, in forward" \
    env PCRT_TRANSPORT=tcp "$pc_run" -n 4 --timeout 1 "$victim" flow-stop "$rank"
  blamed_alone "$rank"
done
expect 'timeout' 8 3000 "rank 0: no answer within 1 s from rank 1 in 'all_reduce gradient' .*group \(dp: ranks 0, 1\);PCRT_TIMEOUT_SECONDS" \
  "$pc_run" -n 2 --timeout 1 "$victim" sleep-4
expect 'stopped' 8 3000 'rank 0: no answer within 1 s from rank 1' "$pc_run" -n 2 --timeout 1 "$victim" stop
expect 'never joins' 8 3000 'no answer within 1 s from rank 1 \(never started\) in barrier' \
  "$pc_run" -n 2 --timeout 1 "$victim" never-join
expect 'slow is not dead' 0 4000 '' "$pc_run" -n 3 "$victim" slow
expect 'arenas too large' 6 1500 'rank 0: the arenas of the ranks on this machine need 614400.00 GiB, but only' "$pc_run" -n 2 "$victim" huge
expect 'arena too large' 6 1500 'error: the arenas .* need 307200.00 GiB' "$pc_run" "$victim" huge
# What is installed is not what is available: this program runs, and so does the kernel.
expect 'all memory of the machine' 6 1500 'error: the arenas .* need [0-9.]+ GiB, but only [0-9.]+ GiB are available of its [0-9.]+ GiB; end other programs' \
  "$victim" all-memory
expect 'lone rank fails' 4 1000 'pc-run: error: rank 0 ended with exit code 4' "$pc_run" "$victim" exit-code-only
expect 'ends of children ignored' 0 1000 '' env --ignore-signal=CHLD "$pc_run" -n 2 "$victim" none
# shellcheck disable=SC2016 # the rank's variable
expect 'writes without end' 3 1500 'pc-run: error: rank 0 ended with exit code 3' \
  "$pc_run" -n 2 bash -c '[ "$PCRT_RANK" = 0 ] && exit 3; exec yes'
! grep 'were dropped' "$work/err" >"$work/dropped" || complain "$(cat "$work/dropped")"
expect 'no such program' 2 1000 "cannot run './no-such-program'" "$pc_run" -n 2 ./no-such-program
expect 'not in PATH' 2 1000 "not found in PATH" "$pc_run" -n 2 no-such-program
expect 'bad -n' 2 1000 "'many'.*--help" "$pc_run" -n many "$victim"
expect 'zero ranks' 2 1000 "not '0'" "$pc_run" -n 0 "$victim"
expect 'bad timeout' 2 1000 "--timeout takes" "$pc_run" --timeout -3 "$victim"
expect 'unknown option' 2 1000 "unknown option '--frobnicate'" "$pc_run" --frobnicate "$victim"
expect 'nothing to run' 2 1000 'usage: pc-run' "$pc_run"
expect 'help' 0 1000 '' "$pc_run" --help
expect 'bad transport' 2 1500 "PCRT_TRANSPORT='smoke' is not one of self, shm, mpi, tcp, virtual" env PCRT_TRANSPORT=smoke "$pc_run" -n 2 "$victim"

# Virtual ranks: the same failures without a process to lose.
expect 'virtual: all is well' 0 3000 '' "$pc_run" --virtual -n 4 "$victim" count
expect 'virtual: killed' 7 1500 'pc-run: error: rank 0 was killed by signal 9' "$pc_run" --virtual -n 4 "$victim" kill 2
expect 'virtual: ends early' 7 1500 'rank 0: rank 1 ended before joining .all_reduce gradient' "$pc_run" --virtual -n 2 "$victim" exit-0
expect 'virtual: gives up' 9 1500 'rank 0: in .*rank 1 failed: token 70000' "$pc_run" --virtual -n 2 "$victim" abort-9
expect 'virtual: gives up while others compute' 9 2500 '' "$pc_run" --virtual -n 3 "$victim" abort-compute
expect 'virtual: different moves' 1 1500 "ranks run different collectives as number 101 of group \(dp: ranks 0, 1\): rank . runs 'all_reduce" \
  "$pc_run" --virtual -n 2 "$victim" order
expect 'virtual: different order of groups' 1 1500 "deadlock: rank 0 waits for rank 1 in 'all_reduce logits'.*, rank 1 waits for rank 0" \
  "$pc_run" --virtual -n 2 "$victim" cross
expect 'virtual: timeout' 8 3000 "rank 0: no answer within 1 s from rank 1 in 'all_reduce gradient' .*group \(dp: ranks 0, 1\);PCRT_TIMEOUT_SECONDS" \
  "$pc_run" --virtual -n 2 --timeout 1 "$victim" sleep-4
expect 'virtual: arenas too large' 6 1500 'the arenas of the ranks on this machine need 614400.00 GiB, but only' \
  "$pc_run" --virtual -n 2 "$victim" huge
expect 'virtual under another launcher' 2 1500 'PCRT_TRANSPORT=virtual runs all ranks in one process, but torchrun started 2' \
  env PCRT_TRANSPORT=virtual RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 "$victim"

# Standard output is rank 0's, the others' lines carry their number.
expect 'output' 0 1000 '^err 0$;^\[rank 1\] err 1$;^\[rank 1\] out 1$' "$pc_run" -n 2 "$victim" output
[ "$(cat "$work/out")" = 'out 0' ] || complain "stdout is '$(cat "$work/out")'"

# Waits until COUNT ranks run (MODE of the victim), half a minute at most.
wait_for_ranks() { # COUNT MODE
  for ((wait = 0; wait < 300; ++wait)); do
    (($(pgrep -fc "^$victim $2") == $1)) && return
    sleep 0.1
  done
  complain 'did not start'
}

# Signals reach the ranks; nothing survives the launcher.
name='interrupted'
"$pc_run" -n 2 "$victim" sleep 2>"$work/err" &
wait_for_ranks 2 sleep
start=$(milliseconds)
kill -INT $!
wait $!
code=$?
[ $code = 130 ] || complain "exit code $code, not 130"
[ $(($(milliseconds) - start)) -le $((1500 * slack)) ] || complain 'the ranks did not get the signal'
leftovers
name='launcher killed'
{
  "$pc_run" -n 3 "$victim" kill 99 &
  wait_for_ranks 3 kill
  kill -KILL $!
  wait $!
} 2>"$work/err"
leftovers

# Stopped at any time, from outside.
stopped_anytime() { # RANK
  name="rank $1 stopped at a random time over tcp"
  local launcher pid code=0
  PCRT_TRANSPORT=tcp "$pc_run" -n 4 --timeout 1 "$victim" kill 99 2>"$work/err" &
  launcher=$!
  wait_for_ranks 4 kill
  sleep 0.$((RANDOM % 900 + 100))
  for pid in $(pgrep -P $launcher); do
    grep -qzx "PCRT_RANK=$1" "/proc/$pid/environ" && kill -STOP "$pid"
  done
  wait $launcher || code=$?
  [ $code = 8 ] || complain "exit code $code, not 8"
  grep -Eq "pc-run: error: rank . stopped: no answer within 1 s from rank $1 \(it does not answer" "$work/err" || complain "rank $1 is not named"
  blamed_alone "$1"
  leftovers
  echo "$name: done"
}
for ((i = 0; i < ${PC_LONG:+4}0 + 2; ++i)); do stopped_anytime $((i % 2 ? RANDOM % 3 + 1 : 0)); done

# Without pc-run: every rank by itself, under the environment of another launcher. foreign NAME VICTIM-RANK 'codes' LIMIT-MS MODE
launcher=torchrun
rank_environment() {
  local port=$((20000 + $$ % 10000))
  case $launcher in
  torchrun) echo "RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port" ;;
  srun) echo "SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=$2 SLURM_LOCALID=$1 SLURM_STEP_NUM_NODES=1 SLURM_JOB_ID=$$ SLURM_STEP_ID=$port" ;;
  # Two machines by name, both this one.
  srun-two) echo "SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=$2 SLURM_LOCALID=0 SLURM_STEP_NUM_NODES=$2 SLURM_JOB_ID=$$ SLURM_STEP_ID=$port
    SLURM_STEP_NODELIST=localhost,no-such-host" ;;
  esac
}
foreign() {
  name="$1 ($launcher's environment${PCRT_TRANSPORT:+, $PCRT_TRANSPORT})"
  local ranks=3 pids=() codes='' rank start=$(milliseconds)
  : >"$work/err"
  for ((rank = ranks - 1; rank >= 0; --rank)); do
    # shellcheck disable=SC2046 # a list of words
    env $(rank_environment $rank $ranks) timeout 30 "$victim" "$5" "$2" >>"$work/out" 2>>"$work/err" &
    pids[rank]=$!
  done
  for ((rank = 0; rank < ranks; ++rank)); do
    wait "${pids[rank]}" 2>/dev/null # the shell's remark about a killed job
    codes+="$? "
  done
  local took=$(($(milliseconds) - start))
  [[ $codes =~ ^$3\ $ ]] || complain "exit codes $codes, not $3"
  [ $took -le $(($4 * slack)) ] || complain "took $took ms, not at most $4 (x $slack)"
  leftovers
  echo "$name: $took ms"
}
says() { grep -Eq -- "$1" "$work/err" || complain "nothing like '$1' in stderr"; }

all_foreign() {
  foreign 'all is well' 1 '0 0 0' 2000 none
  foreign 'killed' 1 '7 137 7' 1500 kill
  says 'rank 0: in .*rank 1 died'
  says 'rank 2: in .*rank 1 died'
  foreign 'rank 0 killed' 0 '137 7 7' 1500 kill
  says 'rank 1: in .*rank 0 died'
  foreign 'killed while others compute' 2 '7 7 137' 1700 kill-compute
  says 'rank 0: rank 2 died'
  foreign 'gives up' 1 '7 9 7' 1500 abort-9
  foreign 'ends early' 1 '7 0 7' 1500 exit-0
  says "rank 1 ended before joining 'all_reduce gradient'"
  foreign 'rank 0 ends early' 0 '0 7 7' 1500 exit-0
  says "rank 0 ended before joining 'all_reduce gradient'"
}
all_foreign
launcher=srun
foreign 'all is well' 1 '0 0 0' 2000 none
export PCRT_TRANSPORT=tcp
all_foreign
launcher=torchrun
all_foreign
foreign 'different moves' 1 '1 1 1' 1500 order
says "ranks run different collectives in group \(dp: ranks 0, 1, 2\): rank 0 runs 'all_reduce gradient' .*, rank 1 runs 'all_reduce logits'"
PCRT_TIMEOUT_SECONDS=1 foreign 'late' 1 '(8 7 7|7 7 8|8 7 8)' 6000 sleep-4
says "rank [02]: no answer within 1 s from rank 1 \(between collectives\) in 'all_reduce gradient' .* of group \(dp: ranks 0, 1, 2\)"
# A stopped rank stays: nobody is there to kill it.
PCRT_TIMEOUT_SECONDS=1
export PCRT_TIMEOUT_SECONDS
for stopped in 0 ${PC_LONG:+1 2 3}; do
  name="rank $stopped stopped (torchrun's environment, tcp)"
  : >"$work/err"
  pids=()
  for rank in 0 1 2 3; do
    # shellcheck disable=SC2046 # a list of words
    env $(rank_environment $rank 4) "$victim" stop "$stopped" >>"$work/out" 2>>"$work/err" &
    pids[rank]=$!
  done
  codes=''
  for rank in 0 1 2 3; do
    [ "$rank" = "$stopped" ] || { wait "${pids[rank]}"; codes+=$?; }
  done
  { kill -KILL "${pids[stopped]}"; wait "${pids[stopped]}"; } 2>/dev/null
  [[ $codes =~ ^[78]*8[78]*$ ]] || complain "exit codes $codes"
  says "no answer within 1 s from rank $stopped \(it does not answer\) in"
  blamed_alone "$stopped"
  leftovers
  echo "$name: done"
done
unset PCRT_TIMEOUT_SECONDS
launcher=srun-two
foreign 'several machines' 1 '0 0 0' 2000 none
unset PCRT_TRANSPORT

# The same on devices, by NCCL: what waits on a device is ended by the control plane.
if [ -n "$standin" ]; then
  export VICTIM_ON_DEVICE=1 PCRT_CUDA_LIBRARIES=standin:$standin PC_STANDIN_DEVICES=4
  where="'all_reduce gradient' \(all_reduce f32 \[1000, 1, 1\], 3 ranks\) of group \(dp: ranks 0, 1, 2\)"
  expect 'device: all is well' 0 3000 '' "$pc_run" -n 3 "$victim" none
  expect 'device: killed' 7 4000 'rank 0: rank 2 died;rank 1: rank 2 died;pc-run: error: rank 2 was killed by signal 9' \
    "$pc_run" -n 3 "$victim" kill 2
  expect 'device: killed while others compute' 7 4000 'rank 0: rank 1 died;rank 2: rank 1 died' "$pc_run" -n 3 "$victim" kill-compute
  expect 'device: gives up' 9 4000 'rank 0: rank 1 failed: token 70000;rank 2: rank 1 failed' "$pc_run" -n 3 "$victim" abort-9
  expect 'device: ends early' 7 4000 "rank 1 ended before joining $where" "$pc_run" -n 3 "$victim" exit-0
  expect 'device: different sizes' 1 4000 'rank 1 calls all_reduce sum of 999 f32; rank . calls all_reduce sum of 1000 f32' \
    "$pc_run" -n 3 "$victim" size
  expect 'device: late' 8 6000 "no answer within 1 s from rank 1 \(before the first move of step 200\) in $where" \
    "$pc_run" -n 3 --timeout 1 "$victim" sleep-4
  expect 'device: stopped' 8 8000 "no answer within 1 s from rank 1 \(it does not answer\) in $where" \
    "$pc_run" -n 3 --timeout 1 "$victim" stop
  for rank in 0 ${PC_LONG:+2}; do
    expect "device: rank $rank stopped" 8 8000 "pc-run: error: rank . stopped: no answer within 1 s from rank $rank \(it does not answer\) in $where" \
      "$pc_run" -n 3 --timeout 1 "$victim" stop "$rank"
    blamed_alone "$rank"
  done
  # The stand-in sees what a GPU would wait for until the time is up.
  expect 'device: different order of groups' 1 6000 "deadlock: rank 0 waits in all_reduce sum of 1000 f32 of 'tp'.*; rank 1 waits in all_reduce" \
    "$pc_run" -n 3 --timeout 10 "$victim" cross
  # A rank whose split never begins: its own NCCL does not know, either. Then it is stopped, or killed, meanwhile.
  group='cannot connect the devices of group \(dp: ranks 0, 1, 2\)'
  export PC_STANDIN_FAULT=split:0@1
  expect 'device: a split that does not begin' 8 4000 "rank [012]: $group: no answer within 1 s from the other ranks;run with NCCL_DEBUG=INFO" \
    "$pc_run" -n 3 --timeout 1 "$victim" none
  # shellcheck disable=SC2016 # the rank's variables
  while_splitting='[ "$PCRT_RANK" != 1 ] || { : >"$2"; exec 2>"$2"
    (until grep -q "never begins" "$2"; do sleep 0.05; done; kill "-$3" $$) & }; exec "$1" none'
  expect 'device: stopped in a split' 8 6000 "rank [02]: $group: no answer within 2 s from rank 1 \(it does not answer\)" \
    "$pc_run" -n 3 --timeout 2 bash -c "$while_splitting" - "$victim" "$work/one" STOP
  expect 'device: killed in a split' 7 4000 'rank 0: rank 1 died;rank 2: rank 1 died' \
    "$pc_run" -n 3 --timeout 20 bash -c "$while_splitting" - "$victim" "$work/one" KILL
  unset PC_STANDIN_FAULT
  unset VICTIM_ON_DEVICE PCRT_CUDA_LIBRARIES PC_STANDIN_DEVICES
fi

# Two machines, as far as the network is concerned: two network namespaces with a cable between them.
name='two network namespaces'
one="pcrt-$$-1" two="pcrt-$$-2"
if ip netns add "$one" 2>/dev/null && ip netns add "$two" 2>/dev/null &&
  ip link add pv1 netns "$one" type veth peer name pv2 netns "$two" 2>/dev/null; then
  ip -n "$one" addr add 10.213.7.1/24 dev pv1 && ip -n "$one" link set pv1 up && ip -n "$one" link set lo up
  ip -n "$two" addr add 10.213.7.2/24 dev pv2 && ip -n "$two" link set pv2 up && ip -n "$two" link set lo up
  machines() { # MODE: rank 0 on one, ranks 1 and 2 on the other
    : >"$work/err"
    : >"$work/out"
    local rank pids=() codes='' start=$(milliseconds)
    for rank in 0 1 2; do
      env RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$((rank / 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.213.7.1 MASTER_PORT=29500 \
        PCRT_TRANSPORT=tcp PCRT_SECRET="${secrets[rank]}" ip netns exec "$([ $rank = 0 ] && echo "$one" || echo "$two")" \
        timeout 30 "$victim" "$1" 2 >>"$work/out" 2>>"$work/err" &
      pids[rank]=$!
    done
    if [ "$2" = cut ]; then
      until grep -q counts "$work/out" || ! kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.1; done
      ip -n "$one" link set pv1 down
    fi
    for rank in 0 1 2; do
      wait "${pids[rank]}" 2>/dev/null
      codes+="$? "
    done
    [ "$codes" = "$3 " ] || complain "exit codes $codes, not $3"
    echo "$name, $1${2:+, $2}: $(($(milliseconds) - start)) ms"
  }
  secrets=(same same same)
  machines none '' '0 0 0'
  machines kill '' '7 7 137'
  says 'rank 0: in .*rank 2 died'
  machines count-slowly cut '7 7 7'
  says 'rank 0: .*rank 1 died|rank 0: .*rank 2 died'
  ip -n "$one" link set pv1 up
  secrets=('' '' '')
  machines none 'no secret' '2 2 2'
  says 'other machines can reach 10.213.7.1, but there is no secret .* give all of them the same PCRT_SECRET'
  export PCRT_TIMEOUT_SECONDS=3
  secrets=(same other other)
  machines none 'another secret' '8 8 8'
  says 'warning: rank 0: the connection from .*10.213.7.2 that claims to be rank [12] .* its PCRT_SECRET is different'
  says 'error: rank 2: rank 0 did not start within 3 s at 10.213.7.1 .it closed the connection; is PCRT_SECRET the same on both sides'
else
  echo "$name: not permitted here, not tested"
fi
ip netns del "$one" 2>/dev/null
ip netns del "$two" 2>/dev/null

[ $failed = 0 ] && echo 'all failures are handled'
exit $((failed > 0))
