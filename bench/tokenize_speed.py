#!/usr/bin/env python3
"""usage: tokenize_speed.py [NAME] [--megabytes N] [--rounds N] [--tokenizer DIR]... [--text DIR]...

Tokenizes JSON lines by pc-tokenize and by the parallel encoder of the package `tokenizers`, in alternating rounds, with the same number
of threads. Both read the same file and write a file of tokens, whose tokens must be equal. Without --tokenizer, byte-level BPE with the
patterns of GPT-2 and Llama 3 is trained on the text, with 50,000 tokens. The text comes from files under the directories of --text
(/usr/share, /usr/lib and /usr/include by default) in documents of about 4 kB, again from the first file if there is too little. Writes
results/NAME.json (tokenize by default). pc-tokenize must be in PATH or in build/bin.
"""
import argparse
import array
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDS = (".py", ".md", ".rst", ".txt", ".h", ".html", ".tex", ".pl", ".pm", ".js", ".json", ".c")


def documents(folders):
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner.sort()
            for name in sorted(names):
                if not name.endswith(ENDS):
                    continue
                try:
                    with open(os.path.join(place, name), encoding="utf-8") as file:
                        text = file.read(1 << 20)
                except (OSError, UnicodeDecodeError):
                    continue
                yield from (text[at : at + 4000] for at in range(0, len(text), 4000))


def write_lines(path, folders, size):
    done = unique = 0
    with open(path, "w", encoding="utf-8") as file:
        while done < size:
            before = done
            for text in documents(folders):
                done += file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                if done >= size:
                    break
            unique = unique or done
            if done == before:
                sys.exit(f"no text under {folders}")
    return unique


def train(folder, folders):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    texts = []
    for text in documents(folders):
        texts.append(text)
        if len(texts) == 5000:
            break
    for name, pattern in (("gpt2", None), ("llama3", LLAMA3)):
        t = Tokenizer(models.BPE(ignore_merges=pattern is not None))
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain]) if pattern else plain
        t.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=50000, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False))
        os.makedirs(os.path.join(folder, name))
        t.save(os.path.join(folder, name, "tokenizer.json"))
        yield os.path.join(folder, name)


def timed(command):
    """Seconds of a command, and its processor seconds."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"TOKENIZERS_PARALLELISM": "true"})
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def package(tokenizer, lines, output):
    """The package's time: lines are parsed and encoded in batches, and tokens written as they come."""
    program = f"""
import array, itertools, json, os, sys
from tokenizers import Tokenizer
t = Tokenizer.from_file({os.path.join(tokenizer, "tokenizer.json")!r})
with open({lines!r}, encoding="utf-8") as file, open({output!r}, "wb") as out:
    while batch := [json.loads(line)["text"] for line in itertools.islice(file, 2000)]:
        for e in t.encode_batch_fast(batch, add_special_tokens=False):
            array.array("I", e.ids).tofile(out)
"""
    return timed([sys.executable, "-c", program])


def ours(tokenizer, lines, output):
    return timed(["pc-tokenize", tokenizer, lines, "-o", output, "--end=none"])


def same(theirs, npy):
    """Whether a file of 32-bit tokens and one of pc-tokenize, of 16 or 32 bits, are equal."""
    with open(npy, "rb") as a, open(theirs, "rb") as b:
        code = "I" if b"<u4" in a.read(128) else "H"
        while True:
            mine, other = array.array(code), array.array("I")
            mine.frombytes(a.read((1 << 20) * mine.itemsize))
            other.frombytes(b.read((1 << 20) * other.itemsize))
            if list(mine) != list(other):
                return False
            if not mine:
                return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="tokenize")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokenizer", action="append")
    parser.add_argument("--text", action="append")
    options = parser.parse_args()
    os.environ["PATH"] = os.path.join(HERE, "..", "build", "bin") + os.pathsep + os.environ["PATH"]
    folders = options.text or ["/usr/share", "/usr/lib", "/usr/include"]
    results = []
    with tempfile.TemporaryDirectory() as work:
        lines, npy, raw = (os.path.join(work, name) for name in ("text.jsonl", "ours.npy", "theirs.raw"))
        unique = write_lines(lines, folders, options.megabytes * 10**6)
        size = os.path.getsize(lines) / 1e6
        for tokenizer in options.tokenizer or list(train(work, folders)):
            times = [(ours(tokenizer, lines, npy), package(tokenizer, lines, raw)) for _ in range(options.rounds)]
            result = {
                "tokenizer": os.path.basename(tokenizer),
                "megabytes": round(size, 1),
                "characters_once": unique,
                "threads": os.cpu_count(),
                "tokens": os.path.getsize(raw) // 4,
                "equal": same(raw, npy),
                "megabytes_per_second": [round(size / a[0], 2) for a, _ in times],
                "package_megabytes_per_second": [round(size / b[0], 2) for _, b in times],
                "ratio": round(statistics.median(b[0] / a[0] for a, b in times), 2),
                "cpu_seconds": [round(a[1], 1) for a, _ in times],
                "package_cpu_seconds": [round(b[1], 1) for _, b in times],
                "ratio_of_cpu_seconds": round(statistics.median(b[1] / a[1] for a, b in times), 2),
            }
            print(json.dumps(result), flush=True)
            results.append(result)
    with open(os.path.join(HERE, "results", options.name + ".json"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(result) + "\n" for result in results)
    sys.exit(not all(result["equal"] for result in results))


main()
