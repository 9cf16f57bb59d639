#!/usr/bin/env python3
"""Converts query statistics of the TriAttention project (a .pt file) to a pagefold calibration.

    tools/convert_triattention.py IN.pt -o OUT.pfcal [--rope-theta N | --config config.json]

A .pt file is a zip with a pickle and one file of raw float32 for each tensor. Nothing of the pickle
is executed: a reader of the handful of opcodes that such a file needs builds dicts, lists, numbers
and descriptions of tensors, and refuses the rest. Output format: src/kv/calibration.h.
"""
import argparse
import array
import json
import math
import re
import struct
import sys
import zipfile

MAX_PICKLE = 64 << 20
MAX_DEPTH_OF_STACK = 1 << 20
MAX_VALUES = 1 << 28
ALLOWED_CALLS = {
    ("collections", "OrderedDict"): "dict",
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
}
STORAGES = {("torch", "FloatStorage")}


class ConvertError(Exception):
    """The file is not what it should be; the text says where."""


class Name:
    """A global of the pickle: a name, never the thing."""

    def __init__(self, module, name):
        self.key = (module, name)


class Storage:
    def __init__(self, key, count):
        self.key, self.count = key, count


class Tensor:
    def __init__(self, storage, offset, size, stride):
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride


class Mark:
    pass


class PickleReader:
    """Reads the pickle of a state of dicts, lists, tuples, numbers, strings and float32 tensors."""

    def __init__(self, data):
        if len(data) > MAX_PICKLE:
            raise ConvertError(f"data.pkl: {len(data)} bytes are too many")
        self.data, self.at, self.stack, self.memo = data, 0, [], {}

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise ConvertError(f"data.pkl: cut at byte {self.at}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self):
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise ConvertError("data.pkl: a name without an end")
        return self.take(end + 1 - self.at)[:-1].decode("ascii", "replace")

    def pop(self, kind=None):
        if not self.stack or isinstance(self.stack[-1], Mark) and kind is not Mark:
            raise ConvertError(f"data.pkl: nothing to take at byte {self.at}")
        value = self.stack.pop()
        if kind is not None and not isinstance(value, kind):
            raise ConvertError(f"data.pkl: {type(value).__name__} at byte {self.at}, where {kind} belongs")
        return value

    def since_mark(self):
        for i in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[i], Mark):
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise ConvertError(f"data.pkl: no mark before byte {self.at}")

    def top(self, kind):
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ConvertError(f"data.pkl: no {kind.__name__} to fill at byte {self.at}")
        return self.stack[-1]

    def set_items(self, pairs):
        target = self.top(dict)
        if len(pairs) % 2:
            raise ConvertError("data.pkl: a key without a value")
        for key, value in zip(pairs[::2], pairs[1::2]):
            if not isinstance(key, (str, int)):
                raise ConvertError("data.pkl: a key that is neither text nor number")
            target[key] = value

    def reduce(self):
        args, name = self.pop(tuple), self.pop(Name)
        what = ALLOWED_CALLS.get(name.key)
        if what == "dict" and not args:
            return {}
        if what == "tensor" and len(args) >= 4 and isinstance(args[0], Storage):
            return Tensor(args[0], args[1], args[2], args[3])
        raise ConvertError(f"data.pkl: asks for {'.'.join(name.key)}, which is refused")

    def persistent(self):
        what = self.pop(tuple)
        ok = (len(what) == 5 and what[0] == "storage" and isinstance(what[1], Name)
              and what[1].key in STORAGES and isinstance(what[2], str)
              and re.fullmatch(r"[0-9]{1,9}", what[2]) and isinstance(what[4], int))
        if not ok:
            raise ConvertError("data.pkl: a storage that is not float32, or not described as usual")
        return Storage(what[2], what[4])

    def recall(self, index):
        if index not in self.memo:
            raise ConvertError(f"data.pkl: entry {index} was never kept")
        return self.memo[index]

    def keep(self, index):
        if not self.stack:
            raise ConvertError("data.pkl: nothing to keep")
        self.memo[index] = self.stack[-1]

    def push_for(self, op):
        """Opcodes that push one value. Returns (known, value)."""
        simple = {b"}": dict, b"]": list, b"(": Mark, b")": tuple}
        if op in simple:
            return True, simple[op]()
        constants = {b"N": None, b"\x88": True, b"\x89": False}
        if op in constants:
            return True, constants[op]
        numbers = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
        if op in numbers:
            return True, self.number(numbers[op])
        if op == b"\x8a":  # LONG1
            return True, int.from_bytes(self.take(self.number("<B")), "little", signed=True)
        if op == b"X":
            return True, self.take(self.number("<I")).decode("utf-8", "strict")
        if op == b"c":
            return True, Name(self.line(), self.line())
        if op == b"h":
            return True, self.recall(self.number("<B"))
        if op == b"j":
            return True, self.recall(self.number("<I"))
        if op == b"t":
            return True, tuple(self.since_mark())
        if op in (b"\x85", b"\x86", b"\x87"):
            n = op[0] - 0x84
            return True, tuple([self.pop() for _ in range(n)][::-1])
        if op == b"R":
            return True, self.reduce()
        if op == b"Q":
            return True, self.persistent()
        return False, None

    def read(self):
        if self.take(1) != b"\x80" or self.number("<B") != 2:
            raise ConvertError("data.pkl: not a pickle of protocol 2")
        while True:
            op = self.take(1)
            if op == b".":
                return self.pop()
            if op == b"q":
                self.keep(self.number("<B"))
            elif op == b"r":
                self.keep(self.number("<I"))
            elif op == b"u":
                self.set_items(self.since_mark())
            elif op == b"s":
                value, key = self.pop(), self.pop()
                self.set_items([key, value])
            elif op == b"e":
                items = self.since_mark()
                self.top(list).extend(items)
            elif op == b"a":
                item = self.pop()
                self.top(list).append(item)
            else:
                known, value = self.push_for(op)
                if not known:
                    raise ConvertError(f"data.pkl: opcode {op!r} at byte {self.at - 1} is refused")
                self.stack.append(value)
            if len(self.stack) > MAX_DEPTH_OF_STACK:
                raise ConvertError("data.pkl: too deep")


