"""usage: server.py SERVE-FAKE

Tests the HTTP server with Python's own client: answers and streams, wrong requests, malformed and hostile HTTP, limits, and clients
that disconnect. After all of it no request has a slot.
"""
import http.client
import json
import random
import select
import signal
import socket
import sys
import threading
import time

import fake
from fake import Server, events, expect

PROGRAM = sys.argv[1]


def test_answers(server):
    status, headers, text = server.request("GET", "/health")
    expect(status == 200 and json.loads(text) == {"status": "ok"}, "health")
    models = json.loads(server.request("GET", "/v1/models")[2])
    expect([one["id"] for one in models["data"]] == ["org/fake"] and models["object"] == "list", "models")
    expect(server.request("GET", "/v1/models/org/fake")[0] == 200, "a model by its name")
    expect(server.request("GET", "/v1/models/other")[0] == 404, "another model")
    fields = dict(model="org/fake", prompt="hello world", max_tokens=20, temperature=0, logprobs=1)
    whole = server.complete(**fields)
    choice, usage = whole["choices"][0], whole["usage"]
    expect(whole["object"] == "text_completion" and whole["model"] == "org/fake", "an answer says what it is")
    expect(len(choice["token_ids"]) == usage["completion_tokens"] == len(choice["logprobs"]["tokens"]), "an answer has its tokens")
    expect("".join(choice["logprobs"]["tokens"]) == choice["text"], "the texts of tokens are the text")
    expect(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], "usage")
    expect(choice["finish_reason"] in ("stop", "length"), "a reason")
    expect(server.complete(**fields)["choices"] == whole["choices"], "the same answer again")
    # The parts of a stream, joined, are the whole text.
    for usage in (False, True):
        status, headers, text = server.request("POST", "/v1/completions", fields | dict(stream=True, stream_options=dict(include_usage=usage)))
        expect(status == 200 and headers["Content-Type"] == "text/event-stream", "a stream")
        parts = events(text)
        expect(parts.pop() == "[DONE]", "a stream ends")
        parts = [json.loads(part) for part in parts]
        expect(len({part["id"] for part in parts}) == 1, "a stream has one id")
        if usage:
            expect(parts.pop()["usage"] == whole["usage"] and all(part["usage"] is None for part in parts), "usage of a stream")
        choices = [part["choices"][0] for part in parts]
        expect("".join(one["text"] for one in choices) == choice["text"], "the text of a stream")
        expect(sum((one["token_ids"] for one in choices), []) == choice["token_ids"], "the tokens of a stream")
        expect([one["finish_reason"] for one in choices] == [None] * (len(choices) - 1) + [choice["finish_reason"]], "the end of a stream")
        expect(sum((one["logprobs"]["text_offset"] for one in choices), []) == choice["logprobs"]["text_offset"], "offsets")
    # The stop string occurs in the text.
    stop = choice["text"][5:7]
    cut = server.complete(**fields, stop=[stop])["choices"][0]
    expect(cut["text"] == choice["text"][: choice["text"].index(stop)] and cut["finish_reason"] == "stop", "a stop string")
    sampled = [server.complete(prompt=[1, 2], max_tokens=20, seed=seed)["choices"][0]["token_ids"] for seed in (5, 5, 6)]
    expect(sampled[0] == sampled[1] != sampled[2], "seeds")
    # Tests HTTP 1.0, and several requests on one connection.
    body = json.dumps(fields | dict(stream=True)).encode()
    head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    old = server.raw(b"POST /v1/completions HTTP/1.0\r\n" + head + body)
    expect(b"data: [DONE]\n\n" in old and b"chunked" not in old, f"HTTP 1.0: {old[:200]}")
    twice = server.raw(b"".join(b"POST /v1/completions HTTP/1.1\r\n" + more + head + body for more in (b"", b"Connection: close\r\n")))
    expect(twice.count(b"[DONE]") == 2, "two requests on a connection")
    expect(server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", half=True).startswith(b"HTTP/1.1 200"), "a client that sends no more")
    chunked = server.raw(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                         + b"".join(b"%x\r\n%s\r\n" % (1, body[i : i + 1]) for i in range(len(body))) + b"0\r\n\r\n")
    expect(b"[DONE]" in chunked, "a chunked request")


def test_wrong_requests(server):
    def refuses(status, param, says, **fields):
        error = server.complete(status, **fields)["error"]
        expect(error["param"] == param and says in error["message"], f"{fields}: {error}")

    refuses(400, "max_tokens", "integer", prompt="x", max_tokens="7")
    refuses(400, "max_tokens", "context", prompt="x", max_tokens=4000)
    refuses(400, "prompt", "context", prompt="x " * 1000)
    refuses(400, "prompt", "no prompt")
    refuses(400, "prompt", "vocabulary", prompt=[1, 100000])
    refuses(400, "prompt", "one prompt", prompt=["a", "b"])
    refuses(400, "logprobs", "temperature 0", prompt="x", logprobs=1)
    refuses(400, "topp", "not supported", prompt="x", topp=1)
    refuses(400, "n", "only 1", prompt="x", n=2)
    refuses(404, None, "'org/fake'", prompt="x", model="gpt-4")
    for body in (b"", b"{", b"[]", b"\xff", b"null", b"1", b'{"prompt": "\xff"}', b"[" * 90000, b'{"prompt":' * 9000):
        expect(server.request("POST", "/v1/completions", body)[0] == 400, f"{body[:20]} is refused")
    status, _, text = server.request("POST", "/v1/chat/completions", {"messages": []})
    expect(status == 501 and "template" in text, "a chat without a template")
    for method, path, status in (("GET", "/", 404), ("GET", "/v1/completions", 404), ("DELETE", "/v1/models", 404), ("POST", "/v1/nothing", 404),
                                 ("GET", "/v1/models/..%2f..%00", 404), ("PUT", "/v1/completions", 405)):
        code, _, text = server.request(method, path, {} if method in ("POST", "PUT") else None)
        expect(code == status and "message" in json.loads(text)["error"], f"{method} {path}: {code} {text}")
    body = b'{"prompt": "x"}'
    for status, names in ((415, {"Content_Type": "text/plain"}), (415, {"Content_Encoding": "gzip"}), (413, {"Content_Length": "100001"}),
                          (415, {"Content_Type": "multipart/form-data; boundary=x"}), (400, {"Content_Length": "-1"}), (200, {"Content_Type": "application/json; charset=utf-8"}),
                          (200, {"Range": "bytes=0-3", "Accept_Encoding": "gzip, br"})):
        code, headers, text = server.request("POST", "/v1/completions", body, **names)
        expect(code == status and json.loads(text) and not headers["Content-Encoding"], f"{names}: {code} {text}")
    long = json.dumps({"prompt": "x" * 100000}).encode()
    expect(server.request("POST", "/v1/completions", long)[0] == 413, "a long request")
    chunks = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + b"186a1\r\n" + b"x" * 100001 + b"\r\n0\r\n\r\n"
    expect(server.raw(chunks).startswith(b"HTTP/1.1 413"), "a long request in chunks")


def test_hostile(server):
    good = b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 31\r\n\r\n" + b'{"prompt": [1], "max_tokens":1}'
    for data in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 1000 + b"\r\n\r\n", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n", b"GET / HTTP/1.1\r\nA: " + b"b" * 20000 + b"\r\n\r\n",
                 b"GET / HTTP/1.1\r\nRange: bytes=" + b"0-1," * 1500 + b"\r\n\r\n", good.replace(b"31", b"99999999999999999999"),
                 good.replace(b"Content-Length: 31", b"Content-Length: 31\r\nTransfer-Encoding: chunked"),
                 good.replace(b"Content-Length: 31", b"Content-Length: 31\r\nContent-Length: 3"),
                 good.replace(b"Content-Length: 31", b"Transfer-Encoding: chunked").replace(b"\r\n\r\n", b"\r\n\r\nfffffffffffffffff\r\n"),
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x11" * 200):
        answer = server.raw(data, half=True)
        expect(not answer.startswith(b"HTTP/1.1 2"), f"{data[:60]} -> {answer[:60]}")
    for seed in range(300):  # damaged requests
        dice = random.Random(seed)
        data = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            match dice.randrange(3):
                case 0:
                    data[at] = dice.randrange(256)
                case 1:
                    del data[at : at + dice.randint(1, 30)]
                case 2:
                    data[at:at] = data[dice.randrange(len(data)) :][: dice.randint(1, 30)]
        server.raw(bytes(data), half=True)
    expect(server.complete(prompt=[1], max_tokens=1)["usage"]["completion_tokens"] == 1, "it still answers")


def test_disconnects(program):
    """Clients that go away in the middle of streams and of whole answers; slots are used again at once."""
    with Server(program, step=20, end=-1) as server:
        for stream in (True, False):
            clients = []
            for _ in range(12):  # twice as many as slots
                body = json.dumps(dict(prompt=[1, 2, 3], max_tokens=390, stream=stream)).encode()
                one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                one.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                clients.append(one)
            server.wait("pc_requests_active", 12)
            if stream:
                expect(clients[0].recv(20).startswith(b"HTTP/1.1 200"), "a stream begins")
            for one in clients:
                one.close()
            server.wait("pc_requests_active", 0)
            expect(server.complete(prompt=[1], max_tokens=2)["usage"]["completion_tokens"] == 2, "a slot is free")
        expect(server.metric('pc_requests_total{outcome="cancelled"}') == 24, "requests were cancelled")


def test_errors(program):
    """Requests that the program refuses, or whose logits are not finite; others go on."""
    with Server(program) as server:
        tokens = server.complete(prompt=[1], temperature=0, max_tokens=3)["choices"][0]["token_ids"]
        error = server.complete(400, prompt=[1], min_p=1)["error"]
        expect(error["param"] == "min_p" and "not compiled" in error["message"], f"the program's refusal: {error}")
    with Server(program, nan=tokens[1]) as server:
        expect(server.complete(prompt=[1], temperature=0, max_tokens=1)["choices"][0]["token_ids"] == tokens[:1], "it answers")
        error = server.complete(500, prompt=[1], temperature=0, max_tokens=3)["error"]
        expect("not finite" in error["message"], f"logits that are not finite: {error}")
        parts = events(server.request("POST", "/v1/completions", dict(prompt=[1], temperature=0, max_tokens=3, stream=True))[2])
        expect("not finite" in json.loads(parts[-1])["error"]["message"], "the same in a stream")


def test_idle(program):
    """A connection without a request outlives the 5 s of usual clients, unless most threads wait for requests. Then one of them ends; which one is first is chance."""
    with Server(program, connections=3) as server:
        one, two = (http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(2))
        for connections, seconds in (([one], 6.5), ([one, two], 40)):
            for connection in connections:
                connection.request("GET", "/health")
                connection.getresponse().read()
            is_open = select.select([connection.sock for connection in connections], [], [], seconds)[0] == []
            expect(is_open == (seconds < 7), f"{len(connections)} idle connections of 3")


def test_limits(program):
    with Server(program, step=20, end=-1, requests=2, connections=6, seconds=4, send=1, key="secret") as server:
        key = dict(Authorization="Bearer secret")
        for path, names, status in (("/health", {}, 200), ("/v1/models", {}, 401), ("/v1/models", dict(Authorization="Bearer secreT"), 401),
                                    ("/v1/models", dict(Authorization="Basic secret"), 401), ("/metrics", {}, 401), ("/v1/models", key, 200)):
            expect(server.request("GET", path, **names)[0] == status, f"{path} {names}")
        expect(server.request("POST", "/v1/completions", {"prompt": [1]})[0] == 401, "a request without a key")
        statuses = []

        def ask(tokens):
            statuses.append(server.request("POST", "/v1/completions", dict(prompt=[1], max_tokens=tokens), **key)[0])

        threads = [threading.Thread(target=ask, args=(390,)) for _ in range(5)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        expect(sorted(statuses) == [429, 429, 429, 504, 504], f"requests at a time, and their time: {statuses}")
        # A client that sends a byte now and then has as much time as one that sends nothing.
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            try:
                for byte in b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200:
                    slow.sendall(bytes([byte]))
                    time.sleep(0.02)
                expect(False, "a slow client is cut off")
            except OSError:
                pass
        # There are more connections than threads.
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(6)]
        answer = server.raw(b"GET /health HTTP/1.1\r\n\r\n")
        expect(answer.startswith(b"HTTP/1.1 503") or answer == b"reset", f"one connection too many: {answer}")
        for one in idle:
            one.close()
        for _ in range(200):
            if server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200"):
                break
            time.sleep(0.05)
        else:
            expect(False, "connections are free again")


def test_failure(program):
    """A program that ends, or writes something else, and a server that stops, while requests run."""
    for number, garbage in ((signal.SIGUSR1, 0), (signal.SIGUSR1, 1), (signal.SIGTERM, 0)):
        server = Server(program, step=20, end=-1, garbage=garbage)
        answers = []

        def ask(stream):
            answers.append(server.request("POST", "/v1/completions", dict(prompt=[1], max_tokens=390, stream=stream))[::2])

        threads = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False)]
        for one in threads:
            one.start()
        server.wait("pc_requests_active", 2)
        server.process.send_signal(number)
        for one in threads:
            one.join()
        if number == signal.SIGUSR1:
            expect(server.request("GET", "/health")[0] == 503, "health of a model that failed")
            expect(server.request("POST", "/v1/completions", {"prompt": [1]})[0] == 503, "a request to a model that failed")
        server.process.send_signal(signal.SIGTERM)
        expect(server.process.wait(60) == 0, "it ends")
        for status, text in answers:
            expect(status == 503 or "server_error" in text, f"{number} {garbage}: {status} {text[-200:]}")


