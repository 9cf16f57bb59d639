"""Compression from the outside: what each policy keeps, frees and reports, by command line and by server."""

import concurrent.futures
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from kv_checks import BLOCK, COMPACTED, ONCE, POLICIES, check_log, check_usage, kept_sets  # noqa: E402

BUDGET = 192
TOKENS = 420  # two compactions of those that compact every 128 tokens
SMALL = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "1G", "--max-num-seqs", "17"]


def generate(*options, timeout=120):
    harness.need_model()
    return subprocess.run([harness.BINARY, "generate", "-m", harness.MODEL, *options], capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL)


def generated(*options):
    run = generate("-p", "Once upon a time", "--ignore-eos", "--temperature", "0", "--json", "--log-level", "debug",
                   "--max-model-len", "2048", "--kv-cache-memory-bytes", "512M", *options)
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["text"].strip() and len(answer["token_ids"]) == answer["usage"]["completion_tokens"]
    return answer, run.stderr.splitlines()


def all_at_once(asks):
    with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
        return [f.result() for f in [pool.submit(ask) for ask in asks]]


def test_every_policy_keeps_its_budget():
    with harness.Server(*SMALL, "--log-level", "debug") as server:
        def ask(policy):
            return server.complete("Once upon a time", max_tokens=TOKENS, ignore_eos=True,
                                   kv={"policy": policy, "budget": BUDGET})
        answers = all_at_once([lambda p=p: ask(p) for p in POLICIES])
        for policy, answer in zip(POLICIES, answers):
            assert answer["choices"][0]["text"].strip(), policy
            assert answer["usage"]["completion_tokens"] == TOKENS
            tables, kept = check_usage(policy, answer["usage"], BUDGET)
            check_log(server.log, answer["id"], policy, tables, kept, BUDGET)
        assert server.in_use() == [0, 0, 0]


def test_long_prompts_are_cut_once():
    prompt = "".join(f"Item {i} of the list costs {i * 7 % 31} coins. " for i in range(50))
    with harness.Server(*SMALL, "--log-level", "debug") as server:
        answers = all_at_once([lambda p=p: server.complete(prompt, max_tokens=24, ignore_eos=True,
                                                           kv={"policy": p, "budget": BUDGET}) for p in ONCE])
        for policy, answer in zip(ONCE, answers):
            usage = answer["usage"]
            assert usage["prompt_tokens"] > 550, usage  # more than a step's rows
            tables, kept = check_usage(policy, usage, BUDGET)
            assert list(kept) == [usage["prompt_tokens"]]
            check_log(server.log, answer["id"], policy, tables, kept, BUDGET)
            # What was kept of the prompt, and every token since.
            assert usage["kv"]["kept_slots"] == (BUDGET + usage["completion_tokens"] - 1) * tables


def test_a_prompt_larger_than_the_pool():
    prompt = "".join(f"Item {i} of the list costs {i * 7 % 31} coins. " for i in range(110))
    # 23,040 bytes a token: 18 MiB hold 819 tokens, the prompt has more than 1,200.
    pool = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "18M"]
    evict = ["--kv-policy", "snapkv-d", "--kv-budget", "256", "--kv-prefill-evict", "on"]
    with harness.Server(*pool, *evict, "--log-level", "debug") as server:
        answer = server.complete(prompt, max_tokens=8, ignore_eos=True)
        usage = answer["usage"]
        assert usage["prompt_tokens"] > 1200 and answer["choices"][0]["text"], answer
        lines = [m.groups() for m in map(COMPACTED.search, server.log) if m]
        assert [int(line[1]) for line in lines] == [512, 1024, usage["prompt_tokens"]], lines
        # Budget and chunk, to whole blocks.
        assert usage["kv"]["peak_bytes"] <= (256 + 512) * 23040, usage
        status, refused = server.post("/v1/completions", {"prompt": prompt, "kv": {"prefill_evict": "off"}})
        assert status == 400 and "cache blocks" in refused["error"]["message"], refused
        assert server.in_use() == [0, 0, 0]


def test_calibrations_are_kept_for_the_model_and_by_name():
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"PAGEFOLD_CACHE": folder}

        def run(*args):
            done = subprocess.run([harness.BINARY, *args], capture_output=True, text=True, timeout=120, env=env,
                                  stdin=subprocess.DEVNULL)
            assert done.returncode == 0, done
            return done
        harness.need_model()
        small = ["-m", harness.MODEL, "--max-model-len", "512", "--kv-cache-memory-bytes", "64M"]
        ask = ["generate", *small, "-p", "Once upon a time", "-n", "2", "--kv-policy", "triattention", "--kv-budget", "192"]
        assert "calibration=auto is" not in run(*ask).stderr
        made = json.loads(run("calibrate", *small, "-n", "64", "--json").stdout)
        assert re.fullmatch(r"[0-9a-f]{16}\.calibration", Path(made["output"]).name), made
        assert f"calibration=auto is {made['output']}" in run(*ask).stderr
        named = json.loads(run("calibrate", *small, "-n", "64", "-o", "own-text", "--json").stdout)
        assert Path(named["output"]) == Path(folder) / "calibrations" / "own-text.calibration"
        ask[ask.index("triattention")] = "triattention:calibration=own-text"
        run(*ask, "--kv-calibration", "own-text")


