"""Clients that break the rules: the server answers with an error or closes, and serves the next one as before."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from harness import raw_post, until  # noqa: E402

SMALL = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "512M"]
CANARY = "The capital of France is"
_server = None


def server():
    global _server
    if _server is None:
        _server = harness.Server(*SMALL)
        _server.canary = _server.text(CANARY, max_tokens=6)
    assert _server.process.poll() is None, "the server has ended:\n" + "".join(_server.log)
    return _server


def healthy(s):
    until(lambda: s.in_use() == [0, 0, 0], what="idleness")
    assert s.text(CANARY, max_tokens=6) == s.canary


def exchange(s, data, shut=False):
    """Sends bytes and reads to the end of the connection."""
    with s.socket() as c:
        try:
            c.sendall(data)
        except ConnectionError:
            pass  # the server may answer before it has everything
        if shut:
            c.shutdown(socket.SHUT_WR)
        got = b""
        try:
            while part := c.recv(65536):
                got += part
        except ConnectionError:
            pass
        return got


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None


def test_messages_that_are_not_http():
    s = server()
    for data, want in [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400), (b"GET\r\n\r\n", 400),
                       (b"GET / HTTP/9.9\r\n\r\n", 400), (b"\r\n\r\n\r\n\r\n" * 1000, 400),
                       (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
                       (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
                       (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n", 400),
                       (b"GET /health HTTP/1.1\r\n\r\n", 400),
                       (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
                       (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                       (b"GET /health HTTP/1.1\r\nX: " + b"a" * 70000 + b"\r\n\r\n", 431),
                       (b"GET /health HTTP/1.1\r\n" + b"X: a\r\n" * 20000 + b"\r\n", 431),
                       (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 431),
                       (raw_post("/v1/completions", b" " * ((4 << 20) + 1)), 413)]:
        got = exchange(s, data)
        assert status(got) == want, (data[:80], got[:200])
        assert json.loads(got.split(b"\r\n\r\n", 1)[1])["error"]["code"] == want
    healthy(s)


def test_smuggling_is_not_possible():
    s = server()
    # Where two readers could disagree on the end of a message, it is refused and the rest is not a request.
    inner = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    chunks = b"0\r\n\r\n"
    for framing, body in [(b"Content-Length: 4\r\nTransfer-Encoding: chunked", chunks),
                          (b"Transfer-Encoding: chunked\r\nContent-Length: 4", chunks),
                          (b"Transfer-Encoding: gzip, chunked", chunks), (b"Transfer-Encoding: xchunked", chunks),
                          (b"Transfer-Encoding : chunked", chunks), (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", chunks),
                          (b"X: y\r\n Transfer-Encoding: chunked", chunks), (b"X: y\rTransfer-Encoding: chunked", chunks),
                          (b"X: y\nTransfer-Encoding: chunked", chunks), (b"Transfer-Encoding:\x0bchunked", chunks),
                          (b"Content-Length: 0\r\nContent-Length: 5", b""), (b"Content-Length: 5\r\nContent-Length: 5", b"hello"),
                          (b"Content-Length: 0, 5", b""), (b"Content-Length: +0", b""), (b"Content-Length : 0", b""),
                          (b"Transfer-Encoding: chunked", b"0x0\r\n\r\n"), (b"Transfer-Encoding: chunked", b"1\r\nab\r\n0\r\n\r\n"),
                          (b"Transfer-Encoding: chunked", b"0\nx\r\n\r\n")]:
        got = exchange(s, b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n" + body + inner)
        assert status(got) in (400, 501), (framing, got)
        assert got.count(b"HTTP/1.1 ") == 1 and b'"version"' not in got, (framing, got)
    healthy(s)


def test_pipelined_requests_are_answered_in_order():
    s = server()
    ask = lambda n: raw_post("/v1/completions", {"prompt": CANARY, "max_tokens": n, "temperature": 0})
    data = b"".join(ask(n) for n in (1, 2, 3)) + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    got = exchange(s, data)
    assert got.count(b"HTTP/1.1 200") == 4, got
    places = [got.index(f'"completion_tokens":{n}'.encode()) for n in (1, 2, 3)] + [got.index(b'"version"')]
    assert places == sorted(places)
    healthy(s)


def test_bodies_that_ask_for_too_much():
    s = server()
    chat = lambda content: {"messages": [{"role": "user", "content": content}]}
    text = {"prompt": "x", "max_tokens": 1}
    for path, body, param in [
            ("/v1/completions", b'{"prompt":' + b"[" * 100_000, None),
            ("/v1/completions", b'{"a":' * 20_000 + b"1" + b"}" * 20_000, None),
            ("/v1/completions", text | {"max_tokens": 2**63 - 1}, "max_tokens"),
            ("/v1/completions", text | {"max_tokens": 2**64}, None),
            ("/v1/completions", text | {"stop": ["x"] * 10_000}, "stop"),
            ("/v1/completions", text | {"logit_bias": {str(i): 1 for i in range(100_000)}}, "logit_bias"),
            ("/v1/completions", text | {"n": 129}, "n"),
            ("/v1/completions", {"prompt": ["x"] * 1000}, "prompt"),
            ("/v1/completions", {"prompt": "word " * 100_000}, "input_tokens"),
            ("/v1/completions", {"prompt": [2**31]}, "prompt"),
            ("/v1/chat/completions", chat("word " * 500_000), "input_tokens"),
            ("/v1/chat/completions", chat("<|im_end|>" * 100_000), "input_tokens"),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 5000}, "messages")]:
        begin = time.monotonic()
        code, answer = s.post(path, body)
        assert code == 400 and answer["error"]["param"] == param, (str(body)[:80], answer)
        assert time.monotonic() - begin < 10, str(body)[:80]
    code, answer = s.post("/v1/completions", text | {"logit_bias": {str(i): -1 for i in range(40_000)}})
    assert code == 200, answer
    code, answer = s.post("/v1/completions", text | {"n": 128, "temperature": 1, "seed": 1})
    assert code == 200 and len(answer["choices"]) == 128
    healthy(s)


# Asks until standard input ends, then prints the longest wait in seconds.
PINGS = """
import select, sys, time, urllib.request
worst = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    begin = time.monotonic()
    assert urllib.request.urlopen(sys.argv[1]).status == 200
    worst = max(worst, time.monotonic() - begin)
