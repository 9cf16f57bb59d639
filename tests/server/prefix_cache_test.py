"""The prefix cache and pressure from the outside: the answers of a server without either, and what /metrics says."""

import concurrent.futures
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

LONG = os.environ.get("PAGEFOLD_LONG_TESTS", "") not in ("", "0")  # a system prompt of 3,000 tokens
SMALL = ["--max-model-len", "4096" if LONG else "1024", "--max-num-seqs", "8"]
POOL = ["--kv-cache-memory-bytes", "1G" if LONG else "256M"]
SYSTEM = "You are a patient clerk of the harbour office. " + " ".join(
    f"Rule {i}: ships of class {i} moor at quay {i * 7 % 13} and pay {i * 31 % 97} crowns." for i in range(124 if LONG else 8))
QUESTIONS = ["Where do ships of class 3 moor?", "What does class 7 pay?", "Name a rule about quays.",
             "Is there a quay 5?", "Who pays the least crowns of all?"]
# Policies by whether they may share the start of a prompt of this length.
SHARING = ["full", "random", "streaming", "tova", "snapkv", "pyramidkv", "adakv", "snapkv-d", "kvcompress", "rkv",
           "triattention", "quest"]
ALONE = ["h2o"] if LONG else ["h2o", "scissorhands"]
WINDOW = {"scissorhands": 400}  # rows before the prompt's end that a policy observes; others: at most 128


def chat(server, question, policy="full", **more):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    kv = {"policy": policy} | ({} if policy in ("full",) else {"budget": 160})
    if policy == "triattention":
        kv |= {"protect_prompt": "off", "budget": 200}  # its newest 128 are always kept
    status, answer = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 24,
                                                          "ignore_eos": True, "kv": kv} | more)
    assert status == 200, answer
    return answer


def text(answer):
    return [c["message"]["content"] for c in answer["choices"]]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def together(function, items):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(function, items))


def test_five_users_of_one_system_prompt():
    """Acceptance 2 of the serving work (scaled down unless LONG): each policy in turn, cold, warm and at once."""
    off = harness.Server(*SMALL, *POOL, "--no-enable-prefix-caching")
    on = harness.Server(*SMALL, *POOL)
    with off, on:
        for policy in SHARING + (["scissorhands"] if LONG else []) + ALONE:
            want = together(lambda q: chat(off, q, policy), QUESTIONS)
            assert all(cached(a) == 0 for a in want)
            cold = chat(on, QUESTIONS[0], policy, cache_salt=policy)
            assert cached(cold) == 0 and text(cold) == text(want[0]), policy
            one_by_one = [chat(on, q, policy, cache_salt=policy) for q in QUESTIONS[:2]]
            at_once = together(lambda q: chat(on, q, policy, cache_salt=policy), QUESTIONS)
            for w, a in zip(want, one_by_one):
                assert text(w) == text(a), policy
            for w, b in zip(want, at_once):
                assert text(w) == text(b), policy
                assert w["usage"]["kv"]["kept_slots"] == b["usage"]["kv"]["kept_slots"]
                kv, n = b["usage"]["kv"], b["usage"]["prompt_tokens"]
                if policy not in ALONE:
                    assert not kv["cache_bypass"] and cached(b) >= n - WINDOW.get(policy, 128) - 32, (policy, b["usage"])
                else:
                    assert kv["cache_bypass"] and cached(b) == 0 and policy in kv["cache_note"], kv
            if policy in ("full", "random", "streaming", "quest"):
                assert all(a["usage"]["kv"]["cache_note"] is None for a in at_once), policy
            if policy == "triattention":
                assert "last 128 rows" in at_once[0]["usage"]["kv"]["cache_note"], at_once[0]["usage"]
        assert on.metric("vllm:prefix_cache_hits_total") > 0.5 * on.metric("vllm:prefix_cache_queries_total")
        assert off.metric("vllm:prefix_cache_queries_total") == 0
        assert on.metric("pagefold_kv_blocks_used") == 0
        assert on.metric("pagefold_kv_blocks_cached") > 0