def test_generate_reports_the_same():
    answer, log = generated("--kv-policy", "h2o", "--kv-budget", "64", "-n", "100")
    tables, kept = check_usage("h2o", answer["usage"], 64)
    check_log(log, "", "h2o", tables, kept, 64)


def test_packings():
    n, budget = 110, 48
    blocks = {}
    for packing in "fill", "order", "block", "off":
        answer, _ = generated("--kv-policy", "streaming", "--kv-budget", str(budget), "--kv-interval", "16",
                              "--kv-packing", packing, "-n", str(n))
        kv = answer["usage"]["kv"]
        computed = answer["usage"]["prompt_tokens"] + n - 1
        tables = round(kv["kept_slots"] / kv["kept_tokens"])
        blocks[packing] = kv["blocks"]
        assert kv["freed_blocks"] == -(-computed // BLOCK) * tables - kv["blocks"], (packing, kv)
        assert budget <= kv["kept_tokens"] < budget + 16 + BLOCK, (packing, kv)
        assert (kv["moved_bytes"] > 0) == (packing in ("fill", "order")), (packing, kv)
    assert blocks["fill"] == blocks["order"] <= blocks["block"] <= blocks["off"], blocks


WRONG = [
    ({"policy": "h20"}, ["unknown policy", "h2o", "snapkv", "triattention"]),
    ({"policy": "h2o", "bugdet": 3}, ["unknown key", "budget", "interval"]),
    ({"policy": "triattention", "budget": 64}, ["64", "always kept", "recent 128"]),
    ({"policy": "h2o", "budget": 0}, ["budget"]),
    ({"policy": "triattention", "calibration": "nope"}, ["nope", "auto", "self"]),
    ({"policy": "h2o", "alloc": "none"}, ["uniform", "pyramid", "adaptive", "global"]),
    ({"policy": "h2o", "packing": "zip"}, ["order", "fill", "block"]),
]


def refused_at_once(command, options, words):
    """Exit code 2, a message with these words, and in less time than loading the model takes."""
    harness.need_model()
    took = []
    for _ in range(3):  # a busy machine may be slow once
        begin = time.monotonic()
        run = subprocess.run([harness.BINARY, command, "-m", harness.MODEL, *options], capture_output=True, text=True,
                             timeout=30, stdin=subprocess.DEVNULL)
        took.append(time.monotonic() - begin)
        assert run.returncode == 2 and run.stdout == "", (command, options, run)
        for word in words:
            assert word in run.stderr, (command, options, word, run.stderr)
        if took[-1] < 1:
            return
    raise AssertionError((command, options, took))


def foreign_calibration(path):
    """Query statistics of a model of 2 layers, 4 heads and 3 bands: the format of calibration.h."""
    name = b"other"
    data = b"PFCAL01\n" + struct.pack("<4IQ", 2, 4, 3, len(name), 99) + name + struct.pack("<3d", 1, .5, .25)
    data += struct.pack("<72f", *[1] * 72)
    digest = 0xcbf29ce484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001b3 % 2 ** 64
    path.write_bytes(data + struct.pack("<Q", digest))


COMMANDS = [("generate", ["-p", "x", "-n", "2"]), ("chat", []), ("serve", ["--port", "0"])]


def test_wrong_options_are_refused_before_the_model_is_loaded():
    for i, (kv, words) in enumerate(WRONG):
        name = ":".join([kv["policy"], ",".join(f"{k}={v}" for k, v in kv.items() if k != "policy")]).rstrip(":")
        command, options = COMMANDS[i % 3]
        refused_at_once(command, [*options, "--kv-policy", name], words)
    for command, options in COMMANDS:
        refused_at_once(command, [*options, "--kv-policy", "h20"], ["known policies", "h2o", "snapkv", "triattention"])
        refused_at_once(command, [*options, "--kv-policy", "oracle"], ["eval", "use one of full, random", "adakv"])
        refused_at_once(command, [*options, "--kv-policy", "random", "--kv-budget", "35"], ["35", "36", "recent 32"])
        refused_at_once(command, [*options, "--kv-budget", "x"], ["kv.budget", "whole number"])
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "other.bin"
            foreign_calibration(other)
            refused_at_once(command, [*options, "--kv-calibration", f"books={other}"],
                            [str(other), "2 layers", "this one has 30"])
    refused_at_once("serve", ["--port", "0", "--kv-policy", "h2o", "--kv-packing", "off"], ["order, fill or block"])
    refused_at_once("serve", ["--port", "0", "--kv-policy", "h2o", "--min-kv-interval", "8"], ["least interval of 8"])
    refused_at_once("serve", ["--port", "0", "--kv-policy", "rkv", "--max-kv-cost", "linear"], ["use one of full"])


def test_wrong_wishes_are_refused():
    with harness.Server(*SMALL) as server:
        for kv, words in WRONG + [({"policy": "h2o", "packing": "off"}, ["order", "fill", "block"]),
                                  ({"policy": "oracle"}, ["eval"]), ({"policy": ["h2o"]}, ["kv"])]:
            begin = time.monotonic()
            status, answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "kv": kv})
            assert status == 400 and time.monotonic() - begin < 1, (kv, status, answer)
            for word in words:
                assert word in answer["error"]["message"], (kv, word, answer)
        assert server.text("The capital of France is", max_tokens=4)


