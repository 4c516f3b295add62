#!/bin/sh
# usage: flags.sh PAGE.md < HELP
# Every flag that starts a line of HELP is somewhere on the page. LLVM's own flags (--help, --version) are not ours to describe.
status=0
# shellcheck disable=SC2013 # words are what is wanted
for flag in $(sed -nE 's/^ *(--?[a-z][a-z0-9-]*).*/\1/p' | sort -u); do
  case $flag in --help | --help-list | --version) continue ;; esac
  grep -qE -- "$flag([^a-z0-9-]|\$)" "$1" || { echo "$1: not described: $flag"; status=1; }
done
exit $status