print(worst)
"""


def test_large_requests_hold_up_nobody_and_leave_nothing():
    s = server()
    s.post("/tokenize", {"prompt": "warm " * 100_000})
    before = s.resident_kib()
    # In a process of its own: this one is busy with JSON itself.
    pings = subprocess.Popen([sys.executable, "-c", PINGS, s.url + "/health"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    assert pings.stdout.readline() == "ready\n"
    begin = time.monotonic()
    code, answer = s.post("/tokenize", {"prompt": "a b" * 400_000, "return_token_strs": True})
    assert code == 200 and answer["count"] == len(answer["token_strs"]) == 400_000 * 2 // 2 + 1, answer["count"]
    code, answer = s.post("/detokenize", {"tokens": [1] * 400_000})
    assert code == 200 and answer["prompt"] == "<|im_start|>" * 400_000
    took = time.monotonic() - begin
    worst = float(pings.communicate()[0])
    assert worst < max(took / 4, 0.1), (worst, took)  # the I/O thread goes on meanwhile
    # What is too long for the context is refused without the work for all of it.
    word = "".join(chr(97 + i * i * 7919 % 26) for i in range(3_000_000))
    for path, body in (("/v1/completions", {"prompt": word}), ("/v1/completions", {"prompt": " " * 3_000_000}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": word}]})):
        code, answer = s.post(path, body)
        assert code == 400 and "has more than 4096 tokens" in answer["error"]["message"], answer
    until(lambda: s.resident_kib() < before + (96 << 10), 10, f"less memory than {before} KiB + 96 MiB")
    healthy(s)


def test_json_faults_say_where():
    s = server()
    for body, says in ((b'{"prompt": "x", "temperature": NaN}', "no NaN or infinite"),
                       (b'{"prompt": "x", "temperature": Infinity}', "no NaN or infinite"),
                       (b'{"prompt": "x" "n": 1}', "at byte 16 of 22"), (b'{"prompt": "x",}', "at byte 16 of 16"),
                       (b"{'prompt': 1}", "at byte 2 of 13"), (b"", "is empty"), (b'{"prompt": "\xff"}', "UTF-8"),
                       (b'{"prompt": "\\ud800"}', "at byte")):
        code, answer = s.post("/v1/completions", body)
        assert code == 400 and says in answer["error"]["message"], (body, answer)


def test_absolute_targets():
    s = server()
    for target in (b"http://example.org/version", b"HTTP://[::1]:8000/version?x=1"):
        got = exchange(s, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status(got) == 200 and b'"version"' in got, got


def test_slow_and_half_sent_requests_hold_up_nobody():
    s = server()
    before = s.descriptors()
    waiting = [s.socket() for _ in range(200)]
    for i, c in enumerate(waiting):
        c.sendall([b"", b"P", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"GET /health HT"][i % 4])
    begin = time.monotonic()
    assert s.get("/health")[0] == 200
    assert time.monotonic() - begin < 0.5
    assert s.text(CANARY, max_tokens=6) == s.canary
    for c in waiting:
        c.close()
    until(lambda: s.descriptors() <= before, 10, "the return of descriptors")
    healthy(s)


def test_a_half_closed_client_has_left():
    s = server()
    body = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with s.socket() as c:
        c.sendall(raw_post("/v1/completions", body))
        until(lambda: s.in_use()[1] == 1, what="the running request")
        c.shutdown(socket.SHUT_WR)
        until(lambda: s.in_use() == [0, 0, 0], 2, "the return of the blocks")
    healthy(s)


def test_a_killed_client_process_has_left():
    s = server()
    code = (f"import http.client, json; c = http.client.HTTPConnection('{s.host}', {s.port});"
            "c.request('POST', '/v1/completions', json.dumps({'prompt': 'Once', 'max_tokens': 1500, 'ignore_eos': True,"
            "'stream': True}), {'Content-Type': 'application/json'}); r = c.getresponse();"
            "[print(line, flush=True) for line in r]")
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    client.stdout.readline()
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    until(lambda: s.in_use() == [0, 0, 0], 2, "the return of the blocks")
    healthy(s)


def test_a_slow_reader_gets_everything():
    s = server()
    options = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "temperature": 0}
    want = s.text(**options)
    with socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        c.settimeout(30)
        c.connect((s.host, s.port))
        c.sendall(raw_post("/v1/completions", options | {"stream": True, "logprobs": 20}, "Connection: close\r\n"))
        until(lambda: s.in_use() == [0, 0, 0] and s.metric("vllm:generation_tokens_total") > 60, what="the generation's end")
        got = b""
        while part := c.recv(512):
            got += part
    lines = [line for line in got.split(b"\n") if line.startswith(b"data: {")]
    assert "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines) == want
    healthy(s)


def test_a_full_queue_says_when_to_come_back():
    with harness.Server(*SMALL, "--max-num-seqs", "1", "--max-queued-requests", "2") as s:
        holding = []
        for i in range(3):
            holding.append(s.stream("Once", max_tokens=1500, ignore_eos=True))
            until(lambda: s.in_use()[1:] == [1, i], what="admission")
        code, headers, body = s.request("POST", "/v1/completions", {"prompt": "x"})
        assert code == 429 and int(headers["Retry-After"]) >= 1, (code, body)
        assert json.loads(body)["error"]["code"] == 429
        for connection, response in holding:
            response.close()
            connection.close()
        until(lambda: s.in_use() == [0, 0, 0], what="idleness")
        assert "Paris" in s.text(CANARY, max_tokens=6)


def test_sigterm_lets_answers_end():
    with harness.Server(*SMALL) as s:
        want = s.text("Once upon a time", max_tokens=60, ignore_eos=True)
        connection, response = s.stream("Once upon a time", max_tokens=60, ignore_eos=True)
        first = response.readline()
        s.process.send_signal(signal.SIGTERM)
        rest = [json.loads(first[6:])] + list(harness.events(response))
        assert "".join(e["choices"][0]["text"] for e in rest) == want
        connection.close()
        assert s.process.wait(20) == 0
        try:
            s.socket(2)
            raise AssertionError("it listens still")
        except ConnectionError:
            pass


def test_a_second_sigterm_ends_at_once():
    with harness.Server(*SMALL) as s:
        connection, response = s.stream("Once", max_tokens=2000, ignore_eos=True)
        response.readline()
        s.process.send_signal(signal.SIGTERM)
        until(lambda: any("stopping" in line for line in s.log), what="the first signal's line")
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(5) == 128 + signal.SIGTERM
        connection.close()


if __name__ == "__main__":
    harness.run_tests(globals())
