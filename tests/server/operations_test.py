"""The server as operators run it: TLS, keys, origins, a config file, draining, a full spill disk, request ids."""

import http.client
import json
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from harness import until  # noqa: E402

SMALL = ["--max-model-len", "1024", "--kv-cache-memory-bytes", "256M"]
CANARY = {"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def certificate(folder, name="one"):
    """Paths of a certificate for 127.0.0.1 and of its key."""
    paths = [str(Path(folder) / f"{name}.{kind}") for kind in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def test_tls():
    with tempfile.TemporaryDirectory() as folder:
        crt, key = certificate(folder)
        with harness.Server(*SMALL, "--ssl-certfile", crt, "--ssl-keyfile", key) as s:
            assert "https://" in s.log[-1], s.log[-1]
            trust = ssl.create_default_context(cafile=crt)
            c = http.client.HTTPSConnection(s.host, s.port, timeout=60, context=trust)
            texts = []
            for stream in (False, True, False):  # one connection: requests, a stream, again
                c.request("POST", "/v1/completions", json.dumps(CANARY | {"stream": stream}),
                          {"Content-Type": "application/json"})
                r = c.getresponse()
                assert r.status == 200
                texts.append("".join(e["choices"][0]["text"] for e in harness.events(r)) if stream
                             else json.loads(r.read())["choices"][0]["text"])
                r.read()
            assert len(set(texts)) == 1 and "Paris" in texts[0], texts
            body = json.dumps({"prompt": "x" * 1_000_000})
            c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            assert c.getresponse().status == 400  # a long body, and what it is refused for
            c.close()
            # A client that leaves, one that speaks no TLS, one that never speaks.
            c = http.client.HTTPSConnection(s.host, s.port, timeout=60, context=trust)
            c.request("POST", "/v1/completions", json.dumps(CANARY | {"stream": True, "max_tokens": 900, "ignore_eos": True}),
                      {"Content-Type": "application/json"})
            c.getresponse().readline()
            c.close()
            with s.socket() as plain, s.socket():
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"HTTP/1.1 200" not in plain.recv(1000)
            with trust.wrap_socket(socket.create_connection((s.host, s.port)), server_hostname="127.0.0.1") as t:
                assert t.version() in ("TLSv1.2", "TLSv1.3")
                t.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                got = b""
                while part := t.recv(65536):
                    got += part
            assert b"vllm:num_requests_running" in got
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(20) == 0


def test_tls_files_are_checked_before_the_model_is_loaded():
    with tempfile.TemporaryDirectory() as folder:
        crt, key = certificate(folder)
        _, other = certificate(folder, "two")
        no_pem = str(Path(folder) / "none.pem")
        Path(no_pem).write_text("nothing")
        for arguments, word in [(["--ssl-certfile", crt], "go together"), (["--ssl-keyfile", key], "go together"),
                                (["--ssl-certfile", crt, "--ssl-keyfile", other], "--ssl-keyfile"),
                                (["--ssl-certfile", no_pem, "--ssl-keyfile", key], "--ssl-certfile"),
                                (["--ssl-certfile", crt, "--ssl-keyfile", folder + "/missing"], "--ssl-keyfile")]:
            done = subprocess.run([harness.BINARY, "serve", "/no/model", "--port", "0", *arguments], capture_output=True,
                                  text=True, timeout=30)
            assert done.returncode == 2 and word in done.stderr and "/no/model" not in done.stderr, done


def test_keys_origins_ids_and_a_config_file():
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "serve.toml"
        config.write_text('max-model-len = 1024\n[serve]\nkv-cache-memory-bytes = "256M"\napi-key = "secret"\n'
                          'allowed-origins = ["https://a.example"]\nmax-connections = 4\nmax-body-bytes = "2K"\n'
                          'served-model-name = "small"\n')
        with harness.Server("--config", str(config), "--max-connections", "6") as s:
            key = {"Authorization": "Bearer secret"}
            for path in ("/v1/models", "/v1/completions", "/v1/responses", "/tokenize", "/api/calc"):
                method = "GET" if path == "/v1/models" else "POST"
                for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "secret"}):
                    assert s.request(method, path, {}, headers)[0] == 401, path
            for path in ("/health", "/metrics", "/version", "/ping"):
                assert s.request("GET", path)[0] == 200
            code, headers, body = s.request("POST", "/v1/completions", CANARY, key | {
                "Origin": "https://a.example", "X-Request-Id": "job-1", "traceparent": TRACE})
            assert code == 200 and json.loads(body)["id"] == "cmpl-job-1" and json.loads(body)["model"] == "small"
            assert headers["Access-Control-Allow-Origin"] == "https://a.example" and headers["Vary"] == "Origin"
            assert headers["X-Request-Id"] == "job-1" and headers["traceparent"] == TRACE
            until(lambda: any("id=job-1 " in line for line in s.log), what="the log line")
            line = next(line for line in s.log if "id=job-1 " in line)
            for word in ("method=POST", "path=/v1/completions", "status=200", "traceparent=" + TRACE, "bytes=", "ms="):
                assert word in line, line
            for origin in ("https://b.example", "null", "https://a.example.b"):
                code, headers, _ = s.request("POST", "/v1/completions", CANARY, key | {"Origin": origin})
                assert code == 200 and headers["Access-Control-Allow-Origin"] is None
            code, headers, _ = s.request("OPTIONS", "/v1/completions", None, {
                "Origin": "https://a.example", "Access-Control-Request-Method": "POST"})
            assert code == 204 and "Authorization" in headers["Access-Control-Allow-Headers"]
            assert s.request("POST", "/v1/completions", {"prompt": "x" * 3000}, key)[0] == 413
            held = [s.socket() for _ in range(6)]  # the command line wins over the file
            for c in held:
                c.sendall(b"GET /hea")
            def refused():
                with s.socket() as c:
                    c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                    return b" 503 " in c.recv(1000)
            until(refused, what="the limit of connections")
            for c in held:
                c.close()
            until(lambda: not refused(), what="room")


