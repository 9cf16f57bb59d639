#!/usr/bin/env python3
"""Records tests/model/fixtures: one two-layer toy model in the weight formats of checkpoints, packed by
the libraries that define them, with the logits of the weights that the same libraries unpack.

    pip install torch transformers safetensors bitsandbytes compressed-tensors gptqmodel
    tools/record_quantised.py [NAME ...]

    bnb_nf4        bitsandbytes: nf4 with double quantisation
    bnb_int8       bitsandbytes: int8, a maximum a row
    ct_w4a16_asym  compressed-tensors: pack-quantized, 4 bit, zero points, groups of 32
    gptq_act       GPTQModel's packer: 4 bit, asymmetric, act-order, groups of 16, format v2
    awq            GPTQModel's AWQ packer: 4 bit, zero points, groups of 32
    ct_fp8         compressed-tensors: float-quantized, e4m3, a bfloat16 scale a row
    fp8_block      e4m3 by torch's own conversion, blocks of 32 x 32, as Transformers' fp8 layers hold them

A folder holds config.json, model.safetensors and logits.json: tokens, and float32 logits (base64) that
Transformers gives with the unpacked weights. Rounding to integers is plain nearest rounding in groups:
what is tested is reading, not choosing. The weights are random with a fixed seed.
"""
import base64
import json
import os
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # nothing is worth compiling
FOLDER = pathlib.Path(__file__).parent.parent / "tests/model/fixtures"
CONFIG = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
              num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
              rms_norm_eps=1e-5, tie_word_embeddings=True)
TOKENS = [1, 5, 9, 33, 60, 2, 2]


def group_round(weight, bits, group):
    """[N, K] -> integers [N, K], scales and zero points [N, K / group]; asymmetric."""
    w = weight.reshape(weight.shape[0], -1, group)
    low, high = w.amin(-1), w.amax(-1)
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = torch.round(-low / scale).clamp(0, 2**bits - 1)
    q = (torch.round(w / scale[..., None]) + zero[..., None]).clamp(0, 2**bits - 1)
    return q.reshape(weight.shape).int(), scale, zero.int()


def bnb_nf4(weight):
    import bitsandbytes.functional as F
    # One long row: the CPU kernel of bitsandbytes 0.50 leaves block maxima out in rows of 32.
    packed, state = F.quantize_4bit(weight.reshape(1, -1), blocksize=64, quant_type="nf4",
                                    compress_statistics=True)
    unpacked = F.dequantize_4bit(packed, state).reshape(weight.shape)
    state.shape = weight.shape
    tensors = {"weight": packed}
    tensors.update({f"weight.{k}": v for k, v in state.as_dict(packed=True).items()})
    return tensors, unpacked


def bnb_int8(weight):
    import bitsandbytes.functional as F
    q, scb, _ = F.int8_vectorwise_quant(weight.half())
    tensors = {"weight": q, "SCB": scb, "weight_format": torch.zeros((), dtype=torch.uint8)}
    return tensors, q.float() * (scb.float() / 127)[:, None]


def ct_w4a16_asym(weight):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    q, scale, zero = group_round(weight, 4, 32)
    q, zero = (q - 8).to(torch.int8), (zero - 8).to(torch.int8)
    packed = pack_to_int32(q, 4)
    packed_zero = pack_to_int32(zero, 4, packed_dim=0)
    tensors = {"weight_packed": packed, "weight_scale": scale.half(), "weight_zero_point": packed_zero,
               "weight_shape": torch.tensor(weight.shape)}
    q = unpack_from_int32(packed, 4, weight.shape)
    zero = unpack_from_int32(packed_zero, 4, scale.shape, packed_dim=0)
    args = QuantizationArgs(num_bits=4, strategy="group", group_size=32, symmetric=False)
    return tensors, dequantize(q, scale, zero, args=args)


