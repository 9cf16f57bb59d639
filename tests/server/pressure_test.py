"""Faults of servers that run short (D01 to D05, D07, D17, D18, D21), and many requests on a small pool.

Short by default. PAGEFOLD_LONG_TESTS=1 sends the full 1,000 requests (or PAGEFOLD_LONG_REQUESTS):
  PAGEFOLD_LONG_TESTS=1 python tests/server/pressure_test.py --model MODEL test_many_requests_on_a_pool_for_four
"""

import concurrent.futures
import os
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from harness import until  # noqa: E402

LONG = os.environ.get("PAGEFOLD_LONG_TESTS", "") not in ("", "0")
MANY = int(os.environ.get("PAGEFOLD_LONG_REQUESTS", "1000"))
CANARY = "The capital of France is"
CHAT = "/v1/chat/completions"
_roomy = None


class Canary:
    """After every test: the same bytes, /health, the same process, and no more blocks than before."""

    def __init__(self, server):
        self.server, self.text = server, server.text(CANARY, max_tokens=8)
        until(lambda: server.in_use() == [0, 0, 0], what="idleness before")

    def check(self):
        s = self.server
        assert s.process.poll() is None, "the server has ended:\n" + "".join(s.log)
        assert s.get("/health")[0] == 200
        until(lambda: s.in_use() == [0, 0, 0], what="idleness")
        assert s.text(CANARY, max_tokens=8) == self.text


def roomy():
    """A server with room for everything: what the others' answers must be."""
    global _roomy
    if _roomy is None:
        _roomy = harness.Server("--max-model-len", "512", "--kv-cache-memory-bytes", "256M", "--max-num-seqs", "16")
    return _roomy


def blocks_of(server, blocks_a_table):
    """Bytes of a pool with so many blocks for every table of the model."""
    kv = server.complete("x", max_tokens=1)["usage"]["kv"]
    return int(kv["bytes"] * blocks_a_table)  # one token takes one block a table


