"""`pagefold calc` as scripts use it."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PAGEFOLD_BINARY", str(ROOT / "build/release/bin/pagefold"))
MODEL = os.environ.get("PAGEFOLD_TEST_MODEL", "")
CASES = json.loads((ROOT / "tests/calc/fixtures/kv_golden_cases.json").read_text())["cases"]
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
         "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False}


def run(*args):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=120)


def calc(*args):
    done = run("calc", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class CalcTest(unittest.TestCase):
    def test_a_config_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(LLAMA))
            for model in (path, folder):
                out = calc("--model", str(model), "--tokens", "32768", "--sequences", "4", "--kv-cache-dtype", "fp8")
                self.assertEqual(out["kv"]["bytes_per_token"], 32 * 8 * 2 * 128)
                for field in ("ideal_bytes", "allocated_bytes", "steady_bytes", "peak_bytes"):
                    self.assertEqual(out["kv"][field], 4 * 32768 * 65536, field)
                self.assertEqual(out["weights_bytes"], 2 * 8030261248)
                self.assertTrue(out["runs_here"])

    def test_configs_of_every_kind(self):
        """Bytes of 4 sequences of 32,768 tokens, worked by hand; fp8 but where it says otherwise."""
        heads = {"num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 64}
        latent = {"model_type": "deepseek_v3", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16,
                  "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
        linear = heads | {"model_type": "qwen3_next", "num_key_value_heads": 2, "linear_num_key_heads": 4, "linear_key_head_dim": 128,
                          "linear_num_value_heads": 8, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}
        tokens = 4 * 32768
        state = 3 * (2 * 4 * 128 + 8 * 128) * 2 + 8 * 128 * 128 * 4
        for name, config, flags, kv, states in (
                ("MHA", heads | {"model_type": "llama"}, [], 8 * 16 * 128 * tokens, 0),
                ("GQA", heads | {"model_type": "llama", "num_key_value_heads": 4}, [], 8 * 4 * 128 * tokens, 0),
                ("GQA on 8 devices", heads | {"model_type": "llama", "num_key_value_heads": 4}, ["--tp", "8"], 8 * 1 * 128 * tokens, 0),
                ("MLA", latent, [], 8 * 576 * tokens, 0),
                ("MLA on 8 devices", latent, ["--tp", "8"], 8 * 576 * tokens, 0),
                ("MLA packed", latent, ["--mla", "packed_fp8"], 8 * 656 * tokens, 0),
                ("sliding", heads | {"model_type": "gemma3_text", "num_key_value_heads": 4, "sliding_window": 512}, [],
                 4 * 128 * (1 * tokens + 7 * 4 * 512), 0),
                ("linear", linear, [], 2 * 2 * 128 * tokens, 4 * 6 * state)):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "config.json"
                path.write_text(json.dumps(config))
                out = calc("--model", str(path), "--tokens", "32768", "--sequences", "4", "--kv-cache-dtype", "fp8", *flags)
            self.assertEqual(out["kv"]["ideal_bytes"], kv, name)
            self.assertEqual(out["kv"]["state_bytes"], states, name)

    def test_by_hand(self):
        # The upper half of 32 layers reads one global cache.
        out = calc("--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--window", "1024", "--window-layers", "16",
                   "--shared-layers", "15", "--tokens", "100k")
        self.assertEqual(out["kv"]["ideal_bytes"], 4096 * (16 * 1024 + 100000))
        out = calc("--layers", "61", "--latent", "512", "--rope-dim", "64", "--index-dim", "128", "--index-layers", "21", "--tokens", "100k")
        self.assertEqual(out["kv"]["ideal_bytes"], 2 * 100000 * (61 * 576 + 21 * 128))

    def test_other_engines(self):
        for case in CASES:
            if "shape" not in case:
                continue
            layers, heads, dim = case["shape"]
            asked = "tokens_asked" in case
            out = calc("--layers", str(layers), "--kv-heads", str(heads), "--head-dim", str(dim), "--engine", case["engine"],
                       "--tokens", str(case["tokens_asked" if asked else "tokens"]), "--kv-cache-dtype", case["k"],
                       "--kv-cache-dtype-v", case["v"], "--context-padding", "32" if asked else "1")
            self.assertEqual(out["kv"]["allocated_bytes"], case["expect_mib"]["total"] * 2**20, case["id"])

    def test_what_fits(self):
        out = calc("gpt-oss-120b", "--engine", "vllm", "--tokens", "4096", "--kv-cache-memory-bytes", str(int(5.38 * 2**30)))
        self.assertAlmostEqual(out["fits"]["max_tokens"] / 78384, 1, delta=0.002)
        out = calc("QWEN3-8B", "--tokens", "1000", "--kv-policy", "streaming", "--kv-budget", "256", "--memory", "24G")
        self.assertEqual(out["kv"]["steady_bytes"], 36 * 8 * 256 * 2 * 256)
        self.assertEqual(out["fits"]["max_context"], 40960)
        self.assertGreater(out["fits"]["max_sequences"], 20)

    def test_text_and_presets(self):
        done = run("calc", "deepseek-v3", "--tokens", "1000", "--tp", "8")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("61 layers x (576 x 2) = 70272 bytes a token", done.stdout)
        self.assertIn("not run by pagefold", done.stdout)
        self.assertIn("the latent is copied to each", done.stdout)
        self.assertGreaterEqual(len(calc("--presets")["presets"]), 35)

    def test_wrong_use(self):
        for args, says in ((["qwen3-8b", "--tokens", "0"], "--tokens"), (["qwen3-8b", "--tokens", "-4"], "--tokens"),
                           (["qwen3-8b", "--tokens", "9" * 20], "must be an integer from 1 to 1073741824"),
                           (["qwen3-8b", "--lengths", "4,2G"], "must be an integer from 1 to 1073741824"),
                           (["--layers", "1g", "--kv-heads", "8", "--head-dim", "128"], "--layers: '1g': must be an integer from 1 to 4096"),
                           (["qwen3-8b", "--tokens", "nan"], "--tokens"), (["qwen3-8b", "--sequences", "0"], "--sequences"),
                           (["qwen3-8b", "--kv-cache-dtype", "fp3"], "unknown KV cache dtype 'fp3'"),
                           (["qwen3-8b", "--engine", "other"], "unknown engine 'other'"),
                           (["qwen3-8b", "--lengths", "5,0"], "--lengths"), (["no-such-model"], "no preset"),
                           (["qwen3-8b", "--kv-policy", "h3o"], "unknown policy"),
                           (["--layers", "4"], "--kv-heads"), (["--layers", "4", "--latent", "9", "--kv-heads", "2"], "--latent"),
                           (["qwen3-8b", "--tokens", "10", "--prompt-tokens", "11"], "prompt_tokens: 11")):
            done = run("calc", *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), f"{args}: {done.stderr}")
            self.assertIn(says, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(LLAMA | {"model_type": "unheard_of"}))
            done = run("calc", str(path))
            self.assertEqual(done.returncode, 1)
            self.assertIn("unknown architecture 'unheard_of'", done.stderr)

    @unittest.skipUnless(MODEL, "PAGEFOLD_TEST_MODEL names no model")
    def test_agrees_with_inspect(self):
        seen = json.loads(run("inspect", MODEL, "--json").stdout)
        out = calc(MODEL, "--tokens", "1024")
        self.assertEqual(out["weights_bytes"], seen["weights_bytes"])
        self.assertTrue(out["weights_exact"] and out["runs_here"])
        for dtype, size in seen["kv_bytes_per_token"].items():
            self.assertEqual(calc(MODEL, "--tokens", "1024", "--kv-cache-dtype", dtype)["kv"]["ideal_bytes"], 1024 * size)


if __name__ == "__main__":
    unittest.main()
