#!/usr/bin/env python3
"""Speed of llama.cpp on a GGUF through its C API, in the way llama-bench and llama-batched-bench measure it.

Reads one JSON object a line from standard input: {"prompt", "gen", "batch", "threads", "flash"}; answers with one:
{"prefill_tokens_per_s", "decode_tokens_per_s"}. The model stays loaded between measurements.
Needs: pip install --no-binary llama-cpp-python llama-cpp-python (built with CMAKE_ARGS=-DGGML_NATIVE=ON)
"""
import json
import random
import sys
import time

sys.path.pop(0)  # this folder holds a llama_cpp.py of its own
import llama_cpp as L  # noqa: E402


def fill(batch, tokens, positions, seqs, logits):
    batch.n_tokens = len(tokens)
    for i, (t, p, s, want) in enumerate(zip(tokens, positions, seqs, logits)):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = t, p, 1, want
        batch.seq_id[i][0] = s


def decode(ctx, batch):
    if L.llama_decode(ctx, batch) != 0:
        raise RuntimeError("llama_decode failed")


def measure(model, vocab_size, job):
    prompt, gen, n = job["prompt"], job["gen"], job["batch"]
    params = L.llama_context_default_params()
    params.n_ctx = (prompt + gen + 32) * n
    params.n_batch, params.n_ubatch, params.n_seq_max = 2048, 512, n
    params.n_threads = params.n_threads_batch = job["threads"]
    if hasattr(params, "flash_attn_type"):
        params.flash_attn_type = 1 if job["flash"] else 0
    else:
        params.flash_attn = bool(job["flash"])
    ctx = L.llama_init_from_model(model, params)
    batch = L.llama_batch_init(2048, 0, 1)
    rng = random.Random(7)
    token = lambda: rng.randrange(100, vocab_size - 100)
    fill(batch, [token()], [0], [0], [1])
    decode(ctx, batch)  # warm-up
    L.llama_memory_clear(L.llama_get_memory(ctx), True)

    start = time.perf_counter()
    for s in range(n):
        for at in range(0, prompt, 512):
            rows = min(512, prompt - at)
            last = at + rows == prompt
            fill(batch, [token() for _ in range(rows)], range(at, at + rows), [s] * rows,
                 [1 if last and i == rows - 1 else 0 for i in range(rows)])
            decode(ctx, batch)
    L.llama_synchronize(ctx)
    middle = time.perf_counter()
    for i in range(gen - 1):
        fill(batch, [token() for _ in range(n)], [prompt + i] * n, range(n), [1] * n)
        decode(ctx, batch)
    L.llama_synchronize(ctx)
    end = time.perf_counter()
    L.llama_batch_free(batch)
    L.llama_free(ctx)
    return {"prefill_tokens_per_s": prompt * n / (middle - start),
            "decode_tokens_per_s": (gen - 1) * n / (end - middle) if gen > 1 else 0.0}


def main():
    L.llama_backend_init()
    quiet = L.llama_log_callback(lambda *_: None)  # kept alive: C holds the pointer
    L.llama_log_set(quiet, None)
    model = L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params())
    vocab_size = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    print(json.dumps({"system_info": L.llama_print_system_info().decode(), "version": getattr(L, "__version__", "unknown")}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(model, vocab_size, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
