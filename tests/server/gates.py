"""Speed of serving against its goals, on a machine at rest:

  python tests/server/gates.py --binary build/release/bin/pagefold --model MODEL

1. Time to the first token behind a shared system prompt of 3,000 tokens and a question of 50, cached against cold, for full
   and triattention: at least 10 times faster.
2. Tokens a second of 64 mixed requests sent at once, against `run-batch` on the same requests: at least 90 %.
Prints one JSON object; exits with 1 when a goal is missed. Not a test of its own: shared machines are too noisy.
"""

import argparse
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

OPTIONS = ["--max-model-len", "4096", "--max-num-seqs", "64", "--kv-cache-memory-bytes", "1G"]
KV = {"full": {"policy": "full"}, "triattention": {"policy": "triattention", "protect_prompt": "off", "budget": 1024}}


def words(n, seed):
    dice = random.Random(seed)
    some = "ships harbour quay crown rule class morning crew light water north tide clerk ledger anchor sail".split()
    return " ".join(dice.choice(some) for _ in range(n))


def first_token(server, question, kv, salt):
    messages = [{"role": "system", "content": words(2980, 1)}, {"role": "user", "content": question}]
    begin = time.monotonic()
    status, answer = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 1, "kv": kv,
                                                          "cache_salt": salt})
    took = time.monotonic() - begin
    assert status == 200, answer
    return took, answer["usage"]


def shared_prompt(server):
    out = {}
    for name, kv in KV.items():
        cold = [first_token(server, words(45, i), kv, f"{name} {i}") for i in range(2)]
        warm = [first_token(server, words(45, i + 9), kv, f"{name} 0") for i in range(7)]
        usage = warm[-1][1]
        out[name] = {"prompt_tokens": usage["prompt_tokens"], "cached": usage["prompt_tokens_details"]["cached_tokens"],
                     "cold_ms": round(1e3 * median(t for t, _ in cold)), "cached_ms": round(1e3 * median(t for t, _ in warm), 1)}
        out[name]["times"] = round(out[name]["cold_ms"] / out[name]["cached_ms"], 1)
    return out


def mixed():
    dice = random.Random(5)
    return [{"prompt": words(dice.randint(5, 200), i), "max_tokens": dice.randint(16, 80), "ignore_eos": True, "seed": i,
             "temperature": i % 2 * 0.8} for i in range(64)]


def at_once(server, salt):
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(64) as crowd:
        answers = list(crowd.map(lambda r: server.post("/v1/completions", r | {"cache_salt": salt}), mixed()))
    took = time.monotonic() - begin
    return sum(a["usage"]["completion_tokens"] for _, a in answers) / took


def offline(folder):
    def run(requests):
        lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": r} for i, r in enumerate(requests)]
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        begin = time.monotonic()
        subprocess.run([harness.BINARY, "run-batch", harness.MODEL, "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                        *OPTIONS, "--log-level", "error"], check=True)
        return time.monotonic() - begin
    start = min(run([{"prompt": "x", "max_tokens": 1}]) for _ in range(2))
    took = run(mixed()) - start
    answers = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return sum(a["response"]["body"]["usage"]["completion_tokens"] for a in answers) / took


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--binary", default=harness.BINARY)
    args.add_argument("--model", default=harness.MODEL)
    args = args.parse_args()
    harness.BINARY, harness.MODEL = args.binary, args.model
    with tempfile.TemporaryDirectory() as folder, harness.Server(*OPTIONS) as server:
        out = {"first token": shared_prompt(server)}
        served = [at_once(server, "a")]
        batch = [offline(Path(folder)), offline(Path(folder))]
        served.append(at_once(server, "b"))
    out["tokens/s"] = {"served": [round(x) for x in served], "run-batch": [round(x) for x in batch],
                       "share": round(median(served) / median(batch), 3)}
    print(json.dumps(out))
    good = all(x["times"] >= 10 for x in out["first token"].values()) and out["tokens/s"]["share"] >= 0.9
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
