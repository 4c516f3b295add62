#!/usr/bin/env python3
"""usage: window-traffic.py MODEL DIRECTORY

Compiles plans with and without windows. A rank must send the same bytes over every axis, with permutes instead of some
gathers and reduce_scatters. Prints both arenas.
"""
import json, subprocess, sys

PLANS = [("tp=2", "--sequence-parallel", "tp"), ("tp=2", "--sequence-parallel --precision=bf16 --microbatches=2", "tp"),
         ("dp=2,tp=2", "--zero=3 --sequence-parallel", "tp,dp"), ("row=2,col=2", "--tensor-parallel=2d", "row"),
         ("row=2,col=2", "--tensor-parallel=2d", "col"), ("row=2,col=2", "--tensor-parallel=2d", "row,col"),
         ("row=4,col=4", "--tensor-parallel=2d", "row,col"), ("row=4,col=4", "--tensor-parallel=2d --precision=bf16", "row,col"),
         ("i=2,j=2,l=2", "--tensor-parallel=3d", "i,j,l"), ("i=2,j=2,l=2", "--tensor-parallel=3d", "j,l")]


def report(model, directory, flags):
    path = directory + "/report.json"
    subprocess.run(["pc-compile", model, "--to=planned", "-o", "/dev/null", "--report=" + path, *flags], check=True)
    return json.load(open(path))["per_rank"][0]


def sent(rank):
    """axis -> bytes, and whether there are permutes."""
    bytes = {}
    for row in rank["traffic"]:
        bytes[row["axis"]] = bytes.get(row["axis"], 0) + row["wire_bytes"]
    return bytes, any(row["move"] == "permute" for row in rank["traffic"])


for mesh, flags, axes in PLANS:
    flags = ["--mesh", mesh, *flags.split()]
    plain, windows = (report(*sys.argv[1:], flags + more) for more in ([], ["--window=" + axes]))
    (plain_bytes, _), (window_bytes, permutes) = sent(plain), sent(windows)
    assert plain_bytes == window_bytes and permutes, (mesh, axes, plain_bytes, window_bytes)
    print(*flags, "window", axes, "arena", plain["arena_bytes"]["device"], windows["arena_bytes"]["device"])