def test_chat(program):
    with Server(program, chat=1, end=-1) as server:
        def chat(status=200, **fields):
            code, _, text = server.request("POST", "/v1/chat/completions", fields)
            expect(code == status, f"status {code} instead of {status}: {text}")
            return text

        messages = [dict(role="user", content="hello")]
        whole = json.loads(chat(messages=messages, max_completion_tokens=9, temperature=0, logprobs=True))
        choice = whole["choices"][0]
        expect(whole["object"] == "chat.completion" and choice["message"]["role"] == "assistant", "a chat")
        expect(whole["usage"]["prompt_tokens"] == server.complete(prompt="<|begin_of_text|>hello")["usage"]["prompt_tokens"], "its prompt")
        expect("".join(one["token"] for one in choice["logprobs"]["content"]) == choice["message"]["content"], "its logprobs")
        parts = events(chat(messages=messages, max_tokens=9, temperature=0, stream=True))
        expect(parts.pop() == "[DONE]", "its end")
        text = "".join(json.loads(part)["choices"][0]["delta"]["content"] for part in parts)
        expect(text == choice["message"]["content"], "a chat as a stream")
        expect(json.loads(chat(messages=messages))["usage"]["total_tokens"] == 400, "an answer may fill the context")
        for fields in (dict(), dict(messages="x"), dict(messages=[1]), dict(messages=messages, prompt="x"), dict(messages=messages, top_logprobs=2),
                       dict(messages=messages, tools=[]), dict(messages=messages, logprobs=1)):
            chat(400, **fields)


with Server(PROGRAM) as server:
    test_answers(server)
    test_wrong_requests(server)
    test_hostile(server)
    server.wait("pc_requests_active", 0)
test_disconnects(PROGRAM)
test_errors(PROGRAM)
test_idle(PROGRAM)
test_limits(PROGRAM)
test_failure(PROGRAM)
test_chat(PROGRAM)
print("failed" if fake.failed else "passed")
sys.exit(fake.failed > 0)
