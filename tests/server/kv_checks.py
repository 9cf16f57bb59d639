"""What an answer's usage and the log of its compactions must say, from the rules of docs/kv.md alone."""

import re

BLOCK = 16
POLICIES = ["full", "random", "streaming", "h2o", "scissorhands", "tova", "snapkv", "snapkv-d", "kvcompress", "rkv",
            "triattention", "quest", "pyramidkv", "adakv"]
ONCE = ("snapkv", "pyramidkv", "adakv")
KEEP_ALL = ("full", "quest")
EVERY_TOKEN = ("h2o", "tova", "scissorhands")  # others: every 128 tokens
UNEVEN = ("kvcompress", "pyramidkv", "adakv")  # tables differ in length
COMPACTED = re.compile(r"(\S+): compacted at (\d+) tokens: (\d+) slots evicted, (\d+) moved, (\d+) blocks freed, "
                       r"(\d+) slots in (\d+) blocks kept of a budget of (\d+);")
KEPT_SET = re.compile(r"(\S+): compacted at (\d+) tokens: .* kept set ([0-9a-f]{16})")
BY_LAYER = re.compile(r"slots by layer \[([\d, ]+)\], by KV head \[([\d, ]+)\]")


def simulate(policy, n_prompt, computed, budget):
    """Slots a table after each compaction, {tokens computed: slots}, and those held at the finish."""
    total = budget + (n_prompt if policy == "triattention" else 0)
    interval = 1 if policy in EVERY_TOKEN else 128
    live, last, kept = min(n_prompt, computed), 0, {}
    for n in range(n_prompt, computed + 1):
        live += n > n_prompt
        due = n == n_prompt or (policy not in ONCE and n - last >= interval)
        # The answer's last step ends the sequence before it could compact.
        if policy not in KEEP_ALL and due and live > total and n < computed:
            live = min(total, live - budget // 2) if policy == "scissorhands" else total
            last, kept[n] = n, live
    return kept, live


def check_usage(policy, usage, budget):
    """Returns (tables, kept slots a table after each compaction)."""
    kv = usage["kv"]
    computed = usage["prompt_tokens"] + usage["completion_tokens"] - 1
    kept, held = simulate(policy, usage["prompt_tokens"], computed, budget)
    where = (policy, usage, kept, held)
    assert kv["policy"] == policy and kv["budget"] == (0 if policy in KEEP_ALL else budget), where
    tables = round(kv["kept_slots"] / kv["kept_tokens"])
    assert abs(kv["kept_tokens"] + kv["evicted_tokens"] - computed) < 1e-6, where
    assert kv["compactions"] == len(kept), where
    assert kv["unused"] in ([], ["budget"]) and (policy == "full" or not kv["unused"]), where
    if policy == "kvcompress":  # whole blocks
        assert held * tables - tables * BLOCK < kv["kept_slots"] < held * tables + tables * BLOCK, where
    else:
        assert kv["kept_slots"] == held * tables, where
    if policy in UNEVEN:
        assert kv["kept_slots"] <= kv["blocks"] * BLOCK < kv["kept_slots"] + tables * BLOCK, where
        assert kv["max_head"] > held or not kept, where
    else:
        assert kv["max_head"] == held and kv["blocks"] == -(-held // BLOCK) * tables, where
    assert kv["freed_blocks"] == -(-computed // BLOCK) * tables - kv["blocks"], where
    assert kv["peak_bytes"] >= kv["bytes"] and kv["bytes"] % kv["blocks"] == 0, where
    assert (kv["moved_bytes"] > 0) == (len(kept) > 0), where
    assert (0 < kv["blocks_read"] < kv["blocks_full"]) if policy == "quest" else kv["blocks_full"] == 0, where
    return tables, kept


def check_log(log, name, policy, tables, kept, budget):
    """Each compaction's line: what it left is the budget's total. Returns the lines' numbers."""
    found = [(m, line) for line in log for m in [COMPACTED.search(line)] if m and m.group(1).startswith(name)]
    lines = [[int(x) for x in m.groups()[1:]] for m, _ in found]
    assert [at for at, *_ in lines] == list(kept), (policy, lines, kept)
    for (at, evicted, moved, freed, slots, blocks, total), (_, line) in zip(lines, found):
        where = (policy, line)
        assert evicted > 0, where
        if policy != "scissorhands":  # which drops half a budget at once
            assert total == kept[at] * tables, where
        if policy not in UNEVEN:
            assert slots == kept[at] * tables and blocks == -(-kept[at] // BLOCK) * tables, where
            continue
        layers, heads = ([int(x) for x in part.split(",")] for part in BY_LAYER.search(line).groups())
        assert sum(layers) == sum(heads) == slots and len(layers) * len(heads) == tables, where
        if policy == "kvcompress":  # exactly the budget in whole blocks; a last one may be partly filled
            assert blocks == -(-total // BLOCK) and slots <= blocks * BLOCK < slots + tables * BLOCK, where
            continue
        assert slots == total and slots <= blocks * BLOCK < slots + tables * BLOCK, where
        if policy == "pyramidkv":  # budget x layers for every head; lower layers keep more
            assert heads == [budget * len(layers)] * len(heads), where
            assert layers == sorted(layers, reverse=True) and layers[0] > layers[-1], where
        else:  # budget x KV heads in every layer
            assert layers == [budget * len(heads)] * len(layers), where
    return lines


def kept_sets(log, name):
    """[(tokens computed, digest of the positions kept)] of one answer."""
    found = [m.groups() for m in map(KEPT_SET.search, log) if m and m.group(1).startswith(name)]
    return [(int(at), digest) for _, at, digest in found]
