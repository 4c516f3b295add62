#!/usr/bin/env python3
"""usage: check.py WORK

Checks tokens and texts of the tokenizers in Inputs, which the package `tokenizers` computed (Inputs/cases.jsonl), token by token, too,
and that each malformed, hostile or unsupported tokenizer.json gets its message and exit code. `tokenizer-test` must be in PATH.
"""
import copy
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
failed = 0


def expect(good, what):
    global failed
    if not good:
        failed += 1
        print("FAILED:", what)


def run(mode, path, stdin=b""):
    return subprocess.run(["tokenizer-test", mode, path], input=stdin, capture_output=True, timeout=120)


def check_cases():
    cases = {}
    with open(os.path.join(HERE, "Inputs", "cases.jsonl"), encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            cases.setdefault(case["tokenizer"], []).append(case)
    expect(len(cases) == 4, "four tokenizers have cases")
    for name, some in cases.items():
        path = os.path.join(HERE, "Inputs", name + ".json")
        done = run("encode", path, b"".join(case["text"].encode() + b"\0" for case in some))
        expect(done.returncode == 0, f"{name}: {done.stderr}")
        for case, line in zip(some, done.stdout.decode().split("\n")):
            got = list(map(int, line.split()))
            expect(got == case["ids"], f"{name}: {case['text']!r}: {got} instead of {case['ids']}")
        done = run("decode", path, b"".join(" ".join(map(str, case["ids"])).encode() + b"\n" for case in some))
        for case, line in zip(some, done.stdout.decode().split("\n")):
            pushes = [bytes.fromhex(push).decode() for push in line.split(".")]
            expect("".join(pushes) == case["decoded"], f"{name}: {pushes} instead of {case['decoded']!r}")


def refuse(work, what, change, code, *words, text="a", base="llama3"):
    """The tokenizer `base` with a change (or another file) ends with `code`, and the message has the words."""
    with open(os.path.join(HERE, "Inputs", base + ".json"), encoding="utf-8") as file:
        data = json.load(file)
    if callable(change):
        changed = copy.deepcopy(data)
        change(changed)
        content = json.dumps(changed)
    else:
        content = change
    path = os.path.join(work, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    done = run("encode", work, text.encode() + b"\0")
    message = done.stderr.decode(errors="replace")
    good = done.returncode == code and all(word in message for word in words) and len(message) < 6000
    expect(good, f"{what}: exit {done.returncode} instead of {code}, {words} in {message[:500]!r}")


def check_refusals(work):
    def put(*keys, value):
        def change(data):
            for key in keys[:-1]:
                data = data[key]
            data[keys[-1]] = value

        return change

    def pattern(text):
        return put("pre_tokenizer", "pretokenizers", 0, "pattern", value={"Regex": text})

    refuse(work, "no JSON", "{", 9, "is not JSON")
    refuse(work, "an empty file", "", 9, "is not JSON")
    refuse(work, "a list", "[]", 9, "expected an object")
    refuse(work, "deep lists", "[" * 200000, 9, "is not JSON")
    refuse(work, "deep objects", '{"normalizer":' * 100000 + "1" + "}" * 100000, 3, "normalizer")
    nested = {"type": "NFC"}
    for _ in range(100):
        nested = {"type": "Sequence", "normalizers": [nested]}
    refuse(work, "nested sequences", put("normalizer", value=nested), 9, "nested more than 16 deep")
    refuse(work, "no model", lambda data: data.pop("model"), 9, "model")
    refuse(work, "an unknown model", put("model", "type", value="Magic"), 3, "model Magic", "this model is not supported")
    refuse(work, "an unknown normalizer", put("normalizer", value={"type": "Shout"}), 3, "normalizer Shout")
    refuse(work, "an unknown pre-tokenizer", put("pre_tokenizer", value={"type": "UnicodeScripts"}), 3, "pre_tokenizer UnicodeScripts")
    refuse(work, "an unknown decoder", put("decoder", value={"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True}), 3, "decoder CTC")
    refuse(work, "an unknown post-processor", put("post_processor", value={"type": "Sign"}), 3, "post_processor Sign")
    refuse(work, "an unknown setting", put("model", "sampling", value=3), 3, "model BPE", '"sampling" is not supported')
    refuse(work, "dropout", put("model", "dropout", value=0.5), 3, '"dropout"')
    refuse(work, "another version", put("version", value="2.0"), 3, "version '2.0'")
    refuse(work, "a type that is a number", put("decoder", "type", value=3), 9, "decoder")
    refuse(work, "a huge id", put("model", "vocab", "!", value=4000000000), 9, "2^24")
    refuse(work, "a negative id", put("model", "vocab", "!", value=-1), 9, "has no id")
    refuse(work, "one id twice", put("model", "vocab", "!", value=7), 9, "both have id 7")
    refuse(work, "a merge of unknown tokens", lambda data: data["model"]["merges"].append(["zz", "a"]), 9, "'zz' is not in the vocabulary")
    refuse(work, "a merge to an unknown token", lambda data: data["model"]["merges"].append(["!", "#"]), 9, "'!#' is not in the vocabulary")
    refuse(work, "a merge of three", lambda data: data["model"]["merges"].append("a b c"), 9, "is not two tokens")
    refuse(work, "an added token with another id", put("added_tokens", 0, "id", value=90), 9, "gives it")
    refuse(work, "a pattern without end", pattern("[a"), 3, "a class without end")
    refuse(work, "a wrong pattern", pattern("(a"), 9, "is wrong")
    refuse(work, "an empty pattern", pattern(""), 9, "empty")
    refuse(work, "a deep pattern", pattern("(" * 1000 + "a" + ")" * 1000), 9, "is wrong")
    refuse(work, "a large repeat", pattern("((a{1000}){1000}){1000}"), 9, "is wrong")
    refuse(work, "many steps", pattern(r"(a+)+$|(a|a)*b|(a|aa)+c"), 3, "too many steps", text="a" * 40 + "!")
    for bad in (r"\w", r"\bx", r"a\h", r"\R", r"[[:alpha:]]", r"[a-z&&[b]]", r"(?s:.)", r"(?<n>a)", r"a{2}+", r"a{,3}", r"\p{Greek}", r"(?i:ss)", r"\1", r"(*F)", r"[\S]", r"\x41"):
        refuse(work, "the pattern " + bad, pattern(bad), 3, "is not supported", "pre_tokenizer Sequence[0] Split")
    refuse(work, "a map that is no base64", put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "A*=="}), 9, "base64")
    refuse(work, "a map that is too short", put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "/////w=="}), 9, "4294967295 bytes")
    refuse(work, "a trie that leads outside", put("normalizer", value={"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8AAA=="}), 0)
    refuse(work, "an unk_id that is too large", put("model", "unk_id", value=9999), 9, "unk_id 9999", base="unigram")
    refuse(work, "no unk_id", put("model", "unk_id", value=None), 9, "there is no unk_id", base="unigram", text="漢")
    refuse(work, "a score that is a text", put("model", "vocab", 3, value=["x", "y"]), 9, "token 3", base="unigram")
    refuse(work, "no unk_token", put("model", "unk_token", value="[NONE]"), 9, "nor the unk_token '[NONE]'", base="bert", text="漢")
    refuse(work, "a decoder without steps", put("decoder", value={"type": "Sequence", "decoders": []}), 0)
    done = run("decode", work, b"70 71\n")
    expect(done.returncode == 0, f"a decoder without steps: {done}")
    refuse(work, "control characters in a name", put("decoder", value={"type": "\x1b[2J"}), 3, "\\x1b")
    os.unlink(os.path.join(work, "tokenizer.json"))
    done = run("encode", work)
    expect(done.returncode == 9 and b"has no tokenizer.json" in done.stderr, f"no file: {done}")
    path = os.path.join(HERE, "Inputs", "llama3.json")
    for text in (b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"):
        done = run("encode", path, text + b"\0")
        expect(done.returncode == 9 and b"is not UTF-8: byte" in done.stderr, f"invalid UTF-8 {text}: {done.stderr}")


def check_random_changes(work):
    """A file with a random change is accepted or refused, and never crashes the program."""
    rng = random.Random(1)
    values = [None, True, -1, 0, 3, 1e300, 2**63, "", "x", "\u2581", [], {}, [[]], {"type": "NFC"}, {"type": "Sequence", "normalizers": []}]
    path = os.path.join(work, "tokenizer.json")
    for i in range(3000 if os.environ.get("PC_LONG") else 150):
        name = rng.choice(["bert", "llama2", "llama3", "unigram"])
        with open(os.path.join(HERE, "Inputs", name + ".json"), encoding="utf-8") as file:
            data = json.load(file)
        for _ in range(rng.randint(1, 3)):
            node = data
            while True:
                keys = list(node) if isinstance(node, dict) else list(range(len(node)))
                key = rng.choice(keys)
                if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.2:
                    break
                node = node[key]
            if rng.random() < 0.3 and isinstance(node, dict) and len(node) > 1:
                del node[key]
            else:
                node[key] = copy.deepcopy(rng.choice(values))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        for mode, stdin in (("encode", "The  modèl's 123 <mask> </s>\n".encode() + b"\0"), ("decode", b"0 1 2 300 70 80 90 9999999\n")):
            done = run(mode, work, stdin)
            expect(done.returncode in (0, 3, 9), f"change {i} of {name}, {mode}: exit {done.returncode}: {done.stderr[:300]}; see {path}.{i}")
            if done.returncode not in (0, 3, 9):
                os.link(path, f"{path}.{i}")


os.makedirs(sys.argv[1], exist_ok=True)
check_cases()
check_refusals(sys.argv[1])
check_random_changes(sys.argv[1])
print("failed" if failed else "passed")
sys.exit(failed > 0)
