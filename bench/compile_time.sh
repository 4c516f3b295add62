#!/usr/bin/env bash
# usage: bench/compile_time.sh
# Time and peak memory of compiling GPT-3 175B and Llama-3.1-405B for dp=8,tp=8 and MT-NLG 530B for pp=35,tp=8 with dp=8, 10 and 12 to
# the planned phase, and the demo model to an executable; fails past 10 s, 2 GiB and 5 s. The same driver runs in the tests, without the times.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build
PC_LONG=1 PC_TIME=1 exec test/EndToEnd/run.py programs.txt compile-limits
