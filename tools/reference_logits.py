#!/usr/bin/env python3
"""Float32 logits of a llama-type GGUF model by an independent implementation (numpy), teacher-forced.

Weights are dequantised by the `gguf` package; everything is computed in float32.
Usage: reference_logits.py MODEL.gguf TOKENS.i32 OUT.f32      (OUT: [tokens][vocab] float32, native order)
Needs: pip install numpy gguf
"""
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def read_model(path):
    reader = GGUFReader(path)
    field = lambda key: reader.fields["llama." + key].contents()
    shape = dict(
        layers=field("block_count"), heads=field("attention.head_count"), kv=field("attention.head_count_kv"),
        eps=field("attention.layer_norm_rms_epsilon"), theta=field("rope.freq_base"))
    tensors = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    return shape, tensors


def norm(x, gamma, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * gamma


def rotate(x, theta):
    """x: [tokens, heads, dim]; adjacent pairs, as GGUF llama files are permuted."""
    dim = x.shape[-1]
    freq = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    angle = np.arange(x.shape[0], dtype=np.float64)[:, None] * freq
    cos, sin = np.cos(angle)[:, None, :].astype(np.float32), np.sin(angle)[:, None, :].astype(np.float32)
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return out


def attention(q, k, v):
    """q: [tokens, heads, dim], k and v: [tokens, kv heads, dim]; causal."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    mask = np.triu(np.full((tokens, tokens), -np.inf, dtype=np.float32), 1)
    out = np.empty_like(q)
    for h in range(heads):
        s = q[:, h] @ k[:, h // group].T * np.float32(dim ** -0.5) + mask
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, h] = (p / p.sum(axis=1, keepdims=True)) @ v[:, h // group]
    return out.reshape(tokens, heads * dim)


def forward(shape, w, tokens):
    x = w["token_embd.weight"][tokens]
    n = len(tokens)
    for i in range(shape["layers"]):
        p = lambda name: w[f"blk.{i}.{name}.weight"]
        h = norm(x, p("attn_norm"), shape["eps"])
        q = rotate((h @ p("attn_q").T).reshape(n, shape["heads"], -1), shape["theta"])
        k = rotate((h @ p("attn_k").T).reshape(n, shape["kv"], -1), shape["theta"])
        v = (h @ p("attn_v").T).reshape(n, shape["kv"], -1)
        x = x + attention(q, k, v) @ p("attn_output").T
        h = norm(x, p("ffn_norm"), shape["eps"])
        gate = h @ p("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p("ffn_up").T)) @ p("ffn_down").T
    x = norm(x, w["output_norm.weight"], shape["eps"])
    return x @ w.get("output.weight", w["token_embd.weight"]).T


def main():
    model, tokens_path, out = sys.argv[1:4]
    shape, weights = read_model(model)
    forward(shape, weights, np.fromfile(tokens_path, dtype=np.int32)).astype(np.float32).tofile(out)


if __name__ == "__main__":
    main()
