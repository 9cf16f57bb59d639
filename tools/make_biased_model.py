#!/usr/bin/env python3
"""Makes a Qwen2-type folder with large key biases from a llama GGUF file: make_biased_model.py MODEL.gguf FOLDER [SIZE]

Biases of the slowest rotary bands add nearly the same to the logits of all keys, which a softmax does not see: the model
stays the trained one, but its keys have the outlying dimensions that real Qwen2 checkpoints have. SIZE (default 20): the
biases' largest value; typical keys of SmolLM2 lie around 1 to 3. The folder has no tokenizer: for tools/teacher_forced.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize

NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def field(reader, name):
    return reader.fields[name].contents()


def unpermuted(weight, heads):
    """GGUF keeps rotary pairs side by side, Hugging Face half a head apart."""
    n, columns = weight.shape
    return weight.reshape(heads, n // heads // 2, 2, columns).swapaxes(1, 2).reshape(n, columns)


def tensors_of(reader, heads, kv_heads, size):
    rng = np.random.default_rng(1)
    for t in reader.tensors:
        data = dequantize(t.data, t.tensor_type).astype(np.float32)
        stem = t.name.removesuffix(".weight")
        if stem == "token_embd":
            yield "model.embed_tokens.weight", data
        elif stem == "output_norm":
            yield "model.norm.weight", data
        elif stem == "output":
            yield "lm_head.weight", data
        else:
            layer, part = stem.split(".")[1:]
            prefix = f"model.layers.{layer}."
            if part not in ("attn_q", "attn_k", "attn_v"):
                yield prefix + NAMES[part] + ".weight", data
                continue
            n = kv_heads if part != "attn_q" else heads
            if part != "attn_v":
                data = unpermuted(data, n)
            name = prefix + "self_attn." + part[-1] + "_proj"
            bias = np.zeros((n, data.shape[0] // n), np.float32)
            half = bias.shape[1] // 2
            if part == "attn_k":
                for band in (half - 4, half - 2, half - 1):
                    bias[:, [band, band + half]] = size * rng.uniform(-1, 1, (n, 2))
            yield name + ".weight", data
            yield name + ".bias", bias.reshape(-1)


def main():
    path, folder, size = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
    r = GGUFReader(path)
    heads, kv_heads = field(r, "llama.attention.head_count"), field(r, "llama.attention.head_count_kv")
    tensors = {n: t.astype(np.float16) for n, t in tensors_of(r, heads, kv_heads, size)}
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "float16", "hidden_act": "silu",
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0], "hidden_size": field(r, "llama.embedding_length"),
        "intermediate_size": field(r, "llama.feed_forward_length"), "num_hidden_layers": field(r, "llama.block_count"),
        "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "max_position_embeddings": field(r, "llama.context_length"), "rope_theta": float(field(r, "llama.rope.freq_base")),
        "rms_norm_eps": float(field(r, "llama.attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "lm_head.weight" not in tensors}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            out.write(t.tobytes())


main()
