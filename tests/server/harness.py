"""A pagefold server as a process, for the black-box tests of this folder.

Every test file runs under pytest (binary and model from PAGEFOLD_BINARY and PAGEFOLD_TEST_MODEL) and by itself:
  python tests/server/load_test.py --binary build/release/bin/pagefold --model MODEL
which prints "N passed, N failed" and exits non-zero if something failed.
"""

import argparse
import atexit
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import traceback
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PAGEFOLD_BINARY", str(ROOT / "build/release/bin/pagefold"))
MODEL = os.environ.get("PAGEFOLD_TEST_MODEL", "")


def need_model():
    if not MODEL:
        raise unittest.SkipTest("PAGEFOLD_TEST_MODEL names no model")


class Server:
    """A server on a free port; its log is read until it listens, then on in a thread."""

    def __init__(self, *options, env=()):
        need_model()
        self.process = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0", *options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | dict(env))
        atexit.register(self.process.kill)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on (https?)://(\S+):(\d+)", line)
            if found:
                self.host, self.port = found.group(2), int(found.group(3))
                break
        else:
            raise AssertionError("the server did not start:\n" + "".join(self.log))
        self.url = f"{found.group(1)}://{self.host}:{self.port}"
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        atexit.unregister(self.process.kill)

    def request(self, method, path, body=None, headers=(), timeout=600):
        """(status, headers, bytes); a body that is no bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json"} | dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path, timeout=30)
        return status, body.decode()

    def post(self, path, body, timeout=600):
        status, _, answer = self.request("POST", path, body, timeout=timeout)
        return status, json.loads(answer)

    def complete(self, prompt, **options):
        """The answer's JSON; greedy unless asked for otherwise."""
        status, answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0} | options)
        assert status == 200, (status, answer)
        return answer

    def text(self, prompt, **options):
        return self.complete(prompt, **options)["choices"][0]["text"]

    def stream(self, prompt, **options):
        """Opens a streamed completion; gives the connection and its response, to be read line by line."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        body = json.dumps({"prompt": prompt, "temperature": 0, "stream": True} | options)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return connection, response

    def socket(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def metric(self, name):
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def in_use(self):
        return [self.metric(m) for m in ("pagefold_kv_blocks_used", "vllm:num_requests_running",
                                         "vllm:num_requests_waiting")]

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_kib(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", text).group(1))


def raw_post(path, body, headers=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def events(response):
    """The JSON objects of a stream, to its [DONE]."""
    for line in response:
        if line.startswith(b"data: "):
            if line.strip() == b"data: [DONE]":
                return
            yield json.loads(line[6:])
    raise AssertionError("the stream ended without [DONE]")


def until(condition, seconds=30, what="it"):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.005)


def run_tests(module):
    """Runs the test_* functions of a file's globals() in their order."""
    global BINARY, MODEL
    args = argparse.ArgumentParser()
    args.add_argument("--binary", default=BINARY)
    args.add_argument("--model", default=MODEL)
    args.add_argument("names", nargs="*", help="only these tests")
    args = args.parse_args()
    BINARY, MODEL = args.binary, args.model
    tests = [f for name, f in module.items()
             if name.startswith("test_") and callable(f) and (not args.names or name in args.names)]
    failed = 0
    for f in tests:
        begin = time.monotonic()
        try:
            f()
            print(f"ok      {f.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:  # one broken test must not hide the others
            failed += 1
            print(f"FAILED  {f.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
