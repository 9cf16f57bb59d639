"""Black-box tests of `pagefold eval` on the default model: small grids, what a user sees, a run that is killed and goes on."""

import json
import os
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PAGEFOLD_BINARY", str(ROOT / "build/release/bin/pagefold"))
MODEL = os.environ.get("PAGEFOLD_TEST_MODEL", "")
TEXT = str(ROOT / "docs/architecture.md")


def run(*words, ok=True):
    done = subprocess.run([BINARY, "eval", *words, "--log-level", "error"], capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == ok, f"{words}: exit {done.returncode}: {done.stderr}"
    return done


class Parts(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href", "action")]


class WrongUse(unittest.TestCase):
    def test_words_that_are_none(self):
        for words, part in ((["guess"], "guess"), ([], "mode"), (["kld", "-m", "x", "--kv-budget", ""], "empty"),
                            (["qa", "--samples", "0"], "--samples")):
            done = run(*words, ok=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_help(self):
        done = subprocess.run([BINARY, "eval", "--help"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0)
        for part in ("perplexity", "state_query", "--kv-policy", "--kv-budget", "--kv-cache-dtype", "--output"):
            self.assertIn(part, done.stdout)


@unittest.skipUnless(MODEL, "PAGEFOLD_TEST_MODEL names the default model")
class DefaultModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def kld(self, *words, **more):
        return run("kld", MODEL, "--data", TEXT, "--prompt-tokens", "64", "--tokens", "128", "--json", *words, **more)

    def test_values_of_a_type_of_their_own(self):
        """The reference is float32 throughout: what int4 values lose shows, and nothing that is refused leaves settings."""
        out = str(self.folder / "v")
        common = ["--samples", "1", "--kv-policy", "full", "-o", out]
        refused = run("kld", MODEL, "--data", TEXT, "--prompt-tokens", "64", "--tokens", "1000000", *common, ok=False)
        self.assertIn("tokens", refused.stderr)
        done = self.kld(*common, "--kv-cache-dtype", "float32,int8", "--kv-cache-dtype-v", "int4", "--kv-cache-group", "32")
        rows = {r["kv_cache_dtype"]: r["kld_mean"] for r in json.loads(done.stdout)["rows"]}
        self.assertEqual(set(rows), {"k float32, v int4, groups of 32", "k int8, v int4, groups of 32"})
        for kld in rows.values():
            self.assertGreater(kld, 1e-4)
            self.assertLess(kld, 0.1)
        mass = run("mass", MODEL, "--data", TEXT, "--prompt-tokens", "64", "--tokens", "128", "--samples", "1", "--kv-policy", "streaming",
                   "--kv-budget", "64", "--kv-cache-dtype-v", "int4", "--json")
        self.assertEqual(len(json.loads(mass.stdout)["rows"]), 2)

    def test_order_of_the_bounds(self):
        out = str(self.folder / "k")
        done = self.kld("--samples", "1", "--kv-policy", "oracle,random,streaming", "--kv-budget", "25%,100%", "--kv-interval", "32",
                        "--kv-recent", "16", "-o", out)
        report = json.loads(done.stdout)
        rows = {(r["policy"], r["budget"]): r for r in report["rows"]}
        self.assertEqual(rows["full", None]["kld_mean"], 0)
        for policy in ("oracle", "random", "streaming"):
            self.assertEqual(rows[policy, "100%"]["kld_mean"], 0)
            self.assertEqual(rows[policy, "100%"]["top1"], 1)
            self.assertIsNone(rows[policy, "100%"]["lossless"])
            self.assertEqual(rows[policy, "25%"]["samples"], 1)
            self.assertEqual(rows[policy, "25%"]["never_compacted"], 0)
            self.assertLess(rows[policy, "25%"]["kv_bytes"], 0.6 * rows["full", None]["kv_bytes"])
        at = {policy: rows[policy, "25%"]["kld_mean"] for policy in ("oracle", "random", "streaming")}
        self.assertEqual(min(at, key=at.get), "oracle")
        self.assertGreater(at["random"], 0.7 * max(at.values()))
        self.assertEqual(json.loads(Path(out + ".json").read_text()), report)
        html = Path(out + ".html").read_text()
        parts = Parts(html)
        self.assertIn("svg", parts.tags)
        self.assertNotIn("script", parts.tags)
        self.assertEqual(parts.links, [])
        self.assertIn("streaming", html)

    def test_a_killed_run_goes_on(self):
        words = ["--samples", "2", "--kv-policy", "random", "--kv-budget", "25%", "--kv-recent", "16"]
        whole = self.kld(*words).stdout
        out = self.folder / "k"
        lines = self.folder / "k.jsonl"
        process = subprocess.Popen([BINARY, "eval", "kld", MODEL, "--data", TEXT, "--prompt-tokens", "64", "--tokens", "128", *words, "-o", str(out)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:  # the full cache is done, the other cell is not
            if "is done" in line:
                break
        process.kill()
        process.communicate()
        before = lines.read_bytes()
        self.assertGreaterEqual(before.count(b"\n"), 3)
        again = self.kld(*words, "-o", str(out)).stdout
        self.assertEqual(again, whole)
        self.assertTrue(lines.read_bytes().startswith(before[:before.rindex(b"\n") + 1]))
        done = self.kld(*words, "--seed", "5", "-o", str(out), ok=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("seed was 0 there and is 5 now", done.stderr)

    def test_needles(self):
        report = json.loads(run("needle", MODEL, "--samples", "3", "--contexts", "256", "--kv-policy", "streaming", "--kv-budget", "64",
                                "--json").stdout)
        full, cut = report["rows"]
        self.assertEqual(full["score"], 1)
        self.assertLess(cut["score"], 1)
        self.assertEqual(cut["cases_full_right"], 3)
        self.assertEqual(cut["never_compacted"], 0)
        self.assertLess(cut["kv_bytes"], 0.5 * full["kv_bytes"])
        self.assertEqual({g["group"] for g in cut["by_group"]}, {"256 tokens, start", "256 tokens, middle", "256 tokens, end"})
        self.assertEqual(len(report["times"]), 2)


if __name__ == "__main__":
    unittest.main()