def tokens(server, n):
    text = "the old harbour and its ships lay still in the morning light while the crews slept " * (n // 12 + 1)
    return server.post("/tokenize", {"prompt": text})[1]["tokens"][:n]


def same(got, want):
    for key in ("choices", "usage"):
        a, b = got[key], want[key]
        if key == "usage":  # what it cost may differ: times, copies
            a, b = ({k: v for k, v in u.items() if k in ("prompt_tokens", "completion_tokens", "total_tokens")}
                    | {"kept": u["kv"]["kept_slots"]} for u in (a, b))
        assert a == b, (key, a, b)


def test_d01_d02_pauses_are_counted_named_and_change_nothing():
    asks = [dict(prompt=p, max_tokens=101, ignore_eos=True) for p in ([504, 3575, 282, 4649, 314], [788, 2061, 253, 655, 28])]
    want = [roomy().complete(**a) for a in asks]
    pool = str(blocks_of(roomy(), 10))
    for options in ([], ["--no-enable-prefix-caching", "--kv-spill-dir", "off"]):
        with harness.Server("--max-model-len", "160", "--kv-cache-memory-bytes", pool, *options) as s:
            canary = Canary(s)
            with concurrent.futures.ThreadPoolExecutor(2) as crowd:
                got = list(crowd.map(lambda a: s.complete(**a), asks))
            for g, w in zip(got, want):
                same(g, w)
                assert g["choices"][0]["finish_reason"] == "length" and g["usage"]["completion_tokens"] == 101
            pauses = s.metric("vllm:num_preemptions_total")
            assert pauses >= 1
            named = [line for line in s.log if any(re.search(re.escape(g["id"]) + r"-0: paused for want", line) for g in got)]
            assert len(named) == pauses and all(re.search(r"\d+ tokens .*\d+ of \d+ blocks in use", n) for n in named), named
            canary.check()


def test_many_requests_on_a_pool_for_four():
    """D03 and acceptance 3: requests of 1 to 200 tokens, 8 at a time, a pool for 4 of the longest, compression on and off."""
    n, longest = (MANY, 200) if LONG else (14, 96)
    dice = random.Random(3)
    base = tokens(roomy(), 200)
    # Prompt and answer together have 1 to 200 tokens; one at least is a prompt's.
    totals = [longest] * 4 + [max(2, dice.randint(1, longest)) for _ in range(n - 4)]
    asks = []
    for i, total in enumerate(totals):
        prompt = max(1, min(total - 1, int(total * dice.random() * 0.5)))
        asks.append(dict(prompt=base[i % 40:i % 40 + prompt], max_tokens=total - prompt, ignore_eos=True))
    pool = str(blocks_of(roomy(), 4 * (-(-longest // 16))))
    for kv in ({"policy": "full"}, {"policy": "streaming", "budget": 64, "interval": 8}):
        with harness.Server("--max-model-len", str(longest), "--max-num-seqs", "8", "--kv-cache-memory-bytes", pool,
                            "--max-queued-requests", "16") as s:
            canary = Canary(s)

            def one(ask):
                begin = time.monotonic()
                status, answer = s.post("/v1/completions", ask | {"temperature": 0, "kv": kv})
                return status, answer, time.monotonic() - begin

            with concurrent.futures.ThreadPoolExecutor(8) as crowd:
                answers = list(crowd.map(one, asks))
            if LONG:
                print(kv["policy"], {code: sum(s == code for s, _, _ in answers) for code in {s for s, _, _ in answers}},
                      f"longest {max(took for _, _, took in answers):.1f} s,",
                      f"{s.metric('vllm:num_preemptions_total'):.0f} pauses", flush=True)
            assert {status for status, _, _ in answers} <= {200, 429, 503}
            assert max(took for _, _, took in answers) < 60
            assert sum(status == 200 for status, _, _ in answers) > n / 2
            step = 1 if LONG else 4
            for ask, (status, answer, _) in list(zip(asks, answers))[::step]:
                if status == 200:
                    same(answer, roomy().complete(**ask, kv=kv))
            if kv["policy"] == "full":
                assert s.metric("vllm:num_preemptions_total") > 0
            assert sum(map(len, s.log)) < 5e6
            canary.check()


def test_d04_output_is_always_bounded():
    with harness.Server("--max-model-len", "512", "--kv-cache-memory-bytes", "64M") as s:
        canary = Canary(s)
        answer = s.complete(tokens(s, 500), ignore_eos=True)
        assert answer["choices"][0]["finish_reason"] == "length", answer
        assert answer["usage"]["total_tokens"] == 512, answer["usage"]
        message = [{"role": "user", "content": "ships " * 440}]
        status, answer = s.post(CHAT, {"messages": message, "ignore_eos": True, "temperature": 0})
        assert status == 200 and answer["usage"]["total_tokens"] == 512, answer
        canary.check()


def test_d05_prompts_are_never_cut():
    s = roomy()
    canary = Canary(s)
    for n in (512, 513):
        status, answer = s.post("/v1/completions", {"prompt": tokens(s, n)})
        message = answer["error"]["message"]
        assert status == 400 and str(n) in message and "512" in message, answer
    answer = s.complete(tokens(s, 511))
    assert answer["usage"]["prompt_tokens"] == 511 and answer["usage"]["completion_tokens"] == 1, answer["usage"]
    # Cut where that is asked for: the answer is that of the end alone, and the rest is counted.
    ids = tokens(s, 600)
    for most, left in ((100, 100), (-1, 504)):
        answer = s.complete(ids, max_tokens=8, truncate_prompt_tokens=most)
        assert answer["choices"] == s.complete(ids[-left:], max_tokens=8)["choices"]
        assert answer["usage"]["prompt_tokens"] == left, answer["usage"]
        assert answer["usage"]["prompt_tokens_details"]["dropped_tokens"] == 600 - left, answer["usage"]
    message = [{"role": "user", "content": "ships " * 700}]
    status, answer = s.post(CHAT, {"messages": message, "max_tokens": 4, "truncate_prompt_tokens": 64})
    assert status == 200 and answer["usage"]["prompt_tokens"] == 64, answer
    assert "dropped_tokens" not in s.complete("x", max_tokens=1)["usage"]["prompt_tokens_details"]
    status, answer = s.post("/v1/completions", {"prompt": tokens(s, 500), "max_tokens": 13})
    assert status == 400 and all(n in answer["error"]["message"] for n in ("500", "512", "at most 12")), answer
    canary.check()


def test_d07_freed_blocks_are_room_for_others():
    """256 tokens cut to 64: a quarter and a block a table stay, and who needs what was freed is admitted at once."""
    ids = tokens(roomy(), 256)
    per_table = 20
    pool = str(blocks_of(roomy(), per_table))
    for options in ([], ["--no-enable-prefix-caching"]):
        with harness.Server("--max-model-len", "320", "--kv-cache-memory-bytes", pool, *options) as s:
            canary = Canary(s)
            total = s.metric("pagefold_kv_blocks_total")
            tables = total / per_table
            connection, response = s.stream(ids, max_tokens=60, ignore_eos=True,
                                            kv={"policy": "streaming", "budget": 64, "interval": 8})
            stream = harness.events(response)
            next(stream)
            until(lambda: s.metric("pagefold_compactions_total") >= 1, what="the compaction")
            assert s.metric("pagefold_kv_blocks_used") <= (256 / 16 / 4 + 1) * tables
            before = s.metric("vllm:num_preemptions_total")
            # What was freed: 11 of 16 blocks a table, and the 4 that were free already.
            status, answer = s.post("/v1/completions", {"prompt": ids[::-1][:200], "max_tokens": 4, "temperature": 0})
            assert status == 200, answer
            assert s.metric("vllm:num_requests_running") == 1, "it waited for the first to end"
            assert s.metric("vllm:num_preemptions_total") == before == 0
            assert sum(1 for _ in stream) > 0
            connection.close()
            canary.check()


def test_d17_d18_d21_absurd_wishes_cost_nothing():
    s = roomy()
    canary = Canary(s)
    resident = s.resident_kib()
    vocab = s.post("/v1/completions", {"prompt": [10 ** 9]})[1]["error"]["message"]
    vocab = int(re.search(r"to (\d+)", vocab).group(1)) + 1
    hi = {"messages": [{"role": "user", "content": "hi"}]}
    deep = "[" * 100_000
    schema = '{"type":"array","items":' * 100_000
    for more in ([{"logit_bias": {str(i): 1}} for i in (-1, vocab, 2 ** 31)] +
                 [{"logit_bias": {"abc": 1}}, {"logit_bias": {"1": None}},
                  {"max_tokens": 10 ** 9}, {"max_tokens": 2 ** 63 - 1}, {"n": 100_000},
                  {"guided_regex": "(" * 100_000}, {"guided_regex": "(" * 100_000 + "a" + ")" * 100_000},
                  {"guided_grammar": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000}]):
        begin = time.monotonic()
        status, answer = s.post(CHAT, hi | more)
        assert status == 400 and answer["error"]["message"], (more, answer)
        assert time.monotonic() - begin < 1.5, more
    for body in (b'{"messages":' + deep.encode(), ('{"messages":[{"role":"user","content":"x"}],"response_format":{"type":'
                 '"json_schema","json_schema":{"name":"x","schema":' + schema).encode()):
        status, answer = s.post(CHAT, body)
        assert status == 400, answer
    # A bias is cut to 100, as its documentation says.
    assert s.post(CHAT, hi | {"max_tokens": 2, "logit_bias": {"1": 1e308}})[0] == 200
    # Depth 100 works or is refused.
    schema = '{"type":"array","items":' * 100 + "true" + "}" * 100
    assert s.post(CHAT, ('{"messages":[{"role":"user","content":"x"}],"max_tokens":3,"guided_json":' + schema + "}").encode())[0] == 400
    assert s.post(CHAT, hi | {"max_tokens": 3, "guided_json": schema})[0] in (200, 400)
    for more in ({"guided_regex": "(" * 100 + "a" + ")" * 100},
                 {"guided_grammar": "root ::= " + "(" * 100 + '"a"' + ")" * 100}):
        status, _ = s.post(CHAT, hi | more | {"max_tokens": 3})
        assert status in (200, 400)
    assert s.resident_kib() - resident < 50 * 1024
    canary.check()


def test_end():
    """The server that was shared by the file."""
    if _roomy is not None:
        _roomy.close()


if __name__ == "__main__":
    harness.run_tests(globals())
