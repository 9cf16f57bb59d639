"""pagefold bench: the figures of one run agree with each other, and a server is driven as it should be."""

import json
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))
import harness  # noqa: E402


def bench(*options):
    out = subprocess.run([harness.BINARY, "bench", *options, "--log-level", "error"], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_stages_add_up_to_the_step():
    harness.need_model()
    with tempfile.TemporaryDirectory() as folder:
        report = bench(harness.MODEL, "--contexts", "64", "--batches", "1,2", "--prompt-tokens", "32", "-n", "160", "--repeat", "3",
                       "--kv-policy", "full,streaming", "--kv-budget", "48", "--json", "-o", f"{folder}/r")
        assert json.loads(Path(folder, "r.json").read_text()) == report
        assert "<svg" in Path(folder, "r.html").read_text()
    assert report["machine"]["read_gb_per_s"] > 0.5
    steps = [r for r in report["rows"] if r["test"] != "answer"]
    assert [(r["test"], r["batch"], r["context"]) for r in steps] == [
        ("decode", 1, 64), ("decode", 2, 64), ("prefill", 1, 0), ("prefill", 1, 64)]
    for row in steps:
        assert abs(sum(s["ms"] for s in row["stages"]) - row["ms"]) < 1e-6 * row["ms"] + 1e-9
        assert all(s["ms"] >= 0 for s in row["stages"])
        assert row["tokens_per_s"] * row["ms"] / 1e3 / row["batch"] / row["rows"] - 1 < 1e-6
    # 30 layers x 3 heads x 65 slots x (64 + 64) x 2 bytes; two sequences read twice that.
    attention = [next(s for s in r["stages"] if s["stage"] == "attention")["bytes"] for r in steps[:2]]
    assert attention == [30 * 3 * 65 * 256, 2 * 30 * 3 * 65 * 256], attention
    full, small = [r for r in report["rows"] if r["test"] == "answer"]
    assert full["policy"] == "full" and small["policy"] == "streaming"
    assert small["kv_bytes"] < full["kv_bytes"] and small["compactions"] > 0


def test_drives_servers_with_the_same_load():
    harness.need_model()
    with harness.Server("--log-level", "warn", "--max-model-len", "512", "--kv-cache-memory-bytes", "50M") as server:
        report = bench("--serve", f"one={server.url}", "--serve", f"two={server.url}/v1", "--rates", "0,50", "--requests", "4",
                       "--prompt-words", "20", "-n", "12", "--json")
    rows = report["rows"]
    assert [(r["server"], r["rate"]) for r in rows] == [("one", 0), ("one", 50), ("two", 0), ("two", 50)]
    for r in rows:
        assert r["failed"] == 0 and r["first_error"] is None
        assert r["completion_tokens"] == 4 * 12
        assert r["prompt_tokens"] == rows[0]["prompt_tokens"]
        assert 0 < r["ttft_ms"]["p50"] <= r["e2e_ms"]["p50"]
        assert r["kv_peak_bytes"] > 0


def refused(*options):
    out = subprocess.run([harness.BINARY, "bench", *options], capture_output=True, text=True, timeout=60)
    assert out.returncode in (1, 2) and out.stdout == "", (options, out)
    return out.stderr


def test_refuses_wrong_use():
    for options, word in ((["--serve", "ftp://x"], "http://"), (["--batches", "0"], "batches"),
                          (["--serve", "http://127.0.0.1:1"], "127.0.0.1:1"), (["--rates", "1e-9", "--serve", "http://x"], "0.001")):
        assert word in refused(*options), options


def test_refuses_before_it_measures():
    """Nothing is timed first: the log would say so."""
    harness.need_model()
    for options, word in ((["--kv-policy", "full,h3o"], "unknown policy"), (["--kv-policy", "oracle"], "oracle"),
                          (["--kv-policy", "h2o", "--kv-budget", "abc"], "kv.budget"), (["--kv-policy", "h2o", "--kv-budget", "0"], "kv.budget"),
                          (["--kv-cache-dtype", "auto,fp3"], "fp3"), (["--contexts", "64,100000"], "--contexts"),
                          (["--contexts", "64", "--kv-policy", "full", "-n", "100000"], "--max-tokens"),
                          (["--contexts", "4M", "--batches", "512", "--allow-long-context"], "--batches or --contexts")):
        error = refused(harness.MODEL, *options)
        assert word in error and "bandwidth" not in error, (options, error)


class Peer:
    """A server of one canned answer to everything but the list of models."""

    def __init__(self, answer, models=b'{"data": [{"id": "m"}]}'):
        self.answers = {"models": self.whole(models), "other": answer}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    @staticmethod
    def whole(body, status=b"200 OK"):
        return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(1 << 16)
                answer = self.answers["models" if b"/v1/models" in request else "other"]
                if answer is None:  # never answers
                    connection.recv(1)
                else:
                    connection.sendall(answer)

    def close(self):
        self.listener.close()


def test_servers_that_are_none():
    event = b'data: {"choices": [{"text": "x"}]}\n\n'
    for models, answer, word in (
            (b"<html>", b"", "lists no model"), (b'{"data": []}', b"", "lists no model"), (b"[]", b"", "lists no model"),
            (None, Peer.whole(b'{"choices": [{"text": "x"}]}'), "no stream of events"), (None, Peer.whole(b""), "no stream of events"),
            (None, Peer.whole(b"data: {\n\n"), "JSON"), (None, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + event, "reading the body"),
            (None, Peer.whole(b'data: {"error": {"message": "out of luck"}}\n\n'), "out of luck"), (None, b"nonsense\r\n\r\n", "reply"),
            (None, Peer.whole(b'{"error": "no such model"}', b"404 Not Found"), "404: no such model"), (None, b"", "reply"),
            (None, None, "not done in time")):
        peer = Peer(answer, *([models] if models else []))
        error = refused("--serve", f"peer={peer.url}", "--timeout", "0.5")
        peer.close()
        assert word in error and ("peer" in error or "127.0.0.1" in error), (models, answer, error)


def test_counts_that_are_none_do_no_harm():
    usage = b'data: {"usage": {"prompt_tokens": -5, "completion_tokens": 9223372036854775807, "kv": {"peak_bytes": -1}}}\n\n'
    peer = Peer(Peer.whole(b'data: {"choices": [{"text": "x"}]}\n\n' + usage))
    report = bench("--serve", peer.url, "--requests", "2", "--rates", "0", "--json")
    peer.close()
    (row,) = report["rows"]
    assert row["failed"] == 0 and row["prompt_tokens"] == 0 and row["kv_peak_bytes"] is None
    assert row["completion_tokens"] == 2 * 2**40


def test_two_servers_of_one_name():
    peer = Peer(b"")
    assert "two servers are called" in refused("--serve", f"a={peer.url}", "--serve", f"a={peer.url}/")
    peer.close()


if __name__ == "__main__":
    harness.run_tests(globals())
