#!/usr/bin/env bash
# usage: config-means.sh FILE: a line for each entry of config_means in the description that IR of the phase kernels holds.
set -eu
sed -nE 's/.*\\22config_means\\22:\[(.*)\],\\22constants\\22.*/\1/p' "$1" | sed 's/\\22/"/g; s/},{/}\n{/g'
