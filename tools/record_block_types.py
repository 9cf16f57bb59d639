#!/usr/bin/env python3
"""Records tests/formats/golden/block_types.json: blocks of every GGUF type as bytes and the floats
that the `gguf` Python package (an independent implementation) makes of them.

    pip install gguf numpy && tools/record_block_types.py

The bytes are random with a fixed seed, except that the float16 scales are drawn as ordinary numbers
(random bits would give NaN and infinities). The first block of each type is every byte 0xff
with the smallest subnormal scale. Floats are recorded as their bits.
"""
import base64
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Byte offsets of the float16 numbers in a block.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.F16: None, T.BF16: None, T.F32: None,
    T.IQ4_NL: [0], T.MXFP4: [],
}


def blocks_of(kind, rng):
    elements, size = GGML_QUANT_SIZES[kind]
    if HALVES[kind] is None:
        count = 64
        values = (rng.standard_normal(count) * 3).astype(np.float32)
        values[:4] = [0.0, -0.0, 6.0e-8, -65504.0]
        if kind == T.F32:
            return values.view(np.uint8)
        if kind == T.F16:
            return values.astype(np.float16).view(np.uint8)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    count = 3 if elements == 256 else 6
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    blocks[0] = 255
    for offset in HALVES[kind]:
        for b in range(count):
            d = np.float16(rng.standard_normal() * 0.02)
            if b == 0:
                d = np.uint16(1).view(np.float16)  # the smallest subnormal
            blocks[b, offset:offset + 2] = np.frombuffer(d.tobytes(), dtype=np.uint8)
    if kind == T.MXFP4:  # exponents: subnormal scales, then ordinary ones
        blocks[:, 0] = [0, 1, 2, 120, 128, 134]
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(20240817)
    out = {}
    for kind in HALVES:
        data = blocks_of(kind, rng)
        values = np.ascontiguousarray(dequantize(data, kind).reshape(-1), dtype=np.float32)
        assert np.isfinite(values).all(), kind
        out[kind.name] = {
            "bytes": base64.b64encode(data.tobytes()).decode(),
            "floats": base64.b64encode(values.tobytes()).decode(),
        }
    path = pathlib.Path(__file__).parent.parent / "tests/formats/golden/block_types.json"
    path.write_text(json.dumps(out, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