def test_draining_under_load():
    with harness.Server(*SMALL, "--drain-timeout", "60") as s:
        idle = http.client.HTTPConnection(s.host, s.port, timeout=30)
        idle.request("GET", "/health")
        assert idle.getresponse().read() == b""
        long = {"max_tokens": 60, "ignore_eos": True}
        streams = [s.stream("Once upon a time", **long) for _ in range(8)]
        firsts = [r.readline() for _, r in streams]
        s.process.send_signal(signal.SIGTERM)
        until(lambda: any("stopping" in line for line in s.log), what="the log line")
        idle.request("GET", "/health")
        answer = idle.getresponse()
        assert answer.status == 503 and answer.headers["Retry-After"] and json.loads(answer.read())["error"]["code"] == 503
        for first, (connection, r) in zip(firsts, streams):
            events = [json.loads(first[6:])] + list(harness.events(r))
            assert events[-1]["choices"][0]["finish_reason"] == "length"
            connection.close()
        assert s.process.wait(20) == 0


def test_no_cors_unless_asked_for_and_draining_has_an_end():
    with harness.Server(*SMALL, "--drain-timeout", "1") as s:
        code, headers, _ = s.request("GET", "/v1/models", None, {"Origin": "https://a.example"})
        assert code == 200 and not [h for h in headers if h.lower().startswith("access-control")]
        connection, r = s.stream("Once", max_tokens=1000, ignore_eos=True)
        r.readline()
        r.readline()
        # Where the tests themselves ignore SIGHUP (nohup), so does the server.
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        s.process.send_signal(signal.SIGTERM if ignored else signal.SIGHUP)
        events = r.read().decode().split("\n\n")
        assert json.loads(events[-3][6:])["error"]["code"] == 503 and events[-2:] == ["data: [DONE]", ""], events[-3:]
        assert s.process.wait(20) == 0
        connection.close()


def test_a_full_spill_disk_stops_admission_and_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        tight = ["--max-model-len", "256", "--kv-cache-memory-bytes", "9M", "--kv-spill-dir", folder]
        # No file may grow beyond a few blocks: writes fail with EFBIG, as they do with ENOSPC on a full disk.
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, before[1]))
        try:
            s = harness.Server(*tight)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with s:
            asks = [{"prompt": f"{i} " * 20, "max_tokens": 100, "ignore_eos": True} for i in range(4)]
            solo = s.text(**asks[0])
            streams = [s.stream(**a) for a in asks]
            texts = ["".join(e["choices"][0]["text"] for e in harness.events(r)) for _, r in streams]
            for connection, _ in streams:
                connection.close()
            assert texts[0] == solo and all(texts)
            assert s.metric("vllm:num_preemptions_total") > 0 and s.process.poll() is None
            assert any("no request is admitted for now" in line for line in s.log), s.log[-5:]
            until(lambda: s.in_use() == [0, 0, 0], what="idleness")
            assert s.text(**CANARY).startswith(" Paris")


if __name__ == "__main__":
    harness.run_tests(globals())
