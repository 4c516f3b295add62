"""usage: messages.py [--list] FILE|FOLDER...

Reads the texts that people see, which are the string literals of several words in C++ sources (adjacent literals are one text), and
prints those with a turn of phrase that reads badly; the exit status is 1 if there are any. --list prints all texts."""
import re
import sys
from pathlib import Path

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((.*?)\)"|((?:"(?:\\.|[^"\\\n])*"(?:\s|//[^\n]*)*)+)|\'(?:\\.|[^\'\\])\'|[^"\'/R]+|.', re.S)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
AWKWARD = {
    r"\bbehind\b": "after",
    r"\bin front of\b": "before",
    r"\b(so many|so manieth)\b": "a number, or N",
    r"\b(nobody|somebody|anybody)\b": "a rank, a process",
    r"\b(that|those) of\b": "the noun again",
    r"\bof (which|whom)\b": "a new clause",
    r"(?<!there )\bis no (?!longer\b)[a-z]": "is not a",
    r"\bneither\b.*\bnor\b.*\bnor\b": "expected a, b or c",
    r"\b(goes|go) (with|on)\b": "needs, works with; continues",
    r"\bunder way\b": "in progress",
    r"\bfor ever\b": "forever",
    r"\bas that\b": "the noun again",
    r"\bin (the )?place of\b": "instead of",
    r"\b(s|bytes|[KMGT]i?B|flop/s|ranks) a (step|rank|node|thread)\b": "per",
    r", too\b": "also",
    r"\bput together\b": "combined",
    r"\bwhat works\b": "use",
    r"\bhands? on\b": "passes",
}


def texts(path):
    """Line and text of each literal of several words."""
    line = 1
    for token in TOKEN.finditer(path.read_text()):
        raw, quoted = token.groups()
        text = raw if raw is not None else "".join(LITERAL.findall(re.sub(r"\s//[^\n]*", " ", quoted))) if quoted else ""
        if len(re.findall(r"[A-Za-z']{2,}", text)) > 2:
            yield line, text
        line += token.group().count("\n")


paths = [Path(one) for one in sys.argv[1:] if one != "--list"]
files = [file for one in paths for file in (sorted(one.rglob("*")) if one.is_dir() else [one]) if file.suffix in (".cpp", ".h")]
bad = 0
for file in files:
    for line, text in texts(file):
        if "--list" in sys.argv:
            print(f"{file}:{line}: {text}")
            continue
        for pattern, better in AWKWARD.items():
            if found := re.search(pattern, text):
                print(f"{file}:{line}: '{found[0]}' (say: {better}) in: {text}")
                bad += 1
sys.exit(bad > 0)
