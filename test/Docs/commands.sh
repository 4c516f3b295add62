#!/bin/sh
# usage: commands.sh PAGE.md
# Prints the commands of the page's blocks "```sh run", to be run by sh -ex.
awk '/^```sh run/ { inside = 1; next } /^```/ { inside = 0; next } inside { print; n++ } END { exit n == 0 }' "$1"
