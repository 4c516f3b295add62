"""usage: names.py ROOT

Prints the class names that two rooms define which see each other's headers; the exit status is 1 if there are any.

A room sees itself and the public headers of IR and Cost; Driver sees those of all rooms. One program includes all
headers, so no two of them may define a class of one name, whatever their rooms. Namespaces do not distinguish two
classes, since most files use several; nested classes do not count."""
import re
import sys
from collections import defaultdict
from pathlib import Path

noise = re.compile(
    r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*(?:.|\n)*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.M)
scope = re.compile(r"\b(?:namespace(?:\s+[\w:]+)?|extern)\s*$")
kind = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(\w+)\s*(?:final\s*)?(?::[^:](?:.|\n)*)?$")


def classes(path):
    """(name, line) of every class, struct, union and enum that a file defines at namespace scope."""
    text = noise.sub(lambda m: "\n" * m[0].count("\n"), path.read_text())
    isScope, head = [], 0  # per open brace: whether it is a namespace's; where the declaration at hand begins
    for mark in re.finditer(r"[{};]", text):
        before, head = text[head : mark.start()], mark.end()
        if mark[0] == "{":
            defined = kind.search(before)
            if defined and all(isScope):
                yield defined[1], text.count("\n", 0, mark.start()) + 1
            isScope.append(bool(scope.search(before)))
        elif mark[0] == "}" and isScope:
            isScope.pop()


root = Path(sys.argv[1])
headers, sources = defaultdict(list), defaultdict(list)  # by name of the class
for file in sorted([*root.glob("lib/**/*"), *root.glob("include/pc/**/*")]):
    parts = file.relative_to(root).parts
    isPublic = parts[0] == "include"
    if file.suffix in (".h", ".cpp"):
        for name, line in classes(file):
            place = (f"{file.relative_to(root)}:{line}", parts[2 if isPublic else 1], isPublic)
            (headers if file.suffix == ".h" else sources)[name].append(place)

found = set()
for name in {*headers, *sources}:
    for i, (one, room, _) in enumerate(headers[name] + sources[name]):
        for j, (other, otherRoom, isPublic) in enumerate((headers[name] + sources[name])[:i]):
            bothHeaders = i < len(headers[name])
            if bothHeaders or room == otherRoom or isPublic and (room in ("Driver", "Search") or otherRoom in ("IR", "Cost")):
                found.add(f"{name}: {other} and {one}")
print("\n".join(sorted(found)), end="\n" if found else "")
sys.exit(bool(found))
