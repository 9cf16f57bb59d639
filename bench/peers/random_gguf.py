#!/usr/bin/env python3
"""Writes a GGUF of Qwen3-0.6B's shape with random Q8_0 weights: speed does not depend on the values.

    bench/peers/random_gguf.py OUT.gguf        needs the `gguf` package
"""
import sys

import gguf
import numpy as np

LAYERS, WIDTH, FEED, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 28, 1024, 3072, 16, 8, 128, 151936


def byte_letters():
    """The letters that stand for the 256 bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def add_tokenizer(out):
    letters = byte_letters()
    pairs = [a + b for a in letters for b in letters]
    tokens = letters + pairs
    tokens += [a + b for a in pairs for b in letters][: VOCAB - 2 - len(tokens)]
    tokens += ["<|im_start|>", "<|im_end|>"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.NORMAL] * (VOCAB - 2) + [gguf.TokenType.CONTROL] * 2)
    out.add_token_merges([f"{a} {b}" for a in letters for b in letters])
    out.add_eos_token_id(VOCAB - 1)
    out.add_add_bos_token(False)


def add_matrix(out, rng, name, rows, cols):
    """Blocks of a float16 scale and 32 integers; the scale keeps outputs near the size of inputs."""
    blocks = np.empty((rows, cols // 32, 34), np.uint8)
    blocks[:, :, :2] = np.frombuffer(np.float16(1 / (64 * cols**0.5)).tobytes(), np.uint8)
    blocks[:, :, 2:] = rng.integers(0, 256, (rows, cols // 32, 32), np.uint8)
    out.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q8_0)


def main():
    out = gguf.GGUFWriter(sys.argv[1], "qwen3")
    out.add_name("random weights of Qwen3-0.6B's shape")
    out.add_context_length(40960)
    out.add_embedding_length(WIDTH)
    out.add_feed_forward_length(FEED)
    out.add_block_count(LAYERS)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_key_length(HEAD_DIM)
    out.add_value_length(HEAD_DIM)
    out.add_rope_freq_base(1e6)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    add_tokenizer(out)
    rng = np.random.default_rng(1)
    add_matrix(out, rng, "token_embd.weight", VOCAB, WIDTH)
    out.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        for name, n in (("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM)):
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(n, np.float32))
        for name, rows, cols in (("attn_q", HEADS * HEAD_DIM, WIDTH), ("attn_k", KV_HEADS * HEAD_DIM, WIDTH), ("attn_v", KV_HEADS * HEAD_DIM, WIDTH),
                                 ("attn_output", WIDTH, HEADS * HEAD_DIM), ("ffn_gate", FEED, WIDTH), ("ffn_up", FEED, WIDTH), ("ffn_down", WIDTH, FEED)):
            add_matrix(out, rng, f"blk.{i}.{name}.weight", rows, cols)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
