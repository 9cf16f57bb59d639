"""A server under everything at once, for minutes: random lengths, policies, sessions, disconnects and bad requests.

  python tests/server/soak.py --binary build/release/bin/pagefold --model MODEL --minutes 30

Every answer that is read to its end must be that of the same request alone. Memory, blocks, threads and descriptors are
sampled; what they must be at the end is checked, the samples go to standard output as JSON lines. The pool is given in
tokens, so that requests are paused whatever the model's size; --pause makes a load that leaves room for other work. Not a
test of its own: CI has no half hour for it.
"""

import argparse
import json
import random
import sys
import threading
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

POLICIES = [{"policy": "full"}, {"policy": "streaming", "budget": 64, "interval": 8}, {"policy": "h2o", "budget": 64},
            {"policy": "snapkv-d", "budget": 96, "interval": 16}, {"policy": "snapkv", "budget": 96},
            {"policy": "triattention", "budget": 200, "protect_prompt": "off"}, {"policy": "quest", "budget": 64},
            {"policy": "rkv", "budget": 64, "interval": 16}, {"policy": "kvcompress", "budget": 160}]
BAD = [b"{:", b"", b'{"prompt":7}', b'{"prompt":"x","max_tokens":-1}', b'{"prompt":"x","kv":{"policy":"none"}}',
       b'{"prompt":"x","n":100000}', b'{"prompt":"\xff"}', b"[" * 50000, b'{"prompt":"x","kv":{"keep":"9:1"}}']
WORDS = "river stone blue seven window light running garden paper bread winter song market old tree".split()


