"""KV types from the outside: bytes, peak memory, saturation, and a conversation that stays sane."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

TABLES, DIM, BLOCK = 90, 64, 16  # of the default model
# Bytes of one token's key or value of one head. int4 keys bring groups of 32; int4 values beside other keys have one scale: 36.
ROW = {"float32": 256, "float16": 128, "bfloat16": 128, "fp8": 64, "fp8_e5m2": 64, "int8": 66, "int4": 40}
PAIRS = [("float32", "auto"), ("bfloat16", "auto"), ("fp8", "auto"), ("fp8_e5m2", "auto"), ("int8", "auto"),
         ("int4", "auto"), ("int8", "int4"), ("float16", "fp8")]
LONG_CHAT = os.environ.get("PAGEFOLD_LONG_CHAT") == "1"
SMALL = ["--max-model-len", "2560", "--kv-cache-memory-bytes", "256M", "--max-num-seqs", "4"]
# Agreement of the top token with bfloat16 KV over the second answer: at least this.
AGREEMENT = {("fp8", "auto"): 0.85, ("fp8_e5m2", "auto"): 0.8, ("int8", "auto"): 0.9, ("int4", "auto"): 0.75, ("int8", "int4"): 0.85}


def generate(*options, timeout=120):
    harness.need_model()
    run = subprocess.run([harness.BINARY, "generate", "-m", harness.MODEL, "--temperature", "0", "--json", *options],
                         capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), run.stderr


def types(k, v):
    return ["--kv-cache-dtype", k, "--kv-cache-dtype-v", v]


def test_bytes_are_those_of_the_formula():
    for k, v, *group in PAIRS + [("int4", "auto", "0"), ("int8", "int4", "32")]:
        answer, log = generate("-p", "The capital of France is", "-n", "24", "--ignore-eos", "--max-model-len", "512",
                               "--kv-cache-memory-bytes", "64M", *types(k, v), *(["--kv-cache-group", *group] if group else []))
        assert "Paris" in answer["text"], (k, v, answer["text"])
        kv = answer["usage"]["kv"]
        rows = (68, 40) if group == ["32"] else (36, 36) if group else (ROW[k], ROW[k]) if v == "auto" else (
            ROW[k], 36 if v == "int4" else ROW[v])
        block = BLOCK * sum(rows)
        assert kv["bytes"] == kv["blocks"] * block and kv["blocks"] == 2 * TABLES, (k, v, kv)
        # Unscaled fp8_e4m3 is worth a warning, once; nothing else is.
        warned = log.count("scale of 1.0")
        assert warned == ("fp8" in (k, v)), (k, v, log)


def peak_anonymous_kib(prompt, *options):
    """Highest RssAnon of a generate process, sampled from the start of its prefill to its end."""
    process = subprocess.Popen([harness.BINARY, "generate", "-m", harness.MODEL, "-f", prompt, "-n", "1", "--json",
                                *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        peak = max(peak, int(found.group(1)) if found else 0)
        time.sleep(0.005)
    answer = json.loads(process.stdout.read())
    assert process.wait() == 0
    return peak, answer["usage"]


def test_peak_memory_falls_with_the_bits():
    """D06. PAGEFOLD_LONG_PROMPT=7500 runs it at full length."""
    harness.need_model()
    tokens = int(os.environ.get("PAGEFOLD_LONG_PROMPT", "2000"))
    peaks, sizes = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("".join(f" {i % 10}" for i in range(tokens // 2)))
        text.flush()
        for kv in ("bfloat16", "int8", "int4"):
            peak, usage = peak_anonymous_kib(text.name, "--kv-cache-dtype", kv, "--max-model-len", "8192",
                                             "--kv-cache-memory-bytes", "512M")
            assert usage["prompt_tokens"] >= tokens * 0.95, usage
            peaks.append(peak)
            sizes.append(usage["kv"]["peak_bytes"] / 1024)
    for a, b in ((0, 1), (1, 2)):
        predicted = sizes[a] - sizes[b]
        assert peaks[a] - peaks[b] >= 0.8 * predicted > 0, (peaks, sizes)


def top_tokens(server, prompt, answer_from):
    """The most likely token at every position of the text after `answer_from` tokens."""
    out = server.complete(prompt, max_tokens=1, prompt_logprobs=1)
    rows = out["choices"][0]["prompt_logprobs"][answer_from:]
    return [max(row.items(), key=lambda item: item[1]["logprob"])[0] for row in rows]


def repeats(text):
    words = text.split()
    grams = [tuple(words[i:i + 8]) for i in range(len(words) - 7)]
    return max((grams.count(g) for g in set(grams)), default=0)


def test_two_turns_stay_sane():
    """D13: the second message of a chat over a long first one, against bfloat16 KV. PAGEFOLD_LONG_CHAT=1: at 2,000 tokens."""
    story = "".join(f"On day {i} the ship passed the island of {name} and took {i * 3 % 17} barrels of water. "
                    for i, name in enumerate(["Ora", "Belis", "Cantor", "Dunmore"] * (23 if LONG_CHAT else 12)))
    first = [{"role": "user", "content": story + "Which islands did the ship pass?"}]
    second = {"role": "user", "content": "Write a short letter home from the captain about the journey."}
    want = None
    for kv in (("bfloat16", "auto"), *AGREEMENT):
        with harness.Server(*SMALL, *types(*kv)) as server:
            status, answer = server.post("/v1/chat/completions",
                                         {"messages": first, "max_tokens": 48, "temperature": 0})
            assert status == 200, answer
            # Everybody goes on from the same first answer.
            talk = first + [{"role": "assistant", "content": "Ora, Belis, Cantor and Dunmore."}, second]
            status, answer = server.post("/v1/chat/completions",
                                         {"messages": talk, "max_tokens": 96, "temperature": 0})
            assert status == 200, answer
            text = answer["choices"][0]["message"]["content"]
            if want is None:
                status, rendered = server.post("/tokenize", {"messages": talk})
                assert status == 200, rendered
                status, said = server.post("/tokenize", {"prompt": text, "add_special_tokens": False})
                prompt, start = rendered["tokens"] + said["tokens"], len(rendered["tokens"])
                assert start > (1800 if LONG_CHAT else 900), start
                plain_repeats = repeats(text)
                want = top_tokens(server, prompt, start)
                assert len(want) > 40, text
                continue
            assert repeats(text) <= max(5, plain_repeats), (kv, text)
            got = top_tokens(server, prompt, start)
            same = sum(a == b for a, b in zip(got, want)) / len(want)
            assert same >= AGREEMENT[kv], (kv, same)
            if LONG_CHAT:
                print(f"{kv}: the same top token {same:.3f}, repeats {repeats(text)}")
            if kv[0] == "fp8":
                assert server.metric("pagefold_kv_saturated_total") == 0
            assert server.in_use() == [0, 0, 0]


if __name__ == "__main__":
    harness.run_tests(globals())
