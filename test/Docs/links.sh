#!/bin/sh
# usage: links.sh ROOT PAGE...
# The target of every relative link "](path)" of the pages exists.
root=$1 status=0
shift
for page in "$@"; do
  # shellcheck disable=SC2013 # words are what is wanted
  for link in $(grep -oE '\]\([^)#: ]+' "$root/$page" | sed 's/^](//'); do
    [ -e "$root/$(dirname "$page")/$link" ] || { echo "$page: no such file: $link"; status=1; }
  done
done
exit $status
