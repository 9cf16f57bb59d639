"""pagefold bench: the figures of one run agree with each other, and a server is driven as it should be."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))
import harness  # noqa: E402


def bench(*options):
    out = subprocess.run([harness.BINARY, "bench", *options, "--log-level", "error"], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_stages_add_up_to_the_step():
    harness.need_model()
    with tempfile.TemporaryDirectory() as folder:
        report = bench(harness.MODEL, "--contexts", "64", "--batches", "1,2", "--prompt-tokens", "32", "-n", "160", "--repeat", "3",
                       "--kv-policy", "full,streaming", "--kv-budget", "48", "--json", "-o", f"{folder}/r")
        assert json.loads(Path(folder, "r.json").read_text()) == report
        assert "<svg" in Path(folder, "r.html").read_text()
    assert report["machine"]["read_gb_per_s"] > 0.5
    steps = [r for r in report["rows"] if r["test"] != "answer"]
    assert [(r["test"], r["batch"], r["context"]) for r in steps] == [
        ("decode", 1, 64), ("decode", 2, 64), ("prefill", 1, 0), ("prefill", 1, 64)]
    for row in steps:
        assert abs(sum(s["ms"] for s in row["stages"]) - row["ms"]) < 1e-6 * row["ms"] + 1e-9
        assert all(s["ms"] >= 0 for s in row["stages"])
        assert row["tokens_per_s"] * row["ms"] / 1e3 / row["batch"] / row["rows"] - 1 < 1e-6
    # 30 layers x 3 heads x 65 slots x (64 + 64) x 2 bytes; two sequences read twice that.
    attention = [next(s for s in r["stages"] if s["stage"] == "attention")["bytes"] for r in steps[:2]]
    assert attention == [30 * 3 * 65 * 256, 2 * 30 * 3 * 65 * 256], attention
    full, small = [r for r in report["rows"] if r["test"] == "answer"]
    assert full["policy"] == "full" and small["policy"] == "streaming"
    assert small["kv_bytes"] < full["kv_bytes"] and small["compactions"] > 0


def test_drives_servers_with_the_same_load():
    harness.need_model()
    with harness.Server("--log-level", "warn", "--max-model-len", "512", "--kv-cache-memory-bytes", "50M") as server:
        report = bench("--serve", f"one={server.url}", "--serve", f"two={server.url}/v1", "--rates", "0,50", "--requests", "4",
                       "--prompt-words", "20", "-n", "12", "--json")
    rows = report["rows"]
    assert [(r["server"], r["rate"]) for r in rows] == [("one", 0), ("one", 50), ("two", 0), ("two", 50)]
    for r in rows:
        assert r["failed"] == 0 and r["first_error"] is None
        assert r["completion_tokens"] == 4 * 12
        assert r["prompt_tokens"] == rows[0]["prompt_tokens"]
        assert 0 < r["ttft_ms"]["p50"] <= r["e2e_ms"]["p50"]
        assert r["kv_peak_bytes"] > 0


def test_refuses_wrong_use():
    for options, word in ((["--serve", "ftp://x"], "http://"), (["--batches", "0"], "batches"),
                          (["--serve", "http://127.0.0.1:1"], "127.0.0.1:1")):
        out = subprocess.run([harness.BINARY, "bench", *options], capture_output=True, text=True, timeout=60)
        assert out.returncode != 0 and word in out.stderr, (options, out.stderr)


if __name__ == "__main__":
    harness.run_tests(globals())
