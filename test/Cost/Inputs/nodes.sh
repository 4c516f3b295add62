#!/bin/sh
# usage: nodes.sh RANKS NODE COMMAND...: COMMAND as so many ranks, NODE of them on each node, with the environment of torchrun; over TCP
ranks=$1 node=$2 pids="" status=0
shift 2
port=$((20000 + $$ % 40000))
for rank in $(seq 0 $((ranks - 1))); do
  RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$((rank % node)) LOCAL_WORLD_SIZE=$node MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=$$ \
    PCRT_TRANSPORT=tcp PCRT_TIMEOUT_SECONDS=60 "$@" &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid" || status=$?; done
exit $status