def test_streams_and_metrics():
    names = ["pagefold_compactions_total", "pagefold_kv_evicted_slots_total", "pagefold_kv_moved_slots_total",
             "pagefold_kv_compaction_freed_blocks_total"]
    with harness.Server(*SMALL, "--kv-policy", "streaming", "--kv-budget", "64") as server:
        assert [server.metric(name) for name in names] == [0] * 4
        connection, response = server.stream("Once upon a time", max_tokens=200, ignore_eos=True,
                                             stream_options={"include_usage": True},
                                             kv={"policy": "streaming", "budget": 64, "interval": 32})
        chunks = list(harness.events(response))
        connection.close()
        usage = [c["usage"] for c in chunks if c.get("usage")]
        assert len(usage) == 1, usage
        kv = usage[0]["kv"]
        # At 65 tokens, then each 32 more.
        assert kv["policy"] == "streaming" and kv["compactions"] == len(range(65, 203, 32)), kv
        got = [server.metric(name) for name in names]
        assert got[0] == kv["compactions"] and got[1] > 0 and got[2] > 0 and got[3] > 0, got
        assert got[1] == round(kv["evicted_tokens"] * kv["kept_slots"] / kv["kept_tokens"]), (got, kv)
        # The server's own policy, for a request that names none; its blocks leave the process once it is idle.
        own = server.complete("Once upon a time", max_tokens=220, ignore_eos=True)["usage"]["kv"]
        assert own["policy"] == "streaming" and own["budget"] == 64, own
        assert server.metric(names[0]) == got[0] + own["compactions"]
        harness.until(lambda: server.metric("pagefold_kv_released_bytes_total") > 0, what="release")
        off = server.complete("Once upon a time", max_tokens=20, kv={"policy": "full"})["usage"]["kv"]
        assert off["policy"] == "full" and off["compactions"] == 0, off


def answer_of(server, ask):
    got = server.complete(ask["prompt"], return_token_ids=True, logprobs=1, ignore_eos=True,
                          **{k: v for k, v in ask.items() if k != "prompt"})
    choice, kv = got["choices"][0], got["usage"]["kv"]
    # Not moved_bytes: a prompt found in the prefix cache is copied before it is compacted.
    numbers = {k: kv[k] for k in ("policy", "kept_slots", "blocks", "max_head", "compactions", "freed_blocks",
                                  "blocks_read")}
    # The answer comes after its lines, but a thread reads them.
    harness.until(lambda: len(kept_sets(server.log, got["id"])) == kv["compactions"], what="its log")
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], numbers, kept_sets(server.log, got["id"])


def test_neighbours_change_nothing():
    wishes = [{"policy": p} for p in POLICIES] + [{"policy": "h2o", "alloc": "adaptive", "interval": 8},
                                                  {"policy": "streaming", "reindex": "on", "interval": 16}]
    asks = []
    for i, kv in enumerate(wishes):
        kv = {"budget": 48} | kv
        if kv["policy"] in ("random", "snapkv-d", "kvcompress", "triattention", "rkv"):
            kv |= {"interval": 8, "recent": 8}
        if kv["policy"] == "streaming":
            kv = {"interval": 8} | kv
        if kv["policy"] == "triattention":
            kv["protect_prompt"] = "off"
        asks.append({"prompt": f"{i} is a number. " * (10 + i), "max_tokens": 20, "temperature": i % 2, "seed": i,
                     "kv": kv})
    assert len(asks) == 16
    with harness.Server(*SMALL, "--log-level", "debug") as server:
        alone = [answer_of(server, ask) for ask in asks]
        beside = all_at_once([lambda a=a: answer_of(server, a) for a in asks])
        for ask, one, other in zip(asks, alone, beside):
            assert one == other, (ask, one, other)
        whole = [one[2]["policy"] for one in alone if one[2]["compactions"] == 0]
        assert whole == ["full", "quest"], whole


if __name__ == "__main__":
    harness.run_tests(globals())
