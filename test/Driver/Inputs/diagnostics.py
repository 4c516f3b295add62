#!/usr/bin/env python3
"""usage: diagnostics.py FILE...

Prints the language server's messages for each file: "FILE:LINE: MESSAGE", or "FILE: nothing".
"""
import json
import pathlib
import subprocess
import sys

server = subprocess.Popen(["pc-lsp-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def say(method, params, **more):
    text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
    server.stdin.flush()


def hear():
    length = int(server.stdout.readline().split(b":")[1])
    while server.stdout.readline().strip():
        pass
    return json.loads(server.stdout.read(length))


say("initialize", {"processId": 1, "rootUri": "test:///", "capabilities": {}}, id=0)
hear()
for path in sys.argv[1:]:
    text = pathlib.Path(path).read_text()
    say("textDocument/didOpen", {"textDocument": {"uri": pathlib.Path(path).resolve().as_uri(), "languageId": "mlir", "version": 1, "text": text}})
    found = hear()["params"]["diagnostics"]
    for one in found:
        print(f"{path}:{one['range']['start']['line'] + 1}: {one['message']}")
    if not found:
        print(f"{path}: nothing")
say("shutdown", None, id=1)
hear()
say("exit", None)
sys.exit(server.wait(timeout=60))