class Soak:
    def __init__(self, server, pause):
        self.server, self.pause = server, pause
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.done = {"answers": 0, "left": 0, "refused": 0, "turns": 0, "busy": 0}
        self.faults = []
        self.pool = [self.request(i) for i in range(36)]
        self.solo = [self.ask(r) for r in self.pool]
        self.warm()

    def request(self, i):
        dice = random.Random(i)
        text = " ".join(dice.choice(WORDS) for _ in range(int(200 ** dice.random())))
        kv = POLICIES[i % len(POLICIES)]
        return {"prompt": text, "max_tokens": dice.randint(1, 60), "ignore_eos": True, "kv": kv,
                "temperature": i % 2 * 0.8, "seed": i}

    def ask(self, request):
        status, answer = self.server.post("/v1/completions", request, timeout=300)
        return answer["choices"][0]["text"] if status == 200 else status

    def warm(self):
        """The largest steps there can be: what a step works in is taken when it is first needed, and a load that gets there
        by chance in minute 20 would look like a leak."""
        for length, kv in [(n, kv) for n in (64, 130, 600) for kv in (POLICIES[0], POLICIES[2], POLICIES[8])]:
            asks = [{"prompt": [5 + (i + 7 * j) % 977 for j in range(length)], "max_tokens": 8, "ignore_eos": True, "kv": kv}
                    for i in range(8 if length < 600 else 2)]
            threads = [threading.Thread(target=self.ask, args=(a,)) for a in asks]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    def count(self, what):
        with self.lock:
            self.done[what] += 1

    def client(self, seed):
        dice = random.Random(seed)
        while not self.stop.is_set():
            try:
                self.one(dice)
                self.stop.wait(dice.random() * self.pause)
            except Exception as e:  # reported at the end
                self.faults.append(repr(e))
                if len(self.faults) > 20:
                    return

    def one(self, dice):
        kind = dice.random()
        if kind < 0.1:
            status, _, _ = self.server.request("POST", "/v1/completions", dice.choice(BAD), timeout=60)
            assert status == 400, status
            return self.count("refused")
        if kind < 0.3:  # leaves before, while or after something comes
            connection, response = self.server.stream(dice.choice(WORDS), max_tokens=500, ignore_eos=True)
            for _ in range(dice.randint(0, 5)):
                response.readline()
            connection.close()
            return self.count("left")
        if kind < 0.4:
            status, answer = self.server.post("/v1/completions", {
                "prompt": dice.choice(WORDS) * dice.randint(1, 40), "max_tokens": 8, "temperature": 0,
                "kv": dice.choice(POLICIES) | {"session": f"talk {dice.randrange(40)}", "elastic": True}}, timeout=300)
            assert status in (200, 429), answer
            return self.count("turns")
        i = dice.randrange(len(self.pool))
        got = self.ask(self.pool[i])
        if got == 429:
            return self.count("busy")
        assert got == self.solo[i], ("another answer", self.pool[i], got, self.solo[i])
        self.count("answers")

    def sample(self, start):
        s = self.server
        return {"s": round(time.monotonic() - start), "rss_kib": s.resident_kib(), "threads": s.threads(),
                "kv_kib": round(s.metric("pagefold_kv_resident_bytes") / 1024),
                "fds": s.descriptors(), "blocks": s.metric("pagefold_kv_blocks_used"),
                "cached": s.metric("pagefold_kv_blocks_cached"), "sessions": s.metric("pagefold_sessions"),
                "pauses": s.metric("vllm:num_preemptions_total"),
                "lowered": s.metric("pagefold_kv_budgets_lowered_total")} | self.done

    def run(self, minutes, clients):
        start = time.monotonic()
        idle = self.sample(start)
        print(json.dumps(idle), flush=True)
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(clients)]
        for t in threads:
            t.start()
        samples = []
        while time.monotonic() - start < minutes * 60 and any(t.is_alive() for t in threads):
            self.stop.wait(10)
            samples.append(self.sample(start))
            print(json.dumps(samples[-1]), flush=True)
        self.stop.set()
        for t in threads:
            t.join(300)
        harness.until(lambda: self.server.metric("vllm:num_requests_running") == 0, 60, "idleness")
        harness.until(lambda: self.server.metric("pagefold_kv_blocks_used") ==
                      self.server.metric("pagefold_session_blocks"), 60, "the return of the blocks")
        end = self.sample(start)
        print(json.dumps(end), flush=True)
        assert not self.faults, self.faults[:5]
        assert end["threads"] <= idle["threads"] and end["fds"] <= idle["fds"] + 1, (idle, end)
        # What the pool uses comes and goes with the load: it is bounded, and none of a leak's business.
        settled = [x["rss_kib"] - x["kv_kib"] for x in samples if x["s"] >= min(300, minutes * 30)]
        growth = median(settled[-6:]) / median(settled[:6]) - 1
        print(json.dumps({"growth": round(growth, 4), "kib": [median(settled[:6]), median(settled[-6:])],
                          "done": self.done}), flush=True)
        assert growth < 0.01, growth
        assert self.done["answers"] and self.done["turns"] and end["pauses"], self.done


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--binary", default=harness.BINARY)
    args.add_argument("--model", default=harness.MODEL)
    args.add_argument("--minutes", type=float, default=5)
    args.add_argument("--clients", type=int, default=12)
    args.add_argument("--pause", type=float, default=0, help="seconds between two requests of a client, at most")
    args.add_argument("--pool-tokens", type=int, default=1056)
    args = args.parse_args()
    harness.BINARY, harness.MODEL = args.binary, args.model
    common = ["--max-model-len", "640", "--max-num-seqs", "8", "--kv-session-ttl", "20", "--prefix-cache-ttl", "20"]
    with harness.Server(*common, "--kv-cache-memory-bytes", "256M") as roomy:
        block = roomy.complete("x", max_tokens=1)["usage"]["kv"]["bytes"]  # one of every table
    with harness.Server(*common, "--kv-cache-memory-bytes", str(int(block * args.pool_tokens / 16))) as server:
        Soak(server, args.pause).run(args.minutes, args.clients)


if __name__ == "__main__":
    main()