def gptq_act(weight):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    n, k = weight.shape
    order = torch.randperm(k, generator=torch.Generator().manual_seed(k))
    g_idx = torch.empty(k, dtype=torch.int32)
    g_idx[order] = (torch.arange(k) // 16).int()
    q, scale, zero = group_round(weight[:, order], 4, 16)
    near = torch.empty_like(weight)
    near[:, order] = (q - zero.repeat_interleave(16, 1)) * scale.repeat_interleave(16, 1)
    linear = torch.nn.Linear(k, n, bias=False)
    linear.weight.data = near
    layer = TorchLinear(bits=4, group_size=16, sym=False, desc_act=True, in_features=k,
                        out_features=n, bias=False, register_buffers=True)
    layer.pack_original(linear, scale, zero, g_idx)
    layer.post_init()
    tensors = {name: getattr(layer, name) for name in ("qweight", "qzeros", "scales", "g_idx")}
    layer.scales = layer.scales.float()  # or the products are rounded to float16
    unpacked = layer.dequantize_weight().float().T.contiguous()
    return tensors, unpacked


def awq(weight):
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm, pack_awq
    q, scale, zero = group_round(weight, 4, 32)
    qweight, qzeros = pack_awq(q.T.contiguous(), zero.T.contiguous(), 4)
    scales = scale.T.contiguous().half()
    tensors = {"qweight": qweight, "qzeros": qzeros, "scales": scales}
    return tensors, dequantize_gemm(qweight, qzeros, scales.float(), 4, 32).float().T.contiguous()


def ct_fp8(weight):
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    args = QuantizationArgs(num_bits=8, type="float", strategy="channel", symmetric=True)
    scale = (weight.abs().amax(-1, keepdim=True) / 448).bfloat16()
    zero = torch.zeros_like(scale)
    q = quantize(weight, scale.float(), zero.float(), args, dtype=torch.float8_e4m3fn)
    return {"weight": q, "weight_scale": scale}, dequantize(q, scale.float(), zero.float(), args=args, dtype=torch.float32)


def fp8_block(weight):
    n, k = weight.shape
    blocks = weight.reshape((n + 31) // 32, min(n, 32), k // 32, 32)
    scale = blocks.abs().amax((1, 3), keepdim=True) / 448
    q = (blocks / scale).to(torch.float8_e4m3fn)
    unpacked = (q.float() * scale).reshape(n, k)
    return {"weight": q.reshape(n, k), "weight_scale_inv": scale[:, 0, :, 0].float()}, unpacked


CONFIGS = {
    "bnb_nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "bnb_int8": {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False},
    "ct_w4a16_asym": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group",
            "group_size": 32}}}},
    "ct_fp8": {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}}}},
    "fp8_block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]},
    "gptq_act": {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "sym": False,
                 "checkpoint_format": "gptq_v2"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
            "version": "gemm"},
}


def record(name):
    torch.manual_seed(20261129)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).float().eval()
    tensors = {}
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        if key.endswith("_proj.weight"):
            weight.copy_(torch.randn_like(weight) * 0.3)
            parts, unpacked = globals()[name](weight.clone())
            weight.copy_(unpacked)
            module = key[:-len("weight")]
            tensors.update({module + k: v.contiguous() for k, v in parts.items()})
        else:
            if weight.dim() == 2:
                weight.copy_(torch.randn_like(weight).bfloat16().float())
            tensors[key] = weight.bfloat16()
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0].float().numpy()
    out = FOLDER / name
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], **CONFIG, "dtype": "bfloat16", "rope_theta": 10000.0,
              "quantization_config": CONFIGS[name]}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / "logits.json").write_text(json.dumps({
        "tokens": TOKENS, "logits": base64.b64encode(logits.astype("<f4").tobytes()).decode()}) + "\n")
    print(name, sum(f.stat().st_size for f in out.iterdir()), "bytes")


if __name__ == "__main__":
    np.random.seed(0)
    for wanted in sys.argv[1:] or CONFIGS:
        record(wanted)
