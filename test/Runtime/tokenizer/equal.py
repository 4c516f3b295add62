#!/usr/bin/env python3
"""usage: equal.py TOKENIZER_TEST TEXTS TOKENIZER...

Compares tokens and texts with those of the package `tokenizers`: TEXTS random texts, each character of Unicode once, and as many lists
of ids, random ones among them. The exit status is 1 if something differs.
"""
import os
import random
import subprocess
import sys

from families import text
from tokenizers import Tokenizer


def run(program, mode, path, stdin):
    done = subprocess.run([program, mode, path], input=stdin, capture_output=True)
    if done.returncode:
        print(f"{path}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout.decode().split("\n")


def show(text):
    return " ".join(c if " " < c < "\x7f" else f"U+{ord(c):04X}" for c in text[:60])


def main(program, count, *paths):
    failed = False
    for path in paths:
        rng = random.Random(1)
        wheel = Tokenizer.from_file(path)
        wheel.no_truncation()
        wheel.no_padding()
        names = [t.content for t in wheel.get_added_tokens_decoder().values()] or ["<s>"]
        texts = [text(rng, names) for _ in range(int(count))] + [""]
        chars = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
        rng.shuffle(chars)
        texts += ["a" + "b ".join(chars[i : i + 16]) + "." for i in range(0, len(chars), 16)] if int(count) >= 10000 else []
        want = [e.ids for e in wheel.encode_batch(texts, add_special_tokens=False)]
        got = [list(map(int, line.split())) for line in run(program, "encode", path, "\0".join(texts).encode() + b"\0")[: len(texts)]]
        wrong = [i for i in range(len(texts)) if i >= len(got) or got[i] != want[i]]
        size = wheel.get_vocab_size()
        ids = want[: int(count)] + [[rng.randrange(size) for _ in range(rng.randint(1, 12))] for _ in range(int(count))]
        ids = [one for one in ids if one]
        back = run(program, "decode", path, "".join(" ".join(map(str, one)) + "\n" for one in ids).encode())[: len(ids)]
        decoded = [wheel.decode(one) for one in ids]
        bad = [i for i in range(len(ids)) if i >= len(back) or "!" in back[i] or bytes.fromhex(back[i].replace(".", "")).decode("utf8", "replace") != decoded[i]]
        name = os.path.basename(os.path.dirname(path))
        print(f"{name}: {len(texts) - len(wrong)} of {len(texts)} texts, {len(ids) - len(bad)} of {len(ids)} lists of ids are equal", flush=True)
        for i in wrong[:4]:
            print("   ", show(texts[i]), want[i][:20], got[i][:20] if i < len(got) else None)
            same = next((k for k, (a, b) in enumerate(zip(want[i], got[i])) if a != b), 0) if i < len(got) else 0
            print("      from", same, [wheel.id_to_token(k) for k in want[i][same : same + 6]], [wheel.id_to_token(k) for k in got[i][same : same + 6]] if i < len(got) else None)
        for i in bad[:4]:
            print("    decode", [wheel.id_to_token(k) for k in ids[i][:12]], repr(decoded[i])[:90], back[i][:90] if i < len(back) else None)
        failed |= bool(wrong or bad)
    sys.exit(failed)


main(*sys.argv[1:])
