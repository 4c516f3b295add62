#!/usr/bin/env python3
"""usage: unicode_tables.py UTF8PROC_CATEGORIES > runtime/tokenizer/UnicodeTables.inc

Writes the tables in which the package `tokenizers` differs from utf8proc. The package mixes several versions of Unicode: its regular
expressions know version 16, and other parts know versions from 8 to 17. The tables state what the package does, character by character,
as observed through its Python interface. The argument is the output of `tokenizer-test categories`.
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
BLOCKS = [POINTS[i : i + 4096] for i in range(0, len(POINTS), 4096)]


def removed_by(pre_tokenizer):
    """The characters that the pre-tokenizer removes."""
    found = set()
    for block in BLOCKS:
        kept = set("".join(piece for piece, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, block)))))
        found.update(c for c in block if chr(c) not in kept)
    return found


def ranges(points, value=lambda c: None):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1 and out[-1][2] == value(c):
            out[-1][1] = c
        else:
            out.append([c, c, value(c)])
    return out


def write(name, comment, points, value=lambda c: None, form=None, type="Range"):
    print(f"// {comment}\nconstexpr {type} {name}[] = {{")
    line = "   "
    for first, last, what in ranges(points, value):
        entry = f" {{0x{first:x}, 0x{last:x}" + (f", {form(what)}" if form else "") + "},"
        if len(line) + len(entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line + "\n};")


def main():
    utf8proc = {}
    with open(sys.argv[1]) as lines:
        for line in lines:
            code, category, lower = line.split()
            utf8proc[int(code, 16)] = category, int(lower, 16)
    category = {c: unicodedata.category(chr(c)) for c in POINTS}  # Unicode 14 with Python 3.11, as PCRE2 10.42
    newer = {}
    for name in "Lu Ll Lt Lm Lo Nd Nl No Mn Mc Me Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split():
        for c in removed_by(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")):
            if category[c] != name:
                newer[c] = name
    category |= newer
    of = lambda *kinds: {c for c in POINTS if category[c].startswith(kinds)}
    apply = lambda normalizer: {c: normalizer.normalize_str(chr(c)) for c in POINTS}
    vanish = lambda normalizer: {c for c, text in apply(normalizer).items() if text == ""}
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    marks = vanish(normalizers.StripAccents())
    nonspacing = vanish(normalizers.BertNormalizer(**(bert | {"strip_accents": True})))
    punctuation = removed_by(pre_tokenizers.Punctuation("removed"))
    ascii_punctuation = {c for c in range(33, 127) if not chr(c).isalnum()}
    cleaned = vanish(normalizers.BertNormalizer(**(bert | {"clean_text": True})))
    forms = {name: apply(getattr(normalizers, name)()) for name in ("NFD", "NFKD")}
    inert = {c for c in POINTS for name in forms if forms[name][c] == chr(c) != unicodedata.normalize(name, chr(c))}
    numeric, word = set(), set()
    for block in BLOCKS:
        numeric.update(ord(p) for p, _ in pre_tokenizers.Digits(True).pre_tokenize_str("a".join(map(chr, block))) if len(p) == 1 and p != "a")
        pieces = pre_tokenizers.Whitespace().pre_tokenize_str(" ".join(chr(c) + "a" for c in block))
        word.update(ord(p[0]) for p, _ in pieces if len(p) == 2)
    lower = {c: text for c, text in apply(normalizers.Lowercase()).items() if c != 0x130 and text != chr(utf8proc[c][1])}

    print("// Written by test/Runtime/tokenizer/unicode_tables.py; do not edit. See Unicode.cpp.")
    write("newer", "Categories of characters that are newer than Unicode 14, or have another category since.", newer, newer.get, '"{}"'.format, "Category")
    write("inert", "Characters that normal forms leave as they are: marks and compositions after Unicode 9.", (of("M") - marks) | inert)
    write("notNonspacing", "Nonspacing marks that BertNormalizer does not know.", of("Mn") - nonspacing)
    write("alsoNonspacing", "Other characters that it takes for nonspacing marks.", nonspacing - of("Mn"))
    write("alsoMark", "Other characters that StripAccents takes for marks.", marks - of("M"))
    write("notPunctuation", "Punctuation that Punctuation and BertPreTokenizer do not know.", of("P") - punctuation)
    write("alsoPunctuation", "Other characters that they take for punctuation.", punctuation - of("P") - ascii_punctuation)
    write("notControl", "Control and format characters that BertNormalizer keeps.", of("Cc", "Cf", "Co") - cleaned - {9, 10, 13})
    write("alsoNumeric", "Characters that Digits takes for numbers, besides those of category N.", numeric - of("N"))
    write("alsoWord", r"Characters that \w of Whitespace and of single_word matches, besides L, M, Nd, Nl and Pc.", word - of("L", "M", "Nd", "Nl", "Pc"))
    write("lower", "Lower case that utf8proc does not know: the distance to it.", lower, lambda c: ord(lower[c]) - c, str, "Distance")


main()
