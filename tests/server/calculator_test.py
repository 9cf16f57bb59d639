"""The calculator over HTTP and on the command line gives the same answer, to the last field (the page: tests/web)."""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness  # noqa: E402

CONFIG = {"architectures": ["GemmaForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 12, "hidden_size": 1152,
          "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 6,
          "intermediate_size": 6912, "vocab_size": 262144, "max_position_embeddings": 32768}
# The body of POST /api/calc, and the flags that mean the same.
CASES = [
    ({"model": "qwen3-8b", "tokens": 32768, "sequences": 4, "kv_cache_dtype": "fp8"},
     ["qwen3-8b", "--tokens", "32768", "--sequences", "4", "--kv-cache-dtype", "fp8"]),
    ({"model": "deepseek-v3.2", "tokens": 5000, "tensor_parallel_size": 8, "index_dtype": "fp8", "draft_layers": True},
     ["deepseek-v3.2", "--tokens", "5000", "--tp", "8", "--index-dtype", "fp8", "--draft-layers"]),
    ({"model": "gpt-oss-120b", "tokens": 4096, "engine": "vllm", "memory_bytes": 80 << 30},
     ["gpt-oss-120b", "--tokens", "4096", "--engine", "vllm", "--memory", "80G"]),
    ({"model": "qwen3-next-80b-a3b-instruct", "tokens": 1000, "state_dtype": "bfloat16", "state_snapshots": 2},
     ["qwen3-next-80b-a3b-instruct", "--tokens", "1000", "--state-dtype", "bfloat16", "--state-snapshots", "2"]),
    ({"model": "llama-3.1-8b", "lengths": [100, 4096, 100], "shared_prefix": 64, "kv_cache_dtype": "int8", "kv_cache_dtype_v": "int4",
      "kv": {"policy": "streaming", "budget": 512}},
     ["llama-3.1-8b", "--lengths", "100,4096,100", "--shared-prefix", "64", "--kv-cache-dtype", "int8", "--kv-cache-dtype-v", "int4",
      "--kv-policy", "streaming", "--kv-budget", "512"]),
    ({"shape": {"layers": 28, "kv_heads": 4, "head_dim": 128}, "tokens": 2560, "engine": "llama.cpp", "kv_cache_dtype": "q8_0"},
     ["--layers", "28", "--kv-heads", "4", "--head-dim", "128", "--tokens", "2560", "--engine", "llama.cpp", "--kv-cache-dtype", "q8_0"]),
]


def over_http(server, body):
    request = urllib.request.Request(server.url + "/api/calc", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def on_the_command_line(flags):
    out = subprocess.run([harness.BINARY, "calc", *flags, "--json"], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_http_and_the_command_line_agree():
    harness.need_model()
    with harness.Server("--log-level", "warn", "--max-model-len", "512", "--kv-cache-memory-bytes", "20M") as server:
        for body, flags in CASES:
            assert over_http(server, body) == on_the_command_line(flags), body
        by_config = over_http(server, {"config": CONFIG, "tokens": 2000})
        served = over_http(server, {"tokens": 2000})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(CONFIG))
        from_file = on_the_command_line([str(path), "--tokens", "2000"])
    # 10 windows of 512 and 2 full layers, of 1 head x (256 + 256) x 2 bytes
    assert by_config["kv"]["ideal_bytes"] == 1024 * (10 * 512 + 2 * 2000)
    file = on_the_command_line([harness.MODEL, "--tokens", "2000"])
    # But for the names: a path on the command line.
    names = {"model": "", "not_run_because": ""}
    assert by_config | names == from_file | names
    assert served | names == file | names


if __name__ == "__main__":
    harness.run_tests(globals())
