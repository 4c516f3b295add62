#!/usr/bin/env python3
"""usage: test/EndToEnd/pc_generate.py

pc-generate and pc-serve with a golden model and a tokenizer of 96 tokens, the characters from space to ~ in this order and
<|end|>: text in and out is what token ids give, on 1, 2 and 3 ranks; stop strings, end tokens, lines of JSON and wrong requests;
and whatever ends a run, no process is left."""
import http.client
import json
import os
import re
import shutil
import signal
import time

from cases import GOLDEN, Case

PROMPT = "Hello, world"


def ids_of(text):
    return [ord(c) - 32 for c in text]


def text_of(ids):
    return "".join(chr(i + 32) for i in ids if i < 95)


def tokenizer():
    """A tokenizer.json without merges, whose vocabulary is written in GPT-2's letters for bytes: only the space differs here."""
    vocabulary = {chr(i + 32) if i else "\u0120": i for i in range(95)} | {"<|end|>": 95}
    end = {"id": 95, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []}}


class PcGenerate(Case):
    def generate(self, *flags, model="model", tool="pc-generate", **more):
        return self.call(tool, model, *flags, **more)

    def answer(self, name, *flags, **more):
        """What it prints, without the end of the line."""
        done = self.generate(*flags, **more)
        self.check(name, done.code == 0 and done.out.endswith("\n"), done.why())
        return done.out.removesuffix("\n")

    def lines(self, name, requests, *flags, code=0):
        (self.work / "requests.jsonl").write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in requests))
        done = self.generate("--prompts", "requests.jsonl", *flags)
        self.check(name, done.code == code, done.why())
        return [json.loads(line) for line in done.out.splitlines()]

    def is_gone(self, process):
        """Whether all processes of its session end within some seconds."""
        for _ in range(200):
            left = []
            for folder in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{folder}/stat", encoding="utf-8", errors="replace") as stat:
                        fields = stat.read().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == process.pid and fields[0] != "Z":
                    left.append(int(folder))
            if not left:
                return True
            time.sleep(0.1)
        return False

    def texts(self):
        text = self.answer("a prompt", "--prompt", PROMPT, "--max-tokens", 30)
        ids = self.answer("token ids", "--ids", ",".join(map(str, ids_of(PROMPT))), "--max-tokens", 30)
        self.check("token ids give the text", text_of(map(int, ids.split())) == text and len(ids.split()) == 30, f"{text!r}, {ids}")
        for ranks, plan in [(2, "--mesh=tp=2"), (3, "--mesh=dp=3")]:
            done = self.generate("-n", ranks, "--prompt", PROMPT, "--max-tokens", 30)
            self.check(f"{ranks} ranks share {plan}", done.out == text + "\n" and plan in done.err, done.why())
        done = self.generate("-n", 2, "--prompt", PROMPT, "--max-tokens", 30, "--machine=cpu")
        self.check("a plan that is searched", done.out == text + "\n" and "--auto --ranks=2" in done.err, done.why())
        done = self.generate("-n", 2, "--prompt", PROMPT, "--max-tokens", 30)
        self.check("the second run compiles nothing", done.out == text + "\n" and "pc-compile" not in done.err, done.why())
        drawn = [self.answer(f"{ranks} ranks draw tokens", "-n", ranks, "--prompt", PROMPT, "--temperature", 1, "--top-k", 20, "--seed", 3) for ranks in (1, 2)]
        self.check("ranks draw the same tokens, as many as the context has", drawn[0] == drawn[1] and len(drawn[0]) >= 45, drawn)
        self.check("weights of another place", self.answer("--init", "--prompt", PROMPT, "--max-tokens", 30, "--init", GOLDEN / "llama", model="model") == text)
        stop = text[7:9]
        found = self.answer("a stop string", "--prompt", PROMPT, "--stop", "\n", "--stop", stop)
        self.check("the text before a stop string", found == text[:text.index(stop)], (text, stop, found))
        return text

    def requests(self, text):
        requests = [{"prompt": PROMPT, "max_tokens": 30, "id": "text"}, "not JSON", {"prompt": ids_of(PROMPT), "max_tokens": 7}, {"prompt": PROMPT, "best": 1},
                    {"prompt": [96]}, {"prompt": PROMPT, "max_tokens": 1000, "id": 7}, {"prompt": PROMPT, "stop": text[4:6]}, {"messages": []},
                    {"prompt": "\u20ac"}, {"prompt": PROMPT, "stream": True}, "", {"prompt": PROMPT, "max_tokens": 2, "logprobs": 0}]
        for ranks in (1, 2):
            found = self.lines(f"lines of JSON on {ranks} ranks", requests, "-n", ranks, code=9)
            choices = [line["choices"][0] if "choices" in line else None for line in found]
            self.check("answers in the order of requests", [line["id"] for line in found] == ["text", 1, 2, 3, 4, 7, 6, 7, 8, 9, 10], found)
            self.check("an error concerns one request", [choice is None for choice in choices] == [False, True, False, True, True, True, False, True, True, True, False], found)
            fields = [line["error"]["param"] for line in found if "error" in line]
            self.check("errors name fields", fields[:6] == [None, "best", "prompt", "max_tokens", "messages", "prompt"], fields)
            good = [choices[0]["text"], choices[2]["text"], choices[6]["text"], choices[10]["text"]]
            self.check("texts", good == [text, text[:7], text[:text.index(text[4:6])], text[:2]], good)
            self.check("reasons", [choices[i]["finish_reason"] for i in (0, 2, 6)] == ["length", "length", "stop"], choices)
            self.check("probabilities", len(choices[10]["logprobs"]["token_logprobs"]) == 2, choices[10])
        many = [{"prompt": PROMPT[:1 + i % 12], "max_tokens": 1 + i % 9, "temperature": i % 2, "seed": i} for i in range(60)]
        one, other = (self.lines(f"many requests {flags}", many, *flags) for flags in ([], ["-n", 2, "--slots", 9]))
        self.check("the same answers with other neighbours", one == other and len(one) == 60, "")
        self.check("defaults", self.lines("flags are defaults", [{"prompt": PROMPT}], "--max-tokens", 3)[0]["choices"][0]["text"] == text[:3])
        (self.work / "no-lines").write_text("")
        self.holds("no requests", "pc-generate", "model", "--prompts", "no-lines", "--out", "out")
        self.check("no answers", (self.work / "out").read_text() == "")

    def ends(self, text):
        other = self.work / "ending"
        shutil.copytree(self.work / "model", other)
        (other / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids_of(text)[4]]}))
        done = self.generate("--prompt", PROMPT, "--max-tokens", 30, model=other)
        self.check("an end token", done.out.strip() == text[:text.index(text[4]) + 1], done.why())

    def wrong(self):
        def refused(name, code, words, *flags, model="model"):
            self.holds(name, "pc-generate", model, *flags, code=code, words=words)
        refused("--chat", 2, "apply_chat_template", "--chat")
        refused("no prompt", 2, "give one of --prompt, --ids and --prompts")
        refused("two prompts", 2, "give one of", "--prompt", "a", "--ids", "1")
        refused("a flag twice", 2, "--prompt is given twice", "--prompt", "a", "--prompt", "b")
        refused("a misspelt flag", 2, "unknown flag '--pormpt'", "--pormpt", "a")
        refused("a flag of training", 2, "unknown flag '--data'", "--prompt", "a", "--data", "x")
        refused("a wrong value", 2, "--top-p: it takes a number above 0 and up to 1, not 3", "--prompt", "a", "--top-p", 3)
        refused("no number", 2, "--max-tokens: it takes an integer from 1, not \"many\"", "--prompt", "a", "--max-tokens", "many")
        refused("wrong ids", 2, "--ids takes token ids", "--ids", "1,x")
        refused("ids beyond the vocabulary", 2, "token 96 is not in the vocabulary of 96", "--ids", "96")
        refused("no tokens", 2, "the prompt has no tokens", "--prompt", "")
        refused("a long answer", 2, "longer than the context of 64", "--prompt", "a", "--max-tokens", 64)
        refused("no tokenizer", 2, "no tokenizer.json, which --prompt needs", "--prompt", "a", model=GOLDEN / "llama")
        refused("no model", 2, "there is no model", model="--prompt=a")
        refused("no such model", 3, "nosuch", "--ids", "1", model="nosuch")
        refused("no such file", 9, "cannot read nosuch", "--prompts", "nosuch")
        refused("no such folder", 6, "cannot write nosuch/out", "--prompt", "a", "--out", "nosuch/out")
        refused("a plan that does not fit", 4, "cannot be split over tp=3", "--prompt", "a", "--mesh", "tp=3", "-n", 3)
        refused("other weights", 9, "nosuch", "--prompt", "a", "--init", "nosuch")
        refused("a program without random choices", 9, "--sampling=false", "--prompt", "a", "--sampling=false", "--temperature", 1)

    def kills(self):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the runner of the tests may ignore it, and children inherit that
        for name, sent, code in [("SIGINT", signal.SIGINT, 130), ("SIGTERM", signal.SIGTERM, 143), ("SIGKILL", signal.SIGKILL, -9)]:
            process = self.start("pc-generate", "model", "-n", 2, "--prompt", "a", "--context", 60000, "--max-tokens", 50000)
            process.stdout.read(1)
            process.send_signal(sent)
            process.wait(60)
            self.check(f"{name} ends the run", process.returncode == code, process.returncode)
            self.check(f"{name} leaves no process", self.is_gone(process), "")
            process.stdout.close(), process.stderr.close()
        process = self.start("pc-generate", "model", "-n", 2, "--prompt", "a", "--context", 60000, "--max-tokens", 50000)
        process.stdout.read(1)
        ranks = [int(folder) for folder in filter(str.isdigit, os.listdir("/proc")) if self.is_rank(folder, process.pid)]
        os.kill(ranks[-1], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.check("a rank that is killed ends the run", process.returncode == 7 and "killed" in err and len(ranks) == 2, (process.returncode, ranks, err))
        self.check("and leaves no process", self.is_gone(process), "")

    def is_rank(self, folder, session):
        try:
            stat = (open(f"/proc/{folder}/stat").read().rpartition(")")[2]).split()
            return int(stat[3]) == session and os.readlink(f"/proc/{folder}/exe").endswith("/generate")
        except OSError:
            return False

    def server(self, *flags):
        """Starts pc-serve; returns the process and its port."""
        process = self.start("pc-serve", "model", "--port", 0, *flags)
        for line in process.stderr:
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", line):
                return process, int(found[1])
        return process, None

    def serves(self, text):
        (self.work / "key").write_text("secret\n")
        self.holds("a wrong port", "pc-serve", "model", "--port", "x", code=2, words="--port takes a number from 0 to 65535, not 'x'")
        process, port = self.server("-n", 2, "--api-key-file", "key")

        def ask(method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", "Authorization": "Bearer secret"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        status, answer = ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 30, "temperature": 0})
        self.check("an answer over HTTP", status == 200 and json.loads(answer)["choices"][0]["text"] == text, answer)
        status, answer = ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 30, "temperature": 0, "stream": True})
        parts = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
        self.check("a stream", "".join(part["choices"][0]["text"] for part in parts if part["choices"]) == text, answer)
        self.check("a chat is not rendered", ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})[0] == 501, "")
        self.check("the model", json.loads(ask("GET", "/v1/models")[1])["data"][0]["id"] == "model", "")
        self.check("the health", ask("GET", "/health")[0] == 200, "")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.check("SIGTERM ends the server", process.returncode == 143 and self.is_gone(process), process.returncode)

    def prepare(self):
        self.environment = {"PCRT_CACHE_DIR": str(self.work / "cache")}
        shutil.copytree(GOLDEN / "llama", self.work / "model")
        (self.work / "model" / "tokenizer.json").write_text(json.dumps(tokenizer()))

    def body(self):
        self.prepare()
        text = self.texts()
        self.requests(text)
        self.ends(text)
        self.wrong()
        self.kills()
        self.serves(text)


if __name__ == "__main__":
    case = PcGenerate("pc_generate.py")
    case.run(case.body)
