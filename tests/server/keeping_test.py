"""kv.keep from the outside: what compression keeps of a conversation, and what usage says of it."""

import concurrent.futures
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

SMALL = ["--max-model-len", "1024", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "256M"]
SYSTEM = "You are a patient clerk of the harbour office. " + " ".join(
    f"Rule {i}: ships of class {i} pay {i * 31 % 97} crowns." for i in range(8))
MESSAGES = [{"role": "system", "content": SYSTEM},
            {"role": "user", "content": "The ships of the old harbour and their crews, " * 9},
            {"role": "assistant", "content": "I see."},
            {"role": "user", "content": "What does class 7 pay?"}]
KV = {"policy": "streaming", "budget": 64, "interval": 8}


def chat(server, kv, messages=MESSAGES, **more):
    status, answer = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 34,
                                                          "ignore_eos": True, "kv": kv} | more)
    assert status == 200, answer
    return answer


def tokens(server, messages):
    return server.post("/tokenize", {"messages": messages, "add_generation_prompt": False})[1]["tokens"]


def test_roles_and_messages_are_kept():
    with harness.Server(*SMALL) as s:
        system = len(tokens(s, MESSAGES[:1]))
        for kv, want in [(KV, system), (KV | {"keep": "none"}, 0), (KV | {"keep": ["system", "tools"]}, system),
                         (KV | {"keep": [0]}, system), (KV | {"keep": f"0:{system}"}, system),
                         (KV | {"keep": [[0, 5], [3, 9]]}, 9),
                         (KV | {"keep": "user,system"}, system + len(tokens(s, MESSAGES)) - len(tokens(s, MESSAGES[:3])) +
                          len(tokens(s, MESSAGES[:2])) - system)]:
            used = chat(s, kv)["usage"]["kv"]
            assert used["pinned_tokens"] == want, (kv, want, used)
            if want < 200:
                assert used["compactions"] > 2 and want + 64 <= used["max_head"] <= 64 + 8 + want, used
        # Under every policy; the answer with the system message kept is the same alone and shared.
        for policy in ("h2o", "kvcompress"):
            kv = {"policy": policy, "budget": 160}
            first, second = chat(s, kv), chat(s, kv)
            assert first["usage"]["kv"]["pinned_tokens"] == system, (policy, first["usage"])
            assert first["choices"] == second["choices"], policy
            assert first["usage"]["kv"]["kept_tokens"] >= system, policy
        # Tools are told in the system message where the template knows none.
        tool = {"type": "function", "function": {"name": "moor", "parameters": {"type": "object"}}}
        with_tools = chat(s, KV, tools=[tool])["usage"]["kv"]["pinned_tokens"]
        assert with_tools > system + 40, with_tools
        assert chat(s, KV, tools=[tool], messages=MESSAGES[1:])["usage"]["kv"]["pinned_tokens"] > 40


def test_errors_name_the_field():
    with harness.Server(*SMALL, "--kv-keep", "none") as s:
        assert chat(s, KV)["usage"]["kv"]["pinned_tokens"] == 0
        for keep, says in [("sytem", "none of system, tools"), ([4], "there is no message 4"),
                           ("0:5000", "beyond the prompt"), ("7:3", "span BEGIN:END"), ([[1, 2, 3]], "a span [BEGIN, END]"),
                           ([None], "entry 0"), ({"roles": 1}, "got object"), ("none,system", "stands alone")]:
            status, answer = s.post("/v1/chat/completions", {"messages": MESSAGES, "kv": KV | {"keep": keep}})
            assert status == 400 and answer["error"]["param"] == "kv.keep", (keep, answer)
            assert says in answer["error"]["message"] and answer["error"]["message"].count("kv.keep") == 1, answer
        status, answer = s.post("/v1/completions", {"prompt": "x", "kv": KV | {"keep": "system"}})
        assert status == 400 and "need" in answer["error"]["message"], answer
        status, answer = s.post("/v1/completions", {"prompt": "x", "kv": KV | {"keep": "0:9"}})
        assert status == 400 and "beyond the prompt" in answer["error"]["message"], answer
        # What is kept counts: a prompt that is kept whole may not fit although its budget would.
        status, answer = s.post("/v1/completions", {"prompt": "a b c d", "kv": {"policy": "streaming", "budget": 2}})
        assert status == 400 and "always kept" in answer["error"]["message"], answer


def turn(server, messages, kv, **more):
    """One turn of a conversation; the answer is appended to it."""
    answer = chat(server, kv, messages, **({"max_tokens": 20, "ignore_eos": False} | more))
    return answer, messages + [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}]


