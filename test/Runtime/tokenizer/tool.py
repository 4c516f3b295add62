#!/usr/bin/env python3
"""usage: tool.py WORK

Tests pc-tokenize with the small tokenizers in Inputs: every format, order and boundaries of documents, text and back, and that a
failure names its place, has its exit code and leaves the old output. `pc-tokenize` must be in PATH.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
failed = 0


def expect(good, what):
    global failed
    if not good:
        failed += 1
        print("FAILED:", what)


def run(*words, code=0, says="", stdin=b"", shell_limit=None):
    command = ["pc-tokenize", *map(str, words)]
    if shell_limit:
        command = ["bash", "-c", f'{shell_limit}; exec "$@"', "bash", *command]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=300)
    said = (done.stdout + done.stderr).decode(errors="replace")
    expect(done.returncode == code and says in said, f"{words}: exit {done.returncode} instead of {code}, '{says}' in {said[:400]!r}")
    return done


def tokens(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".npy"):
        expect(data[:6] == b"\x93NUMPY" and len(data) >= 128 and data[127:128] == b"\n", f"{path} is NumPy's")
        return list(struct.unpack(f"<{(len(data) - 128) // 2}H", data[128:]))
    magic, version, count = struct.unpack("<3i", data[:12])
    form, width = {(20240520, 1): ("H", 2), (20240801, 7): ("I", 4)}[magic, version]
    expect(len(data) == 1024 + count * width, f"{path}: {len(data)} bytes for {count} tokens")
    return list(struct.unpack(f"<{count}{form}", data[1024:]))


def write(path, data):
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    return path


def cases(name):
    with open(os.path.join(HERE, "Inputs", "cases.jsonl"), encoding="utf-8") as file:
        return [case for case in map(json.loads, file) if case["tokenizer"] == name and case["text"]]


def check_formats():
    for name, end in (("llama3", "<|end_of_text|>"), ("llama2", "</s>"), ("bert", "[SEP]"), ("unigram", "</s>")):
        path = os.path.join(HERE, "Inputs", name + ".json")
        some = cases(name)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        end_id = next(t["id"] for t in data["added_tokens"] if t["content"] == end)
        want = sum((case["ids"] + [end_id] for case in some), [])
        write("a.jsonl", "".join(json.dumps({"id": 1, "body": case["text"]}) + "\n" for case in some))
        for output in ("a.bin", "a.npy"):
            run(path, "a.jsonl", "-o", output, "--field", "body", "--end", end, says=f"{len(want)} tokens of {len(some)} documents, 16 bits")
            expect(tokens(output) == want, f"{name}: {output}")
        run(path, "a.jsonl", "-o", "b.bin", "--field=body", f"--end={end_id}")
        expect(tokens("b.bin") == want, f"{name}: --end by id")
        run(path, "-", "-o", "b.bin", "--format=jsonl", "--field=body", "--end", end, stdin=open("a.jsonl", "rb").read())
        expect(tokens("b.bin") == want, f"{name}: standard input")
        texts = [write(f"{i}.txt", case["text"]) for i, case in enumerate(some)]
        run(path, *texts, "-o", "b.bin", "--end", "none", says="tokens of")
        expect(tokens("b.bin") == sum((case["ids"] for case in some), []), f"{name}: files of text")
    path = os.path.join(HERE, "Inputs", "llama3.json")
    write("lines.txt", "the model\r\n\n \nreads tokens\nthe end")
    run(path, "lines.txt", "-o", "lines.bin", "--format=lines", "--end=1", says="of 3 documents")
    run(path, "--decode", "lines.bin", says="the model<|end_of_text|>reads tokens<|end_of_text|>the end<|end_of_text|>")
    run(path, "lines.txt", "-o", "lines.bin", "--format=lines", "--end=1", "--template")
    run(path, "--decode", "lines.bin", "-o", "back.txt")
    expect(open("back.txt").read() == "".join(f"<|begin_of_text|>{t}<|end_of_text|>" for t in ("the model", "reads tokens", "the end")), "the template")


def check_order():
    """Many blocks, a line longer than a block, and threads do not change the result."""
    path = os.path.join(HERE, "Inputs", "llama3.json")
    texts = [f"the model {i} reads" * (1 + i % 50) for i in range(6000)]
    texts[3000] = "tokens and " * 300000
    write("many.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    for threads in (1, 7):
        run(path, "many.jsonl", "many.jsonl", "-o", f"many{threads}.npy", "--end=1", "--threads", threads, says="of 12000 documents")
    expect(tokens("many1.npy") == tokens("many7.npy"), "the number of threads")
    run(path, "--decode", "many1.npy", "-o", "many.txt")
    with open("many.txt") as file:
        expect(file.read() == "".join(text + "<|end_of_text|>" for text in texts * 2), "the order of documents")


def check_end():
    os.makedirs("model")
    shutil.copy(os.path.join(HERE, "Inputs", "llama3.json"), "model/tokenizer.json")
    write("a.txt", "the model")
    run("model", "a.txt", "-o", "a.bin", code=2, says="give --end TOKEN, or --end none")
    write("model/config.json", '{"eos_token_id": 1}')
    run("model", "a.txt", "-o", "a.bin", says="documents end with token 1 (pc-import --documents=1)")
    write("model/tokenizer_config.json", '{"eos_token": {"content": "<|begin_of_text|>"}}')
    run("model", "a.txt", "-o", "a.bin", says="documents end with token 0")
    run("model", "a.txt", "-o", "a.bin", "--end", "</nothing>", code=2, says="'</nothing>' is neither a token")
    run("model", "a.txt", "-o", "model/tokenizer.json", code=2, says="would overwrite")
    run("model", "a.txt", "-o", "a.txt", code=2, says="would overwrite")


def check_failures():
    path = os.path.join(HERE, "Inputs", "llama3.json")
    before = write("old.bin", "old") and os.listdir(".")
    good = '{"text": "the model"}\n'
    for content, says in (
        (good * 3 + "{\n" + good, "bad.jsonl: line 4 is not JSON"),
        (good + "[1]\n", "line 2 has no field 'text'"),
        (good + '{"text": null}\n', "line 2: field 'text' is not a string, but null"),
        (good.encode() + b'{"text": "\xff"}\n', "line 2 is not JSON"),
        (good + '{"text": "\\ud800"}\n', "line 2 is not JSON"),
        ("\n", "the input has no text"),
    ):
        run(path, write("bad.jsonl", content), "-o", "old.bin", "--end=1", code=9, says=says)
    run(path, write("bad.txt", b"abc\xe4\xbc"), "-o", "old.bin", "--end=1", code=9, says="bad.txt: the text is not UTF-8: byte 3 is 0xe4")
    run(path, "nowhere.txt", "-o", "old.bin", "--end=1", code=9, says="nowhere.txt")
    run(path, write("a.txt", "the"), "-o", "old.txt", "--end=1", code=2, says="NAME.bin or NAME.npy")
    run(path, "a.txt", "-o", "nowhere/old.bin", "--end=1", code=6, says="cannot write nowhere/old.bin")
    run(path, "a.txt", code=2, says="the output is missing")
    run(path, "-o", "old.bin", code=2, says="at least one input")
    run(path, "a.txt", "-o", "old.bin", "--end=1", "--what", "x", code=2, says="unknown option '--what'")
    run(path, "a.txt", "-o", "old.bin", "--end=1", "--threads=0", code=2, says="--threads takes")
    run(path, "a.txt", "-o", "old.bin", "--end=1", "--format=csv", code=2, says="--format takes")
    done = subprocess.run(["pc-tokenize", path, write("a.parquet", "PAR1"), "-o", "old.bin", "--end=1"], capture_output=True, timeout=60)
    expect((done.returncode, b"was built without Parquet" in done.stderr) in ((2, True), (9, False)), f"Parquet: {done.stderr}")
    run(os.path.join(HERE, "Inputs"), "a.txt", "-o", "old.bin", code=9, says="tokenizer.json")
    long = write("long.txt", "the model " * 40000)
    run(path, long, "-o", "old.bin", "--end=1", code=6, says="cannot write old.bin", shell_limit="ulimit -f 8")
    write("large.npy", b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }".ljust(117) + b"\n" + b"\x01\x00\xff\xff")
    run(path, "--decode", "large.npy", code=9, says="token 65535 at position 1 is not in the vocabulary of 330")
    expect(open("old.bin").read() == "old", "a failure leaves the old output")
    made = set(os.listdir(".")) - set(before) - {"bad.jsonl", "bad.txt", "a.txt", "long.txt", "large.npy", "a.parquet"}
    expect(not made, f"left behind: {made}")


def check_signal():
    """A signal ends the work and removes what was written."""
    path = os.path.join(HERE, "Inputs", "llama3.json")
    child = subprocess.Popen(["pc-tokenize", path, "-", "--format=lines", "-o", "signal.bin", "--end=1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdin.write(b"the model\n" * 200000)
    child.stdin.flush()
    deadline = time.time() + 60
    while not any(name.startswith("signal.bin.tmp") for name in os.listdir(".")) and time.time() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    try:
        child.stdin.write(b"the model\n" * 200000)
        child.stdin.close()
    except BrokenPipeError:
        pass
    child.wait(60)
    expect(child.returncode == 128 + signal.SIGTERM, f"SIGTERM: exit {child.returncode}")
    expect(not any(name.startswith("signal.bin") for name in os.listdir(".")), "a signal leaves nothing behind")
    child.stderr.close()


os.makedirs(sys.argv[1])
os.chdir(sys.argv[1])
for check in (check_formats, check_order, check_end, check_failures, check_signal):
    check()
print("failed" if failed else "passed")
sys.exit(failed > 0)
