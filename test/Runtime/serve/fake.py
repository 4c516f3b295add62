"""A server with a fake model (serve-fake), for tests."""
import http.client
import json
import os
import signal
import socket
import subprocess
import time

INPUTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tokenizer", "Inputs")
failed = 0


def expect(good, what):
    global failed
    if not good:
        failed += 1
        print("FAILED:", what, flush=True)


class Server:
    """with Server(program, step=5) as server: ... At the end, no request has a slot, and every check of the model held."""

    def __init__(self, program, **settings):
        words = [f"{name}={value}" for name, value in settings.items()]
        self.process = subprocess.Popen([program, os.path.join(INPUTS, "llama3.json"), *words], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            said = self.process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = "it did not end"
        if kind is None:
            expect(self.process.returncode == 0 and said.startswith("0 running, 0 waiting"), f"exit {self.process.returncode}: {said}")

    def request(self, method, path, body=None, **headers):
        """Status, headers and text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        names = {"Content-Type": "application/json"} if body is not None else {}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def complete(self, status=200, **fields):
        code, _, text = self.request("POST", "/v1/completions", fields)
        expect(code == status, f"status {code} instead of {status} for {str(fields)[:200]}: {text[:300]}")
        return json.loads(text)

    def raw(self, data, half=False, seconds=30):
        """What the server answers to bytes, until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as one:
            try:
                one.sendall(data)
                if half:
                    one.shutdown(socket.SHUT_WR)
                answer = b""
                while part := one.recv(65536):
                    answer += part
            except ConnectionError:
                return b"reset"
            return answer

    def metric(self, name):
        for line in self.request("GET", "/metrics")[2].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0

    def wait(self, name, value):
        """Waits until a metric has a value."""
        for _ in range(1200):
            if self.metric(name) == value:
                return
            time.sleep(0.05)
        expect(False, f"{name} is {self.metric(name)} instead of {value}")


def events(text):
    """The data of server-sent events."""
    parts = text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts), parts
    return [part[6:] for part in parts]