class Archive:
    def __init__(self, path):
        try:
            self.zip = zipfile.ZipFile(path)
            names = self.zip.namelist()
        except (OSError, zipfile.BadZipFile) as e:
            raise ConvertError(f"{path}: {e}") from e
        roots = [n[: -len("data.pkl")] for n in names if n.endswith("data.pkl")]
        if len(roots) != 1:
            raise ConvertError(f"{path}: {len(roots)} files data.pkl, one expected")
        self.root, self.names = roots[0], set(names)
        if self.root + "byteorder" in self.names and self.read("byteorder", 64).strip() != b"little":
            raise ConvertError(f"{path}: only little-endian files are read")

    def read(self, name, most):
        try:
            info = self.zip.getinfo(self.root + name)
            if info.file_size > most:
                raise ConvertError(f"{name}: {info.file_size} bytes, at most {most} expected")
            return self.zip.read(info)
        except (KeyError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as e:
            raise ConvertError(f"{name}: {e}") from e

    def floats(self, tensor, count, what):
        """The values of a contiguous vector of `count` float32."""
        ok = (isinstance(tensor, Tensor) and tensor.size == (count,) and tensor.stride == (1,)
              and isinstance(tensor.offset, int) and tensor.offset >= 0)
        if not ok:
            raise ConvertError(f"{what}: not a vector of {count} float32")
        raw = self.read("data/" + tensor.storage.key, 4 * MAX_VALUES)
        part = raw[4 * tensor.offset : 4 * (tensor.offset + count)]
        if len(part) != 4 * count:
            raise ConvertError(f"{what}: its storage has only {len(raw)} bytes")
        values = array.array("f", part)
        if sys.byteorder == "big":
            values.byteswap()
        if not all(map(math.isfinite, values)):
            raise ConvertError(f"{what}: a value is not a finite number")
        return values


def heads_of(stats):
    """{(layer, head): entry}, which must cover a full grid."""
    heads = {}
    for key, entry in stats.items():
        match = re.fullmatch(r"layer([0-9]+)_head([0-9]+)", str(key))
        if not match or not isinstance(entry, dict):
            raise ConvertError(f"stats: unknown entry {str(key)[:60]!r}")
        heads[int(match[1]), int(match[2])] = entry
    if not heads:
        raise ConvertError("stats: no heads")
    layers = 1 + max(l for l, _ in heads)
    count = 1 + max(h for _, h in heads)
    missing = [(l, h) for l in range(layers) for h in range(count) if (l, h) not in heads][:4]
    if missing or layers > 4096 or count > 4096:
        raise ConvertError(f"stats: {layers} layers x {count} heads, of which {missing} are missing")
    return heads, layers, count


def frequencies(metadata, bands, theta, config, archive):
    """Rotary frequencies; an error where they cannot be known: a guess would score noise."""
    given = metadata.get("inv_freq")
    if isinstance(given, Tensor):
        return [float(x) for x in archive.floats(given, bands, "inv_freq")]
    if isinstance(given, list) and len(given) == bands:
        return [float(x) for x in given]
    if config is not None:
        if config.get("rope_scaling"):
            raise ConvertError("config.json has a rope_scaling, and the file no inv_freq: convert is not "
                               "possible without one of the two being plain")
        theta = config.get("rope_theta", theta)
    if theta is None:
        if metadata.get("rope_scaling"):
            raise ConvertError("the file names a rope_scaling but holds no inv_freq")
        theta = metadata.get("rope_theta")
    if not isinstance(theta, (int, float)) or not theta > 1:
        raise ConvertError("the file does not say its rotary frequencies; give --rope-theta, or "
                           "--config with the model's config.json")
    return [theta ** (-f / bands) for f in range(bands)]


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def little(values):
    values = array.array(values.typecode, values)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def convert(path, theta=None, config=None, name=None):
    """Returns (bytes of the calibration file, layers, heads, bands)."""
    archive = Archive(path)
    state = PickleReader(archive.read("data.pkl", MAX_PICKLE)).read()
    if not isinstance(state, dict) or not isinstance(state.get("stats"), dict):
        raise ConvertError("no dict `stats` in the file")
    metadata = state.get("metadata") if isinstance(state.get("metadata"), dict) else {}
    if metadata.get("rope_style", "half") not in ("half", "interleaved"):
        raise ConvertError(f"unknown rope_style {str(metadata.get('rope_style'))[:40]!r}")
    heads, layers, count = heads_of(state["stats"])
    first = heads[0, 0].get("q_abs_mean")
    if not isinstance(first, Tensor) or not isinstance(first.size, tuple) or len(first.size) != 1:
        raise ConvertError("layer00_head00: no vector q_abs_mean")
    bands = first.size[0]
    if not isinstance(bands, int) or not 0 < bands <= 4096 or layers * count * bands > MAX_VALUES:
        raise ConvertError(f"{bands} bands")
    parts = []
    for field in ("q_mean_real", "q_mean_imag", "q_abs_mean"):
        for layer in range(layers):
            for head in range(count):
                what = f"layer{layer:02}_head{head:02} {field}"
                parts.append(little(archive.floats(heads[layer, head].get(field), bands, what)))
    inv_freq = frequencies(metadata, bands, theta, config, archive)
    label = str(name or metadata.get("model_name") or "converted").encode()[:4096]
    rows = metadata.get("num_tokens", 0)
    rows = rows if isinstance(rows, int) and 0 <= rows < 1 << 62 else 0
    out = b"PFCAL01\n" + struct.pack("<4IQ", layers, count, bands, len(label), rows) + label
    out += little(array.array("d", inv_freq)) + b"".join(parts)
    return out + struct.pack("<Q", fnv1a(out)), layers, count, bands


def main():
    parser = argparse.ArgumentParser(description="TriAttention .pt to pagefold calibration")
    parser.add_argument("input")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--rope-theta", type=float, help="base of the rotary frequencies")
    parser.add_argument("--config", help="the model's config.json, for the same")
    parser.add_argument("--name", help="model name to note in the file")
    args = parser.parse_args()
    try:
        config = None
        if args.config:
            with open(args.config, encoding="utf-8") as f:
                config = json.load(f)
        data, layers, heads, bands = convert(args.input, args.rope_theta, config, args.name)
        with open(args.output, "wb") as f:
            f.write(data)
    except (ConvertError, OSError, ValueError) as e:
        print(f"convert_triattention: error: {e}", file=sys.stderr)
        return 1
    print(f"{args.output}: {layers} layers x {heads} heads, {bands} bands")
    return 0


if __name__ == "__main__":
    sys.exit(main())
