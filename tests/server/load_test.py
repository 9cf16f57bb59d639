"""64 streaming clients at once, a third of which leaves at random: the others lose nothing, the server keeps nothing."""

import random
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

SEED = 20261129
CLIENTS = 64
CANARY = "The capital of France is"
WORDS = "river stone blue seven window light running garden paper bread winter song market old tree".split()


class Client:
    """One prompt of 1 to 1,500 tokens; some leave before, while or after they have read `leaves_after` chunks."""

    def __init__(self, server, index, dice):
        self.server, self.index = server, index
        # One long one: most real prompts are short, and this must end on two busy cores.
        length = 1 if index == 0 else 1500 if index == 1 else int(400 ** dice.random())
        ids = server.post("/tokenize", {"prompt": " ".join(dice.choice(WORDS) for _ in range(length))})[1]["tokens"]
        self.prompt = ids[:length]
        self.max_tokens = dice.randint(3, 8)
        self.leaves_after = dice.randint(0, 4) if index % 3 == 2 else None
        self.text, self.error = None, None

    def solo(self):
        return self.server.text(self.prompt, max_tokens=self.max_tokens, ignore_eos=True)

    def run(self):
        try:
            tokens = 1000 if self.leaves_after is not None and self.index % 2 else self.max_tokens
            room = 1600 - len(self.prompt)
            connection, response = self.server.stream(self.prompt, max_tokens=min(tokens, room), ignore_eos=True)
            text = ""
            if self.leaves_after == 0:
                connection.close()
                return
            for i, event in enumerate(harness.events(response)):
                text += event["choices"][0]["text"]
                if self.leaves_after is not None and i + 1 >= self.leaves_after:
                    connection.close()
                    return
            self.text = text
            connection.close()
        except Exception as e:  # reported by the test's own thread
            self.error = e


def storm(clients):
    threads = [threading.Thread(target=c.run) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a client hangs"


def test_clients_come_and_go():
    dice = random.Random(SEED)
    with harness.Server("--max-model-len", "1664", "--kv-cache-memory-bytes", "1G") as server:
        clients = [Client(server, i, dice) for i in range(CLIENTS)]
        staying = [c for c in clients if c.leaves_after is None]
        assert 40 <= len(staying) < CLIENTS and {len(c.prompt) for c in clients} >= {1, 1500}
        canary = server.text(CANARY, max_tokens=16)
        solo = {c.index: c.solo() for c in staying}
        idle = lambda: server.in_use() == [0, 0, 0]
        harness.until(idle, what="idleness before")
        before = server.threads(), server.descriptors()
        resident = []
        for _ in range(2):
            storm(clients)
            for c in clients:
                assert c.error is None, (c.index, repr(c.error))
            for c in staying:
                assert c.text == solo[c.index], (c.index, len(c.prompt), c.text, solo[c.index])
            harness.until(idle, 2, "the return of blocks and sequences")
            # Not more: the last connection before the storm may still have been closing when they were counted.
            harness.until(lambda: server.threads() <= before[0] and server.descriptors() <= before[1], 5,
                          f"the return of threads and descriptors to {before}")
            resident.append(server.resident_kib())
        assert server.text(CANARY, max_tokens=16) == canary
        assert resident[1] < resident[0] * 1.05 + 16 * 1024, resident  # the second storm found all it needed


if __name__ == "__main__":
    harness.run_tests(globals())
