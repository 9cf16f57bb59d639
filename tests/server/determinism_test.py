"""The answer to a request does not depend on its neighbours, on how its prompt is cut, or on the threads."""

import concurrent.futures
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

SMALL = ["--max-model-len", "1024", "--kv-cache-memory-bytes", "512M", "--max-num-seqs", "17"]
STORY = "Once upon a time there was a small robot who wanted to learn how to paint the sea at night. " * 4
ASKS = [
    {"prompt": "The capital of France is", "max_tokens": 24},
    {"prompt": STORY, "max_tokens": 16},
    {"prompt": "My favourite colour", "max_tokens": 24, "temperature": 1.0, "seed": 7},
    {"prompt": STORY + "The robot", "max_tokens": 16, "temperature": 0.9, "top_p": 0.9, "top_k": 40, "seed": 11},
]


def answer(server, ask):
    got = server.complete(ask["prompt"], return_token_ids=True, logprobs=2, ignore_eos=True,
                          **{k: v for k, v in ask.items() if k != "prompt"})
    choice = got["choices"][0]
    # The scores too: equal texts could hide small differences of the numbers.
    return choice["text"], choice["token_ids"], choice["logprobs"]["token_logprobs"]


def crowded(server, asks):
    """The asks among others of different lengths and settings, 16 in all."""
    others = [{"prompt": f"{i} plus {i + 1} is " * (1 + 2 * i), "max_tokens": 8 + i % 5,
               "temperature": 0.5 * (i % 3), "seed": i} for i in range(16 - len(asks))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        running = [pool.submit(answer, server, other) for other in others[:6]]
        wanted = [pool.submit(answer, server, ask) for ask in asks]
        running += [pool.submit(answer, server, other) for other in others[6:]]
        for r in running:
            r.result()
        return [w.result() for w in wanted]


def test_alone_crowded_chunked_threaded():
    want = None
    for threads, chunk in (("1", "512"), ("2", "16"), ("1", "64"), ("2", "512")):
        with harness.Server(*SMALL, "--threads", threads, "--max-num-batched-tokens", chunk) as server:
            alone = [answer(server, ask) for ask in ASKS]
            want = want or alone
            assert len({text for text, _, _ in want}) == len(ASKS)
            for how, got in ("alone", alone), ("crowded", crowded(server, ASKS)):
                for ask, expected, one in zip(ASKS, want, got):
                    assert one == expected, (threads, chunk, how, ask, expected, one)


if __name__ == "__main__":
    harness.run_tests(globals())
