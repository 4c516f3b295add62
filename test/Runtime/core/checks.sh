# shellcheck shell=bash
# Sourced by the scripts that run the hand-written programs, in the directory where they work: counts what holds.
failed=0 passed=0

# good NAME COMMAND...: the command succeeds.
good() {
  local name=$1
  shift
  if "$@" >out 2>err; then
    passed=$((passed + 1))
  else
    echo "FAILED $name (exit $?)"
    cat out err | head -20
    failed=$((failed + 1))
  fi
}
