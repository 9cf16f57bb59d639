"""`pagefold run-batch`: requests of a JSON Lines file, with the same answers and errors as the server."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
import harness  # noqa: E402

OPTIONS = ["--max-model-len", "512", "--kv-cache-memory-bytes", "128M", "--log-level", "error"]


def run(lines, *options):
    """(exit code, answers, standard error)"""
    harness.need_model()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        source.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
                                    for line in lines))
        done = subprocess.run([harness.BINARY, "run-batch", "-m", harness.MODEL, "-i", source, "-o", target, *OPTIONS,
                               *options], capture_output=True, text=True, timeout=300)
        answers = [json.loads(line) for line in target.read_text().splitlines()] if target.exists() else None
        return done.returncode, answers, done.stdout + done.stderr


def ask(name, body, url="/v1/completions", **more):
    return {"custom_id": name, "method": "POST", "url": url, "body": body} | more


def test_answers_are_the_servers_and_bad_lines_stop_nobody():
    completion = {"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
    chat = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 5, "temperature": 0}
    lines = [ask("a", completion), b"\n", b"not json\n", ask("b", chat, "/v1/chat/completions"), b'{"custom_id": 3}\n',
             ask("c", completion | {"max_tokens": -1}), ask("a", completion), ask("d", completion | {"stream": True}),
             ask("e", completion, "/nothing"), ask("f", completion, method="GET"), b"\xff\xfe\n", b"[]\n",
             ask("g", {"input": "x"}, "/v1/embeddings"), ask("h", {"input": "Hi.", "max_output_tokens": 3}, "/v1/responses"),
             ask("i", completion | {"model": "another"}), b'{"custom_id":"j","url":"/v1/completions","body":' + b"[" * 5000 + b"\n",
             b'{"custom_id":"k","url":"/v1/completions","body":{"prompt":"' + b"x" * (9 << 20) + b'"}}\n',
             json.dumps(ask("last", completion | {"n": 2})).encode()]
    code, answers, log = run(lines, "--json")
    assert code == 0, log
    assert [a["custom_id"] for a in answers] == ["a", None, "b", None, "c", "a", "d", "e", "f", None, None, "g", "h", "i",
                                                 None, None, "last"]
    assert json.loads(log.splitlines()[0]) == {"requests": 17, "completed": 4, "failed": 13}
    assert len({a["id"] for a in answers}) == 17
    with harness.Server(*OPTIONS) as s:
        for answer, url, body in [(answers[0], "/v1/completions", completion), (answers[2], "/v1/chat/completions", chat)]:
            want = s.post(url, body)[1]
            got = answer["response"]["body"]
            assert answer["error"] is None and answer["response"]["status_code"] == 200 and answer["response"]["request_id"]
            assert got["choices"] == want["choices"] and got["usage"]["prompt_tokens"] == want["usage"]["prompt_tokens"]
        code, want = s.post("/v1/completions", completion | {"max_tokens": -1})
        assert answers[4]["response"]["status_code"] == code == 400 and answers[4]["response"]["body"] == want
        assert answers[4]["error"]["message"] == want["error"]["message"]
    for i, word in [(1, "not usable"), (3, "custom_id"), (5, "earlier line"), (6, "stream"), (8, "method"), (9, "not usable"),
                    (10, "object"), (14, "not usable"), (15, "longer than")]:
        assert answers[i]["response"] is None and word in answers[i]["error"]["message"], answers[i]
    for i, status in [(7, 404), (11, 501), (13, 404)]:
        assert answers[i]["response"]["status_code"] == status and answers[i]["error"]["code"] == str(status)
    assert answers[12]["response"]["body"]["object"] == "response"
    assert len(answers[16]["response"]["body"]["choices"]) == 2


def test_more_requests_than_the_queue_holds():
    lines = [ask(str(i), {"prompt": f"{i}", "max_tokens": 2, "temperature": 0}) for i in range(16)]
    code, answers, log = run(lines, "--max-num-seqs", "4", "--max-queued-requests", "1")
    assert code == 0, log
    assert [a["custom_id"] for a in answers] == [str(i) for i in range(16)]
    assert all(a["response"]["status_code"] == 200 for a in answers), [a["error"] for a in answers]


def test_wrong_use():
    harness.need_model()
    base = [harness.BINARY, "run-batch", "-m", harness.MODEL, *OPTIONS]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        for arguments, code, word in [([], 2, "--input-file"), (["-i", path, "-o", path + "o"], 1, "cannot be read"),
                                      (["-i", "/dev/null", "-o", folder], 1, "cannot be written"),
                                      (["-i", __file__, "-o", __file__], 2, "is the input")]:
            done = subprocess.run(base + arguments, capture_output=True, text=True, timeout=60)
            assert done.returncode == code and word in done.stderr, (arguments, done)
        done = subprocess.run(base + ["-i", "-", "-o", "/dev/full"], capture_output=True, text=True, timeout=60,
                              input=json.dumps(ask("a", {"prompt": "x", "max_tokens": 1})) + "\n")
        assert done.returncode == 1 and "takes no more" in done.stderr, done


if __name__ == "__main__":
    harness.run_tests(globals())
