#!/bin/sh
# usage: check-mlir.sh PAGE.md DIRECTORY
# Every fenced block "```mlir phase=NAME" of the page: its lines occur in this order in DIRECTORY/NAME.mlir. Locations, blanks and
# numbers of values (%12) are ignored; a line "..." stands for any lines; "..." at the end of a line for the rest of it. Fails if no block was found.
page=$1 directory=$2
awk -v page="$page" -v directory="$directory" '
  function clean(line) {
    gsub(/ loc\((#[a-z0-9]+|"[^"]*")\)/, "", line)
    gsub(/%[0-9]+/, "%", line)
    gsub(/[ \t]+/, " ", line); sub(/^ /, "", line); sub(/ $/, "", line)
    return line
  }
  # Reads the output of a phase once.
  function load(phase,  line, n) {
    if (phase in lines) return
    n = 0
    while ((getline line < (directory "/" phase ".mlir")) > 0) text[phase, ++n] = clean(line)
    lines[phase] = n
    if (!n) { print page ":" NR ": no output of phase " phase; failed = 1 }
  }
  function found(want, phase,  prefix) {
    prefix = 0
    if (want ~ / ?\.\.\.$/) { sub(/ ?\.\.\.$/, "", want); prefix = 1 }
    while (++at <= lines[phase])
      if (prefix ? index(text[phase, at], want) == 1 : text[phase, at] == want) return 1
    return 0
  }
  /^```mlir phase=/ { phase = $2; sub(/^phase=/, "", phase); load(phase); at = 0; inside = 1; blocks++; next }
  /^```/ { inside = 0; next }
  inside {
    line = clean($0)
    if (line == "" || line == "..." || line ~ /^\/\//) next
    if (!found(line, phase)) {
      print page ":" NR ": not in the output of phase " phase " (or not in this order): " line
      failed = 1; at = 0
    }
  }
  END { if (!blocks) { print page ": no block of phase IR"; failed = 1 } exit failed }' "$page"
