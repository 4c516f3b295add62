#!/usr/bin/env bash
# usage: harmless-keys.sh KEYS.inc CONFIG.json WORK
# With every key that is called harmless, at its first and at its last value, the config imports to the same program, without a warning.
set -eu
keys=$1 config=$2 work=$3
rm -rf "$work"

# imports NAME ADDED: CONFIG.json with lines of keys after its first line, a brace; prints the program but for what quotes the config.
imports() {
  mkdir -p "$work/$1"
  { echo '{'; echo "$2"; tail -n +2 "$config"; } >"$work/$1/config.json"
  pc-import "$work/$1" --batch 2 --seq 8 -o "$work/$1.mlir" 2>"$work/$1.log" || { cat "$work/$1.log"; return 1; }
  ! grep -i warning "$work/$1.log" && grep -v 'pc.program\|pc.digest' "$work/$1.mlir" >"$work/$1.program"
}

lines=$(sed -nE 's/^HARMLESS\("([^"]*)", R"\((.*)\)"\)$/"\1": \2,/p' "$keys")
imports plain ''
imports first "$(awk -F'"' '!seen[$2]++' <<<"$lines")"
imports last "$(tac <<<"$lines" | awk -F'"' '!seen[$2]++')"
cmp "$work/plain.program" "$work/first.program"
cmp "$work/plain.program" "$work/last.program"
echo "$(cut -d'"' -f2 <<<"$lines" | sort -u | wc -l) keys change nothing"
