"""usage: includes.py ROOT

Checks that folders depend on each other in one direction. Prints every #include of lib/, include/pc/, runtime/ and
standin/ under ROOT that refers to a folder which its own folder may not use, and every folder that is in no list here.
The exit status is 1 if there is one.
"""
import os
import re
import sys

# Folders of the runtime. Each may include itself and the folders before it.
RUNTIME = ["base", "comm", "device", "cpu", "cuda", "data", "metrics", "replicas", "checkpoint", "schedule", "run"]
ALLOWED = {folder: set(RUNTIME[:i]) for i, folder in enumerate(RUNTIME)}
ALLOWED["launch"] = {"base", "comm"}  # starts ranks, knows no program
ALLOWED["tokenizer"] = {"base"}
ALLOWED["generate"] = {"base", "tokenizer", "schedule"}
ALLOWED["serve"] = {"base", "tokenizer", "schedule", "generate"}
ALLOWED["include"] = set()  # pcrt/, which all may include
ALLOWED["standin"] = set()  # replaces NVIDIA's libraries, and knows as much of the runtime as they do

# The compiler: a room includes IR, Support, Cost and itself. Only Driver knows the order of phases (lib/README.md), and
# Search is above it, since it compiles plans to price them. Proof may include what describes programs, but not what
# transforms or prices them.
ROOMS = ["Import", "Raise", "Autodiff", "Shard", "Tactics", "Pipeline", "Localize", "Overlap", "Memory", "Codegen", "Reference"]
ALLOWED |= {room: {"IR", "Support", "Cost"} for room in ROOMS}
ALLOWED |= {"IR": set(), "Support": {"IR"}, "Cost": {"IR", "Support"}, "Proof": {"IR", "Support"}}
ALLOWED["Tactics"] |= {"Shard"}
ALLOWED["Plan"] = {"IR", "Support", "Autodiff", "Tactics", "Pipeline"}
ALLOWED["Driver"] = {"IR", "Support", "Cost", "Proof", "Plan", *ROOMS}
ALLOWED["Search"] = {"Driver", *ALLOWED["Driver"]}

# Folders in a room, in the order in which they may include each other; "" is the room itself.
FOLDERS = {
    "Autodiff": ["", "Codes"],
    "Codegen": ["Fuse", "Emit", "Kernels", "Rows", "Native", "Gpu", "Count", "ReadBack", "Host"],  # what checks knows no writer
    "Pipeline": ["Schedule", ""],  # schedules are values, without MLIR
    "Search": ["Space", "Price", "Bound", "Report", "Order", ""],
}


def included(top, file, name):
    """The folder of `top` that #include "name" of `file` leads to; None where that is none of this project's."""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), name))
    if os.path.exists(os.path.join(top, beside)) or name.startswith("../"):
        return "standin" if os.path.basename(top) == "standin" else beside.split(os.sep)[0]
    parts = name.split("/")
    if os.path.basename(top) == "standin":
        return None if parts[0] in ("standin", "pcrt") or len(parts) == 1 else parts[0]
    if os.path.basename(top) == "runtime":
        return parts[0] if parts[0] != "pcrt" and len(parts) > 1 else None
    return parts[1] if parts[0] == "pc" else None


def folder_of(file, room):
    """The folder of a room that a file belongs to, also in a folder of that."""
    return os.path.dirname(os.path.relpath(file, room)).split(os.sep)[0]


def problems(root):
    for top in ("runtime", "standin", "lib", "include/pc"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if not name.endswith((".h", ".cpp", ".c", ".cu", ".inc", ".td")):
                    continue
                file = os.path.relpath(os.path.join(folder, name), os.path.join(root, top))
                own = file.split(os.sep)[0] if top != "standin" else "standin"
                if own not in ALLOWED:
                    yield f"{top}/{file}: say in test/Tree/includes.py what {own} may include"
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as text:
                    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text.read(), re.M)
                order = FOLDERS.get(own) if top == "lib" else None
                inside = folder_of(file, own)
                for one in names if order else ():
                    target = os.path.normpath(os.path.join(os.path.dirname(file), one))
                    if not os.path.exists(os.path.join(root, top, target)):
                        continue
                    if order.index(folder_of(target, own)) > order.index(inside):
                        yield f"{top}/{file}: {inside} may not include {one}"
                for other in (included(os.path.join(root, top), file, name) for name in names):
                    if other not in (None, own) and other not in ALLOWED[own]:
                        yield f"{top}/{file}: {own} may not include {other}"


found = list(problems(sys.argv[1]))
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
