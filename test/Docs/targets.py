#!/usr/bin/env python3
"""usage: test/Docs/targets.py ROOT

Compares the flags in docs/targets.md with those that docs/command-line.md has for pc-compile and for the
compiled program: the same flags, each once."""
import re
import sys
from pathlib import Path

docs = Path(sys.argv[1]) / "docs"


def flags(text):
    """Those in the first cells of the text's tables."""
    cells = [line.replace("\\|", "/").split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [flag for cell in cells for flag in re.findall(r"`(--?[\w-]+)", cell)]


def section(text, title):
    begin = text.index(f"\n## {title}")
    end = text.find("\n## ", begin + 1)
    return text[begin:end if end > 0 else None]


described, table = ((docs / name).read_text() for name in ("command-line.md", "targets.md"))
wrong = 0
for title, start in (("pc-compile", "pc-compile: a model program"), ("The compiled program", "The compiled program")):
    known, here = set(flags(section(described, start))), flags(section(table, title))
    for flag in sorted(known ^ set(here)) + [flag for flag in set(here) if here.count(flag) > 1]:
        wrong += 1
        print(f"{title}: {flag} is " + ("in the table twice" if here.count(flag) > 1 else "only in command-line.md" if flag in known else "only in targets.md"))
sys.exit(1 if wrong else 0)