def test_choices_share_their_prompt():
    with harness.Server(*SMALL, "--kv-cache-memory-bytes", "256M") as s:
        answer = chat(s, QUESTIONS[0], n=4, temperature=1, seed=3)
        n = answer["usage"]["prompt_tokens"]
        # The last block of each is its own.
        assert cached(answer) == 3 * ((n - 1) // 16 * 16), answer["usage"]
        alone = [chat(s, QUESTIONS[0], temperature=1, seed=3 + i, cache_salt=f"salt {i}") for i in range(4)]
        assert text(answer) == [text(a)[0] for a in alone]
        assert [cached(a) for a in alone] == [0, 0, 0, 0]
        status, refused = s.post("/v1/completions", {"prompt": "x", "cache_salt": ""})
        assert status == 400 and refused["error"]["param"] == "cache_salt", refused


def test_a_follow_up_turn_finds_its_prompt_again():
    with harness.Server(*SMALL, "--kv-cache-memory-bytes", "256M") as s:
        # Were the system message kept, as serve has it, it would be nearly all of the prompt: nothing to compact.
        kv = {"policy": "snapkv-d", "budget": 128, "interval": 16, "keep": "none"}
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTIONS[0]}]
        for turn in range(3):
            _, answer = s.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 24,
                                                        "kv": kv})
            if turn > 0:
                assert cached(answer) >= first - 48, answer["usage"]
            else:
                first = answer["usage"]["prompt_tokens"]
            assert answer["usage"]["kv"]["compactions"] > 0, answer["usage"]
            messages += [answer["choices"][0]["message"], {"role": "user", "content": QUESTIONS[turn + 1]}]


def many(server, kv, n=12):
    def one(i):
        answer = server.complete(f"{'The harbour of the old town, ' * (1 + i % 4)}number {i},",
                                 max_tokens=20 + i * 37 % 160, ignore_eos=True, kv=kv)
        return answer["choices"][0]["text"]
    return together(one, range(n))


def test_pauses_change_no_text():
    """Acceptance 3, scaled down, with compression on and off, spilled and computed again."""
    tight = [*SMALL[2:], "--max-model-len", "256", "--kv-cache-memory-bytes", "12M"]
    with harness.Server(*SMALL, "--kv-cache-memory-bytes", "256M", "--no-enable-prefix-caching") as s:
        want = {policy: many(s, kv) for policy, kv in POLICIES.items()}
    with tempfile.TemporaryDirectory() as folder:
        settings = [("--kv-spill-dir", folder), ("--kv-spill-dir", folder, "--no-enable-prefix-caching"),
                    ("--kv-spill-dir", "off"), ("--kv-spill-dir", folder, "--kv-spill-bytes", "1M")]
        for options in settings:
            with harness.Server(*tight, *options) as s:
                for policy, kv in POLICIES.items():
                    assert many(s, kv) == want[policy], (policy, options)
                by = {b: metric_of(s, "pagefold_pauses_total", b) for b in ("spill", "recompute")}
                assert s.metric("vllm:num_preemptions_total") == by["spill"] + by["recompute"] > 0, by
                if options[-1] == "off":
                    assert by["spill"] == 0
                elif options[-1] != "1M":
                    assert by["recompute"] == 0 < by["spill"], by
                    assert s.metric("pagefold_kv_spill_written_bytes_total") > 0
                assert s.metric("pagefold_kv_spill_bytes") == 0
                assert os.listdir(folder) == []
                paused = [line for line in s.log if re.search(r"cmpl-\S+: paused for want of cache blocks", line)]
                assert len(paused) == by["spill"] + by["recompute"], (len(paused), by)


POLICIES = {"full": {"policy": "full"}, "snapkv-d": {"policy": "snapkv-d", "budget": 96, "interval": 16}}


def metric_of(server, name, by):
    for line in server.get("/metrics")[1].splitlines():
        if line.startswith(name + "{") and f'by="{by}"' in line:
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(name)


def test_a_killed_server_leaves_nothing_in_the_spill_folder():
    with tempfile.TemporaryDirectory() as folder:
        tight = ["--max-model-len", "256", "--kv-cache-memory-bytes", "12M", "--kv-spill-dir", folder]
        s = harness.Server(*tight)
        streams = [s.stream(f"Number {i}", max_tokens=200, ignore_eos=True) for i in range(6)]
        harness.until(lambda: metric_of(s, "pagefold_pauses_total", "spill") > 0, 60, "a pause")
        s.process.kill()
        s.process.wait()
        assert os.listdir(folder) == []
        for connection, _ in streams:
            connection.close()
        s.close()


if __name__ == "__main__":
    harness.run_tests(globals())
