"""usage: clients.py SERVE-FAKE SECONDS

Tests the HTTP server with OpenAI's client, and with 32 clients at a time that each know what their answers must be.
"""
import json
import random
import socket
import sys
import threading
import time

import fake
import openai
from fake import Server, expect

PROGRAM, SECONDS = sys.argv[1], float(sys.argv[2])


def test_client():
    with Server(PROGRAM, key="secret", chat=1) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret", max_retries=0)
        expect([one.id for one in client.models.list()] == ["org/fake"], "models")
        expect(client.models.retrieve("org/fake").owned_by == "pc", "a model")
        fields = dict(model="org/fake", prompt="hello world", max_tokens=30, temperature=0)
        whole = client.completions.create(**fields, logprobs=1)
        choice = whole.choices[0]
        expect(whole.usage.completion_tokens == len(choice.logprobs.tokens) and "".join(choice.logprobs.tokens) == choice.text, "logprobs")
        expect(choice.logprobs.top_logprobs[0] == {choice.logprobs.tokens[0]: choice.logprobs.token_logprobs[0]}, "top logprobs")
        parts = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        expect("".join(part.choices[0].text for part in parts if part.choices) == choice.text, "a stream")
        expect(parts[-1].usage == whole.usage, "usage of a stream")
        stop = choice.text[4:6]
        cut = client.completions.create(**fields, stop=[stop, "never"]).choices[0]
        expect(cut.text == choice.text[: choice.text.index(stop)] and cut.finish_reason == "stop", "a stop string")
        more = client.completions.create(**fields | dict(temperature=0.8, prompt=[1, 2, 3]), top_p=0.9, seed=4, extra_body=dict(top_k=5, min_p=0.1))
        expect(more.usage.prompt_tokens == 3, "further fields")
        messages = [dict(role="user", content="hello")]
        chat = client.chat.completions.create(model="org/fake", messages=messages, temperature=0, max_completion_tokens=20, logprobs=True)
        expect("".join(one.token for one in chat.choices[0].logprobs.content) == chat.choices[0].message.content, "a chat")
        parts = client.chat.completions.create(model="org/fake", messages=messages, temperature=0, max_tokens=20, stream=True)
        expect("".join(part.choices[0].delta.content for part in parts) == chat.choices[0].message.content, "a chat as a stream")
        with client.completions.create(**fields | dict(max_tokens=300), stream=True) as stream:  # leaves in the middle
            next(iter(stream))
        for kind, change in ((openai.BadRequestError, dict(max_tokens=0)), (openai.NotFoundError, dict(model="gpt"))):
            try:
                client.completions.create(**fields | change)
                expect(False, f"{change} is refused")
            except kind as error:
                expect(error.body["message"], "an error has a message")
        try:
            client.with_options(api_key="wrong").models.list()
            expect(False, "a wrong key is refused")
        except openai.AuthenticationError:
            pass


def test_load():
    """Requests whose answers are known from a server with nothing else to do."""
    kinds = [dict(prompt=[n + 1, 2, 3] * (n % 7 + 1), max_tokens=n * 11 % 60 + 1, seed=n, temperature=n % 2, logprobs=0) for n in range(40)]
    with Server(PROGRAM) as server:
        known = [server.complete(**kind)["choices"] for kind in kinds]
    counts = dict(whole=0, left=0)
    lock = threading.Lock()
    end = time.monotonic() + SECONDS

    def client(number):
        dice = random.Random(number)
        while time.monotonic() < end:
            at = dice.randrange(len(kinds))
            leaves = dice.random() < 0.2
            if leaves:
                body = json.dumps(kinds[at] | dict(max_tokens=300, stream=dice.random() < 0.5)).encode()
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
                    one.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    time.sleep(dice.random() * 0.05)
            else:
                expect(server.complete(**kinds[at])["choices"] == known[at], f"the answer to {kinds[at]}")
            with lock:
                counts["left" if leaves else "whole"] += 1

    with Server(PROGRAM, step=1, connections=200, requests=200) as server:
        threads = [threading.Thread(target=client, args=(n,)) for n in range(32)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        server.wait("pc_requests_active", 0)
    expect(counts["whole"] > 100, "clients got answers")
    print(f"{counts['whole']} answers, {counts['left']} clients that left")


test_client()
test_load()
print("failed" if fake.failed else "passed")
sys.exit(fake.failed > 0)
