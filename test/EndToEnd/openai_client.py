"""usage: openai_client.py SECONDS     needs the package openai

pc-serve answers OpenAI's client on several plans: completions, streams, log probabilities, stop strings, errors. Then 32 clients send
requests for SECONDS on each plan, and some of them leave; every answer is the one that a server gives to a single client."""
import random
import signal
import sys
import threading
import time

import openai
from pc_generate import PROMPT, PcGenerate

PLANS = [("-n", 1, "--slots", 4), ("-n", 2, "--slots", 6), ("-n", 2, "--mesh", "pp=2", "--slots", 8), ("-n", 2, "--mesh", "dp=2", "--slots", 3)]
KINDS = [dict(model="model", prompt=[n % 90 + 1, 2, 3] * (n % 7 + 1), max_tokens=n * 11 % 30 + 1, seed=n, temperature=n % 2, logprobs=0 if n % 2 else 1) for n in range(40)]


class OpenAIClient(PcGenerate):
    def client(self, port):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=120)

    def fields(self, name, client):
        fields = dict(model="model", prompt=PROMPT, max_tokens=30, temperature=0)
        whole = client.completions.create(**fields, logprobs=1)
        choice = whole.choices[0]
        self.check(f"{name}: log probabilities", whole.usage.completion_tokens == len(choice.logprobs.tokens) and "".join(choice.logprobs.tokens) == choice.text, choice)
        parts = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        self.check(f"{name}: a stream", "".join(part.choices[0].text for part in parts if part.choices) == choice.text and parts[-1].usage == whole.usage, parts)
        stop = choice.text[4:6]
        cut = client.completions.create(**fields, stop=[stop, "never"]).choices[0]
        self.check(f"{name}: a stop string", cut.text == choice.text[: choice.text.index(stop)] and cut.finish_reason == "stop", cut)
        for kind, change in ((openai.BadRequestError, dict(max_tokens=0)), (openai.NotFoundError, dict(model="gpt"))):
            try:
                client.completions.create(**fields | change)
                self.check(f"{name}: {change} is refused", False, "answered")
            except kind as error:
                self.check(f"{name}: {change} is refused", error.body["message"], error.body)

    def load(self, name, client, known, seconds):
        counts, wrong, lock, end = {"whole": 0, "left": 0}, [], threading.Lock(), time.monotonic() + seconds

        def one(number):
            dice = random.Random(number)
            while time.monotonic() < end:
                at = dice.randrange(len(KINDS))
                kind = "left" if dice.random() < 0.2 else "whole"
                try:
                    if kind == "left":
                        with client.completions.create(**KINDS[at] | dict(max_tokens=40, logprobs=None), stream=True) as stream:
                            next(iter(stream))
                    elif (got := client.completions.create(**KINDS[at]).choices) != known[at]:
                        wrong.append((KINDS[at], got, known[at]))
                except Exception as error:  # each is a lost request
                    wrong.append(error)
                with lock:
                    counts[kind] += 1

        threads = [threading.Thread(target=one, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.check(f"{name}: load", not wrong and counts["whole"] > 100, wrong[:3], counts)

    def body(self):
        self.prepare()
        for plan in PLANS:
            name = " ".join(map(str, plan))
            process, port = self.server("--context", 64, *plan)
            if not self.check(f"{name}: starts", port, "it says no port"):
                continue
            threading.Thread(target=process.stderr.read, daemon=True).start()
            client = self.client(port)
            self.fields(name, client)
            known = [client.completions.create(**kind).choices for kind in KINDS]
            self.load(name, client, known, float(sys.argv[1]))
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            self.check(f"{name}: ends", process.returncode == 143 and self.is_gone(process), process.returncode)


if __name__ == "__main__":
    case = OpenAIClient("openai_client.py")
    case.run(case.body)
