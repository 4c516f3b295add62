#!/bin/sh
# usage: tools.sh COMMAND-LINE.md README.md TOOL...
# The first page tells every tool's usage, the second one names it in its list.
status=0 page=$1 readme=$2
shift 2
for tool in "$@"; do
  grep -qE "^## .*$tool|^\`$tool " "$page" || { echo "$page: not described: $tool"; status=1; }
  grep -q "\`$tool\`" "$readme" || { echo "$readme: not named: $tool"; status=1; }
done
exit $status