def test_a_session_reads_only_what_is_new():
    with harness.Server(*SMALL) as s:
        for kv in (KV, {"policy": "h2o", "budget": 96}):
            messages, read = MESSAGES, 0
            for i in range(2):
                answer, messages = turn(s, messages, kv | {"session": "talk"}, cache_salt="salt")
                usage = answer["usage"]
                if i == 0:
                    assert usage["kv"]["session"] != "continued", usage
                else:
                    assert usage["kv"]["session"] == "continued", usage
                    assert usage["prompt_tokens_details"]["cached_tokens"] == read, (read, usage)
                read = usage["prompt_tokens"] + usage["completion_tokens"] - 1
                messages = messages + [{"role": "user", "content": f"And class {i}?"}]
            assert s.metric("pagefold_sessions") == 1
        assert s.metric("pagefold_session_blocks") == s.metric("pagefold_kv_blocks_used") > 0
        # What differs is read anew, with the answer of a server that knows nothing.
        messages[1] = {"role": "user", "content": "Something else."}
        answer, _ = turn(s, messages, {"policy": "h2o", "budget": 96, "session": "talk"}, cache_salt="salt")
        assert "differs from the conversation at token" in answer["usage"]["kv"]["session"], answer["usage"]
        alone, _ = turn(s, messages, {"policy": "h2o", "budget": 96}, cache_salt="other")
        assert alone["choices"] == answer["choices"] and alone["usage"]["kv"]["session"] is None
        for more in [{"n": 2}] + [{"kv": {"session": x}} for x in ("x" * 300, "x" * 5000, "", True, ["x"], 7)]:
            status, answer = s.post("/v1/chat/completions", {"messages": MESSAGES, "kv": {"session": "x"}} | more)
            assert status == 400 and answer["error"]["param"] == "kv.session", answer


def test_a_stop_string_leaves_what_the_client_saw():
    with harness.Server(*SMALL) as s:
        for kv in ({"policy": "full"}, KV, {"policy": "h2o", "budget": 96}):
            whole, _ = turn(s, MESSAGES, kv, max_tokens=24, ignore_eos=True)
            words = whole["choices"][0]["message"]["content"].split(" ")
            stop = " " + words[6] + " " + words[7]
            for stream in (False, True):
                named = kv | {"session": f"talk {stream}"}
                if stream:  # read slowly or not: the same is kept
                    c = s.socket()
                    c.sendall(harness.raw_post("/v1/chat/completions", {
                        "messages": MESSAGES, "temperature": 0, "max_tokens": 24, "ignore_eos": True, "kv": named,
                        "stop": stop, "stream": True}))
                    while b"[DONE]" not in c.recv(65536):
                        pass
                    c.close()
                    messages = cut
                else:
                    answer, cut = turn(s, MESSAGES, named, max_tokens=24, ignore_eos=True, stop=stop)
                    assert answer["choices"][0]["finish_reason"] == "stop", answer
                    assert cut[-1]["content"] == whole["choices"][0]["message"]["content"].split(stop)[0], (cut, whole)
                    messages = cut
                # The end of the cut message is new, too.
                second, _ = turn(s, messages + [{"role": "user", "content": "And class 1?"}], named)
                usage = second["usage"]
                assert usage["kv"]["session"] == "continued", usage
                read = answer["usage"]["prompt_tokens"]
                assert read + 3 <= usage["prompt_tokens_details"]["cached_tokens"] <= read + 12, (answer["usage"], usage)
                texts = second["choices"] if not stream else texts
                assert second["choices"] == texts


def test_an_elastic_request_gives_way():
    # Ten blocks a table: two that want 160 tokens each do not fit, unless one needs less.
    ask = {"prompt": "Once upon a time", "max_tokens": 120, "ignore_eos": True, "temperature": 0}
    kv = {"policy": "streaming", "budget": 112, "interval": 8, "elastic": True}
    with harness.Server("--max-model-len", "160", "--kv-cache-memory-bytes", str(90 * 10 * 4096)) as s:
        with concurrent.futures.ThreadPoolExecutor(2) as crowd:
            got = list(crowd.map(lambda _: s.post("/v1/completions", ask | {"kv": kv}), range(2)))
        assert [status for status, _ in got] == [200, 200]
        assert any(a["usage"]["kv"]["elastic"] and a["usage"]["kv"]["budget"] < 112 for _, a in got), got
        assert s.metric("pagefold_kv_budgets_lowered_total") > 0
        assert s.metric("vllm:num_preemptions_total") == 0


if __name__ == "__main__":
    harness.run_tests(globals())
