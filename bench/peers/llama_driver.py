#!/usr/bin/env python3
"""llama.cpp on a GGUF through its C API, in the way llama-bench and llama-batched-bench measure it.

Reads one JSON object a line from standard input and answers with one; the model and the contexts stay open between them.
A context is {"threads", "flash", "kv": "f16"|"q8_0", "seqs", "depth"}; one is open at a time for each value of "slot".

  {"op": "fill", "depths": [..], "dir": ..}    computes one sequence of random tokens once (float16, flash attention) and
                                               saves its state at every depth; depths that are there already are skipped.
                                               "repeat": times as deep as the deepest, its rows repeated
  {"op": "open", "slot": 0, context, "state": PATH|null}    restores the state into every sequence
  {"op": "decode", "slot", "threads", "steps"}   {"seconds"} of that many steps of one token for every sequence
  {"op": "prefill", "slot", "threads", "rows"}   {"seconds"} of one prompt of that many rows at the depth
  {"op": "close", "slot"}

Every measurement ends with the cache as it was before. Nothing is sampled: a step ends with its logits.
Needs: pip install --no-binary llama-cpp-python llama-cpp-python (built with CMAKE_ARGS=-DGGML_NATIVE=ON)
"""
import ctypes
import json
import os
import pathlib
import random
import sys
import time

# Without its Hadamard rotation of quantised keys, work that a q8_0 cache hardly needs and that a converted state lacks.
os.environ["LLAMA_ATTN_ROT_DISABLE"] = "1"
HERE = sys.path.pop(0)  # this folder holds a llama_cpp.py of its own
import llama_cpp as L  # noqa: E402

sys.path.append(HERE)
import llama_state  # noqa: E402

UBATCH = 512


class Context:
    def __init__(self, model, threads, flash, kv, seqs, cells):
        """cells: of each sequence. Without a unified cache each sequence has a stream of its own, the faster way."""
        params = L.llama_context_default_params()
        params.n_ctx = (cells + 255) // 256 * 256 * seqs
        params.n_batch, params.n_ubatch, params.n_seq_max = 2048, UBATCH, seqs
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1 if flash else 0
        params.type_k = params.type_v = L.GGML_TYPE_Q8_0 if kv == "q8_0" else L.GGML_TYPE_F16
        self.ctx = L.llama_init_from_model(model, params)
        if not self.ctx:
            raise RuntimeError(f"no context for {seqs} sequences of {cells}")
        self.memory = L.llama_get_memory(self.ctx)
        self.batch = L.llama_batch_init(2048, 0, 1)
        self.vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
        self.rng = random.Random(7)
        self.seqs, self.depth = seqs, 0

    def close(self):
        L.llama_batch_free(self.batch)
        L.llama_free(self.ctx)

    def threads(self, n):
        L.llama_set_n_threads(self.ctx, n, n)

    def decode(self, positions, seqs, wanted):
        """One call of random tokens; wanted: which rows' logits are computed."""
        b = self.batch
        b.n_tokens = len(positions)
        for i, (position, seq, want) in enumerate(zip(positions, seqs, wanted)):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = self.rng.randrange(100, self.vocab - 100), position, 1, want
            b.seq_id[i][0] = seq
        if L.llama_decode(self.ctx, b) != 0:
            raise RuntimeError("llama_decode failed")

    def prompt(self, rows):
        for at in range(0, rows, UBATCH):
            n = min(UBATCH, rows - at)
            last = at + n == rows
            self.decode(range(self.depth + at, self.depth + at + n), [0] * n, [int(last and i == n - 1) for i in range(n)])
        L.llama_synchronize(self.ctx)

    def steps(self, n):
        for i in range(n):
            self.decode([self.depth + i] * self.seqs, range(self.seqs), [1] * self.seqs)
        L.llama_synchronize(self.ctx)

    def rewind(self):
        for s in range(self.seqs):
            if not L.llama_memory_seq_rm(self.memory, s, self.depth, -1):
                raise RuntimeError("the cache cannot be cut")

    def state(self):
        size = L.llama_state_seq_get_size(self.ctx, 0)
        data = (ctypes.c_uint8 * size)()
        if L.llama_state_seq_get_data(self.ctx, data, size, 0) != size:
            raise RuntimeError("no state")
        return bytes(data)

    def restore(self, data, depth):
        data = llama_state.for_streams(data, self.seqs)
        array = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        for s in range(self.seqs):
            if L.llama_state_seq_set_data(self.ctx, array, len(data), s) == 0:
                raise RuntimeError("the state is refused")
        self.depth = depth


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fill(model, job):
    folder = pathlib.Path(job["dir"])
    depths = sorted(d for d in job["depths"] if not (folder / f"{d}.state").exists())
    if not depths:
        return {"filled": []}
    ctx = Context(model, job["threads"], 1, "f16", 1, depths[-1] + UBATCH)
    have = [d for d in job["depths"] if (folder / f"{d}.state").exists() and d < depths[0]]
    if have:
        ctx.restore((folder / f"{max(have)}.state").read_bytes(), max(have))
    for depth in depths:
        rows = depth - ctx.depth
        seconds = timed(lambda: ctx.prompt(rows))
        ctx.depth = depth
        part = folder / f"{depth}.part"
        part.write_bytes(ctx.state())
        part.rename(folder / f"{depth}.state")
        print(f"filled to {depth}: {seconds:.0f} s", file=sys.stderr, flush=True)
    ctx.close()
    return {"filled": depths}


def extend(job):
    folder, deepest, times = pathlib.Path(job["dir"]), max(job["depths"]), job["repeat"]
    long = folder / f"{deepest * times}.state"
    if not long.exists():
        long.write_bytes(llama_state.extended((folder / f"{deepest}.state").read_bytes(), times))


def restored(job):
    """The saved state in the form that this context keeps its cache in."""
    path = pathlib.Path(job["state"])
    form = "q8_0" if job["kv"] == "q8_0" else "f16" if job["flash"] else "transposed"
    if form == "f16":
        return path.read_bytes()
    other = path.with_suffix(f".{form}")
    if not other.exists():
        other.write_bytes(llama_state.convert(path.read_bytes(), form))
    return other.read_bytes()


def handle(model, slots, job):
    if job["op"] == "fill":
        filled = fill(model, job)
        if job["repeat"] > 1:
            extend(job)
        return filled
    slot = job["slot"]
    if job["op"] == "close":
        slots.pop(slot).close()
        return {}
    if job["op"] == "open":
        ctx = Context(model, job["threads"], job["flash"], job["kv"], job["seqs"], job["depth"] + job["room"])
        if job["depth"]:
            ctx.restore(restored(job), job["depth"])
        slots[slot] = ctx
        ctx.steps(1)  # warm-up
        ctx.rewind()
        return {}
    ctx = slots[slot]
    ctx.threads(job["threads"])
    seconds = timed(lambda: ctx.steps(job["steps"]) if job["op"] == "decode" else ctx.prompt(job["rows"]))
    ctx.rewind()
    return {"seconds": seconds}


def main():
    L.llama_backend_init()
    quiet = L.llama_log_callback(lambda *_: None)  # kept alive: C holds the pointer
    L.llama_log_set(quiet, None)
    model = L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {sys.argv[1]}")
    print(json.dumps({"system_info": L.llama_print_system_info().decode(), "version": getattr(L, "__version__", "unknown")}), flush=True)
    slots = {}
    for line in sys.stdin:
        print(json.dumps(handle(model, slots, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
