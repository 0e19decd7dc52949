#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# environment_ranks.sh RANKS PROGRAM [ARGUMENT...]: starts the ranks as torchrun's agent does, by
# the environment alone. The ranks end by themselves; one that has stopped is killed 2 seconds after
# the first failure, whose code is that of the job.
set -u
ranks=$1
shift
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1
export MASTER_PORT=$((20000 + $$ % 30000))
declare -A running=()
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  running[$!]=1
done
code=0
killer=
while [ ${#running[@]} -gt 0 ]; do
  wait -n -p ended "${!running[@]}"
  failed=$?
  unset "running[$ended]"
  [ "$failed" -ne 0 ] && [ "$code" -eq 0 ] || continue
  code=$failed
  (sleep 2 && kill -KILL "${!running[@]}") >/dev/null 2>&1 &
  killer=$!
done
[ -z "$killer" ] || kill "$killer" 2>/dev/null
exit "$code"
