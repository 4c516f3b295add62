#!/usr/bin/env bash
# usage: commits.sh ROOT   Runs the hook on samples, and on the messages of all commits since it came.
set -euo pipefail
hook=$1/.githooks/commit-msg
file=$(mktemp)
trap 'rm -f "$file"' EXIT
passed=0 failed=0
check() { # wanted status, message
  local status=0
  printf '%b' "$2" >"$file"
  "$hook" "$file" 2>/dev/null || status=$?
  if ((status == $1)); then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "status $status: $2"; fi
}
long=$(printf 'word %.0s' {1..20})
check 0 '[Driver] Read both kinds of --reference in one place\n\nOne parser is enough.\n'
check 0 '[Shard, Pipeline] Pass the machine as a value\n\nIt was text.\n'
check 0 '[Runtime] Bring moves forward\n\nThey hide behind products.\n# a comment of git\n'
check 1 '[Driver] Read both kinds\n'
check 1 "[Driver] Read $long\n\nWhy.\n"
check 1 'Read both kinds\n\nWhy.\n'
check 1 '[Driver] The kinds of --reference are read in one place\n\nWhy.\n'
check 1 '[Driver] Fixes the kinds\n\nWhy.\n'
check 1 '[Driver] Reading both kinds\n\nWhy.\n'
echo "samples: $passed passed, $failed failed"
passed=0 failed=0
came=$(git -C "$1" log --diff-filter=A --format=%H -- .githooks/commit-msg 2>/dev/null | tail -n 1)
if [[ -n $came ]]; then
  for commit in $(git -C "$1" log --no-merges --format=%H "$came..HEAD"); do
    check 0 "$(git -C "$1" log -1 --format=%B "$commit" | sed 's/\\/\\\\/g')"
  done
fi
echo "history: $passed passed, $failed failed"
