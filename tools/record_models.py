#!/usr/bin/env python3
"""Records tests/model/golden/models.json: logits of tiny models by Hugging Face transformers (float64, eager attention).

Weights are not stored: both sides compute them from the tensor's name and the element's index (see `weight`; the same
rule is in tests/model/tiny_model.h). All of them are k * 2^-e with k in -8..7, so that every 16-bit type and the block
types Q4_0, Q4_1 and Q8_0 hold them without loss and one golden serves all file forms.
Usage: record_models.py [OUT.json]        Needs: pip install numpy torch transformers
"""
import base64
import json
import os
import sys

import numpy as np
import torch
import transformers

VOCAB, COLUMNS, MAX_ALL_ROWS = 160, 16, 70


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & (2 ** 64 - 1)
    return h


def splitmix(seed, count):
    """The first `count` outputs of SplitMix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def weight(name, shape):
    k = (splitmix(fnv1a(name), int(np.prod(shape))) >> np.uint64(60)).astype(np.int64) - 8
    k = k.reshape(shape).astype(np.float64)
    if name.endswith("bias"):
        return k / 16
    if len(shape) == 1:
        return 1 + k / 32
    k[:, 0::32], k[:, 16::32] = -8, 7  # both ends of the range in each block
    sharp = {"embed_tokens": 8, "q_proj": 16, "k_proj": 16}
    return k / sharp.get(name.split(".")[-2], 32)


def tokens(count):
    return (splitmix(fnv1a("tokens"), count) % np.uint64(VOCAB)).astype(np.int64)


def config(cls, **fields):
    base = dict(architectures=[cls], vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, hidden_act="silu", max_position_embeddings=512,
                rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
    base.update(fields)
    return base


def cases():
    llama, mistral, qwen2, qwen3 = (n + "ForCausalLM" for n in ("Llama", "Mistral", "Qwen2", "Qwen3"))
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
    long = dict(max_position_embeddings=256)
    return {
        "llama": (60, config(llama, sliding_window=None, attention_bias=False, mlp_bias=False, pretraining_tp=1)),
        "llama_600": (600, config(llama, max_position_embeddings=1024)),
        "llama_mha_tied_linear": (48, config(llama, num_key_value_heads=4, tie_word_embeddings=True,
                                             rope_scaling=dict(type="linear", factor=2.5))),
        "llama3": (64, config(llama, num_hidden_layers=3, rope_theta=500.0, rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=128))),
        "llama_yarn": (64, config(llama, **long, rope_scaling=yarn)),
        "llama_yarn_attention": (64, config(llama, **long, rope_theta=300.0, rope_scaling=dict(
            yarn, attention_factor=0.7, beta_fast=8.0, beta_slow=2.0))),
        "llama_yarn_untruncated": (64, config(llama, **long, rope_theta=300.0, rope_scaling=dict(
            yarn, truncate=False, beta_fast=8.0, beta_slow=1.0))),
        "llama_yarn_mscale": (64, config(llama, **long, rope_scaling=dict(yarn, mscale=2.0, mscale_all_dim=0.8))),
        "llama_bias_mqa": (50, config(llama, attention_bias=True, num_key_value_heads=1, head_dim=24)),
        "mistral_window": (66, config(mistral, sliding_window=24, head_dim=None, num_hidden_layers=3)),
        "mistral_full": (40, config(mistral, sliding_window=None, head_dim=32, rope_theta=1e6)),
        "mistral_window_300": (400, config(mistral, sliding_window=300)),
        "qwen2": (50, config(qwen2, use_sliding_window=False, sliding_window=20, max_window_layers=1,
                             tie_word_embeddings=True)),
        "qwen2_window": (60, config(qwen2, use_sliding_window=True, sliding_window=20, max_window_layers=1,
                                    num_hidden_layers=3)),
        "qwen2_layer_types": (60, config(qwen2, use_sliding_window=True, sliding_window=17, max_window_layers=3,
                                         num_hidden_layers=3, layer_types=["sliding_attention", "full_attention",
                                                                           "sliding_attention"])),
        "qwen2_yarn": (64, config(qwen2, **long, num_key_value_heads=1, use_sliding_window=False, rope_scaling=yarn)),
        "qwen3": (56, config(qwen3, head_dim=32, rope_theta=1e6, attention_bias=False, use_sliding_window=False,
                             tie_word_embeddings=True)),
        "qwen3_window_bias": (60, config(qwen3, head_dim=24, attention_bias=True, num_key_value_heads=4,
                                         use_sliding_window=True, sliding_window=16, num_hidden_layers=3,
                                         layer_types=["full_attention", "sliding_attention", "full_attention"])),
    }


def logits_of(cfg, ids):
    cls = getattr(transformers, cfg["architectures"][0])
    model = cls(cls.config_class.from_dict(dict(cfg, attn_implementation="eager")))
    model = model.double().eval()
    assert model.config._attn_implementation == "eager"
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(weight(name, tuple(p.shape))))
        return model(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(__file__), "..", "tests", "model", "golden", "models.json")
    golden = dict(recorded_with=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}")
    for name, (count, cfg) in cases().items():
        logits = logits_of(cfg, tokens(count))
        step = 1 if count <= MAX_ALL_ROWS else 13
        rows = list(range(count - 1, -1, -step))
        picked = np.array([[logits[r, (7 * r + 10 * j) % VOCAB] for j in range(COLUMNS)] for r in rows], np.float32)
        lse = np.log(np.exp(logits).sum(axis=1))[rows].astype(np.float32)
        golden[name] = dict(tokens=count, config=cfg, logits=base64.b64encode(picked.tobytes()).decode(),
                            log_sum_exp=base64.b64encode(lse.tobytes()).decode())
        print(name, logits.std().round(3), np.abs(logits).max().round(3), lse.mean().round(3))
    with open(out, "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
