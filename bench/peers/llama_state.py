"""Rewrites a saved sequence of llama.cpp from its float16 cache with flash attention into the other forms that contexts
keep: values transposed (no flash attention) and q8_0. So a context is computed once, whatever is measured on it.

The bytes of a sequence (llama-kv-cache.cpp, state_write): a header that is copied as it is, up to `v_trans` and the number
of layers (u32 each); for each layer the type of the keys (i32), the bytes of a row (u64) and the rows; then the same for
the values, or, transposed, type (i32), bytes of an element (u32), elements of a row (u32) and the columns.
"""
import struct

import gguf
import numpy as np

F16, Q8_0 = 1, 8


def _cells(data, any_form=False):
    """How many cells there are and where v_trans lies: the number is one of the first words, then come 12 bytes a cell."""
    for head in range(0, 64, 4):
        cells = struct.unpack_from("<I", data, head)[0]
        at = head + 4 + 12 * cells
        if not 1 < cells < 1 << 24 or at + 28 > len(data) or struct.unpack_from("<5i", data, head + 4)[::3] != (0, 1):
            continue
        v_trans, layers, k_type, row = struct.unpack_from("<IIiQ", data, at)
        if any_form and v_trans < 2 and 0 < layers < 1024 and k_type in (F16, Q8_0):
            return cells, at
        if v_trans == 0 and k_type == F16 and at + 8 + 2 * layers * (12 + row * cells) == len(data):
            return cells, at
    raise ValueError("this is no state of a float16 cache with flash attention that this script knows")


def _quantised(rows):
    return gguf.quants.quantize(rows.astype(np.float32), gguf.GGMLQuantizationType.Q8_0).tobytes()


def extended(data, times):
    """The state of `times` as many cells: the same rows again, at the positions that follow. What attention costs depends on
    the number of cells, not on what is in them."""
    cells, at = _cells(data)
    head = at - 12 * cells
    meta = np.frombuffer(data, np.int32, 3 * cells, head).reshape(cells, 3)
    if head < 4 or struct.unpack_from("<I", data, head - 4)[0] != cells or not np.array_equal(meta[:, 0], np.arange(cells)):
        raise ValueError("the cells are not where they were expected")
    all_meta = np.tile(meta, (times, 1))
    all_meta[:, 0] = np.arange(cells * times)
    layers = struct.unpack_from("<I", data, at + 4)[0]
    out = [data[:head - 4], struct.pack("<I", cells * times), all_meta.tobytes(), data[at:at + 8]]
    at += 8
    for _ in range(2 * layers):
        row = struct.unpack_from("<Q", data, at + 4)[0]
        out += [data[at:at + 12], data[at + 12:at + 12 + cells * row] * times]
        at += 12 + cells * row
    return b"".join(out)


def for_streams(data, streams):
    """The state for a cache of several streams: their number precedes the cells, and the other streams give none."""
    if streams == 1:
        return data
    cells, at = _cells(data, any_form=True)
    count = at - 12 * cells - 4
    if struct.unpack_from("<II", data, count - 4) != (1, cells):
        raise ValueError("the number of streams is not where it was expected")
    return data[:count - 4] + struct.pack("<I", streams) + data[count:] + struct.pack("<I", 0) * (streams - 1)


def convert(data, form):
    """form: "transposed" or "q8_0"."""
    cells, at = _cells(data)
    layers = struct.unpack_from("<I", data, at + 4)[0]
    out = [data[:at], struct.pack("<II", int(form == "transposed"), layers)]
    at += 8
    for part in ("keys", "values"):
        for _ in range(layers):
            row = struct.unpack_from("<Q", data, at + 4)[0]
            rows = np.frombuffer(data, np.float16, cells * row // 2, at + 12).reshape(cells, row // 2)
            at += 12 + cells * row
            if form == "q8_0":
                packed = _quantised(rows)
                out += [struct.pack("<iQ", Q8_0, len(packed) // cells), packed]
            elif part == "values":
                out += [struct.pack("<iII", F16, 2, row // 2), np.ascontiguousarray(rows.T).tobytes()]
            else:
                out += [struct.pack("<iQ", F16, row), rows.tobytes()]
    return b"".join(out)
