#!/usr/bin/env python3
"""usage: check-generation.py PREFIX     build/bin in PATH

Edits steps that generate, PREFIX.MODEL.step, and a program of two ranks, PREFIX.MODEL.local. A verifier or pc-check-generation with
PREFIX.MODEL must refuse each edit."""
import re
import subprocess
import sys

# (what is wrong, model and phase, pattern, replacement). {NAME} is the value of an input, and {keys0} that of a cache. The first match is edited.
EDITS = [
    ("keys are written to slots of other positions", "window.step", r"(pc.cache_write .* at ){slots}, {positions}", r"\1{positions}, {slots}"),
    ("values are written to the slots of chosen rows", "window.step", r"(pc.cache_write .* into {values0} at ){slots}", r"\1{chosen}"),
    ("attention reads the slots of chosen rows", "window.step", r"(pc.cached_attention .* at ){slots}", r"\1{chosen}"),
    ("slots and positions of attention are exchanged", "window.step", r"(pc.cached_attention .* at ){slots}, {positions}", r"\1{positions}, {slots}"),
    ("positions of attention are those of tokens", "learned.step", r"(pc.cached_attention .* at {slots}, ){positions}", r"\1{tokens}"),
    ("a window of one more", "window.step", "window 5", "window 6"),
    ("a window of one less", "window.step", "window 5", "window 4"),
    ("no window", "window.step", " window 5", ""),
    ("a window where there is none", "learned.step", r"(pc.cached_attention .* scale [^ ]*)", r"\1 window 11"),
    ("keys and values are exchanged in attention", "window.step", r"(pc.cached_attention %\d+, )(%\d+), (%\d+)", r"\1\3, \2"),
    ("values are written into the cache of keys", "window.step", r"(pc.cache_write .* into ){values1}", r"\1{keys1}"),
    ("attention reads the cache before it is written", "window.step", r"(pc.cached_attention %\d+, )%\d+", r"\1{keys0}"),
    ("the cache is not updated", "window.step", r"\n *pc.update \"keys\" of \"attention 1\"[^\n]*", ""),
    ("the cache is updated with what it had", "window.step", r"(pc.update \"keys\" of \"attention 0\" )%\d+", r"\1{keys0}"),
    ("updates of two caches are exchanged", "window.step", r"(pc.update \")keys(\" of \"attention 0\".*?pc.update \")values", r"\1values\2keys"),
    ("the second layer writes over the first one's values", "window.step", r"(pc.cache_write %\d+ into ){values1}", r"\1{values0}"),
    ("rotations are looked up by slots", "window.step", r"(pc.rope_table cos .*?pc.embedding %\d+, ){positions}", r"\1{slots}"),
    ("rotations are looked up by chosen rows", "window.step", r"(pc.rope_table sin .*?pc.embedding %\d+, ){positions}", r"\1{chosen}"),
    ("keys are not rotated", "window.step", r"(%\d+)( = pc.rope (%\d+)[^\n]*\n[^\n]*pc.cache_write )\1", r"\1\2\3"),
    ("learned positions are looked up by slots", "learned.step", r"(tensor<\d+x32xf32>, tensor<1x4xi32>\).*?pc.embedding %\d+, ){positions}", r"\1{slots}"),
    ("sinks of another layer", "sinks.step", r"(sinks (%\d+).*?sinks )%\d+", r"\1\2"),
    ("rows choose by slot", "window.step", r"(pc.embedding %\d+, ){chosen} batch 1", r"\1{slots} batch 1"),
    ("rows choose by position", "learned.step", r"(pc.embedding %\d+, ){chosen} batch 1", r"\1{positions} batch 1"),
    ("no top-k, top-p and min-p", "window.step", r"(pc.gumbel .*) above %\d+(.*), tensor<1x4xf32>\)", r"\1\2)"),
    ("the choice is greedy", "window.step", r"(= pc.reduce_max \"b m v -> b m\" )%\d+", r"\1{logits}"),
    ("probabilities are those of noise", "window.step", r"(pc.sum_exp )%\d+", r"\1{scores}"),
    ("tokens are negated", "window.step", r"(pc.scale %\d+ by )-(.* : \(tensor<1x4xf32>)", r"\1\2"),
    ("noise of both halves is the same", "window.local", r"(pc.gumbel .*) offset %\d+(.*), tensor<i32>\)", r"\1\2)"),
    ("tokens of both halves have the same numbers", "window.local", r"pc.iota offset %\d+ : tensor<i32> ->", r"pc.iota ->"),
    ("the largest score of one half", "window.local", r"(pc.reduce_max \"b m v -> b m\" .*?pc.all_reduce )max", r"\1sum"),
    ("a part writes what belongs to the first one", "window.parts.local", r"(pc.cache_write .*) offset %\d+(.*), tensor<i32>\)", r"\1\2)"),
    ("a part attends as if it were the first one", "window.parts.local", r"(pc.cached_attention .*) offset %\d+(.*), tensor<i32>\)", r"\1\2)"),
    ("weights of parts do not sum to 1", "window.parts.local", "= pc.softmax", "= pc.exp"),
    ("padding is chosen", "window.local", r"(pc.mask_padding %\d+ valid )95", r"\g<1>96"),
]


def values(text):
    """The names of inputs, caches, logits and scores."""
    found = {name: value for value, name in re.findall(r'(%\d+) = pc.input data "(\w+)"', text)}
    found |= {kind + number: value for value, kind, number in re.findall(r'(%\d+) = pc.state cache "(\w+)" of "attention (\d)"', text)}
    found["scores"], found["logits"] = re.search(r"(%\d+) = pc.gumbel (%\d+)", text).groups()
    return found


def edited(text, pattern, replacement):
    for name, value in values(text).items():
        pattern, replacement = pattern.replace(f"{{{name}}}", value), replacement.replace(f"{{{name}}}", value)
    new, count = re.subn(pattern, replacement, text, count=1, flags=re.DOTALL if ".*?" in pattern else 0)
    return new if count and new != text else None


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[0].split(": ", 1)[-1]


prefix, wrong = sys.argv[1], 0
for what, program, pattern, replacement in EDITS:
    text = edited(open(f"{prefix}.{program}").read(), pattern, replacement)
    code, why = 0, "there is nothing to edit"
    if text:
        with open(f"{prefix}.edited", "w") as file:
            file.write(text)
        code, why = call("pc-opt", "--pc-verify-step" if program.endswith("step") else "--pc-verify-local", f"{prefix}.edited", "-o", "/dev/null")
        if code == 0:
            code, why = call("pc-check-generation", f"{prefix}.{program.split('.')[0]}", f"{prefix}.edited")
    # Verifiers cite a numbered constraint. An edit that does not parse is not a test of them.
    refused = code == 5 or code and re.search(r"\([A-Z]\d+\)$", why)
    wrong += not refused
    print(f"{'refused' if refused else 'WRONG'}: {what}: exit {code}: {why}", flush=True)
print(f"{len(EDITS) - wrong} of {len(EDITS)} edits are refused")
