"""Every policy over a long answer of `generate`: budgets, blocks and usage add up after every compaction.

Short by default. PAGEFOLD_LONG_TESTS=1 asks for 2,000 tokens, and prompts of about 3,000 for the policies that cut the
prompt once; run as a program it then prints what each policy kept as a table:
  PAGEFOLD_LONG_TESTS=1 python tests/server/budgets_test.py --model MODEL
"""

import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402
from kv_checks import KEEP_ALL, ONCE, POLICIES, check_log, check_usage  # noqa: E402

BUDGET = 256
LONG = os.environ.get("PAGEFOLD_LONG_TESTS", "") not in ("", "0")
TOKENS = 2000 if LONG else 520
ITEMS = 240 if LONG else 60  # of about 13 tokens


def generate(policy):
    prompt = "Once upon a time"
    if policy in ONCE:
        prompt = "".join(f"Item {i} of the list costs {i * 7 % 31} coins. " for i in range(ITEMS))
    command = [harness.BINARY, "generate", "-m", harness.MODEL, "-p", prompt, "--kv-policy", policy, "--kv-budget",
               str(BUDGET), "-n", str(TOKENS), "--ignore-eos", "--stats", "--json", "--log-level", "debug", "--threads",
               "1", "--max-model-len", "8192", "--kv-cache-memory-bytes", "512M"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL)
    assert run.returncode == 0, (policy, run.stderr[-2000:])
    return json.loads(run.stdout), run.stderr.splitlines()


def checked(policy):
    answer, log = generate(policy)
    usage = answer["usage"]
    kv, n_prompt = usage["kv"], usage["prompt_tokens"]
    assert answer["text"].strip() and len(answer["token_ids"]) == usage["completion_tokens"] == TOKENS, policy
    tables, kept = check_usage(policy, usage, BUDGET)
    lines = check_log(log, "", policy, tables, kept, BUDGET)
    # Written = kept + evicted, in slots of all tables; the log's lines add up to the same.
    computed = n_prompt + TOKENS - 1
    assert sum(evicted for _, evicted, *_ in lines) == computed * tables - kv["kept_slots"], (policy, kv)
    if policy in ONCE:
        assert n_prompt > (2800 if LONG else 700), usage
        # One cut, at the prompt's end; every generated token is still there.
        assert list(kept) == [n_prompt] and kv["kept_slots"] == (BUDGET + TOKENS - 1) * tables, (policy, kv)
    elif policy in KEEP_ALL:
        assert not kept and kv["freed_blocks"] == 0 and kv["evicted_tokens"] == 0, (policy, kv)
    else:
        assert len(kept) > 1 and kv["freed_blocks"] > 0, (policy, kv)
    return policy, n_prompt, len(kept), kv, lines


def test_every_policy_keeps_its_budget_to_the_end():
    harness.need_model()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(checked, POLICIES))
    if not LONG:
        return
    print("| policy | prompt | compactions | slots after the last | blocks | kept tokens at the end | evicted | freed blocks |"
          "\n|---|---|---|---|---|---|---|---|")
    for policy, n_prompt, compactions, kv, lines in rows:
        slots, blocks = lines[-1][4:6] if lines else (kv["kept_slots"], kv["blocks"])
        print(f"| {policy} | {n_prompt} | {compactions} | {slots:,} | {blocks:,} | {kv['kept_tokens']:.1f} | "
              f"{kv['evicted_tokens']:.1f} | {kv['freed_blocks']:,} |")


if __name__ == "__main__":
    harness.run_tests(globals())
