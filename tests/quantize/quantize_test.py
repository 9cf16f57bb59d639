"""Black-box tests of `pagefold quantize` on a tiny model made here: the folders it makes are read by an
independent reader (plain Python, written from the formats' descriptions), value by value."""

import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("PAGEFOLD_BINARY", str(ROOT / "build/release/bin/pagefold"))
HIDDEN, FFN, LAYERS, HEADS, KV, DIM, VOCAB = 64, 96, 2, 4, 2, 16, 160
TEXT = " ".join(random.Random(3).choice(["alpha", "beta", "gamma", "of", "the", "and", "zeta"]) for _ in range(400))


def byte_chars():
    """GPT-2's printable stand-ins of the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, more = {}, 0
    for b in range(256):
        out[b] = chr(b if b in kept else 256 + more)
        more += b not in kept
    return out


def gguf_value(value):
    if isinstance(value, str):
        raw = value.encode()
        return 8, struct.pack("<Q", len(raw)) + raw
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, list):
        kind = gguf_value(value[0])[0]
        return 9, struct.pack("<IQ", kind, len(value)) + b"".join(gguf_value(v)[1] for v in value)
    return 4, struct.pack("<I", value)


def names():
    yield "token_embd", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        for name, shape in (("attn_norm", (HIDDEN,)), ("attn_q", (HEADS * DIM, HIDDEN)), ("attn_k", (KV * DIM, HIDDEN)),
                            ("attn_v", (KV * DIM, HIDDEN)), ("attn_output", (HIDDEN, HEADS * DIM)), ("ffn_norm", (HIDDEN,)),
                            ("ffn_gate", (FFN, HIDDEN)), ("ffn_up", (FFN, HIDDEN)), ("ffn_down", (HIDDEN, FFN))):
            yield f"blk.{i}.{name}", shape
    yield "output_norm", (HIDDEN,)


HF = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
      "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
      "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def hf_name(name):
    if name in HF:
        return HF[name] + ".weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{HF[part]}.weight"


def write_model(path):
    """A llama-type GGUF of float32; returns its tensors as a Hugging Face folder holds them."""
    rng = random.Random(1)
    tokens = [byte_chars()[b] for b in range(128)] + ["<|end|>", "th"]
    keys = {"general.architecture": "llama", "llama.block_count": LAYERS, "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": FFN, "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV,
            "llama.context_length": 256, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
            "llama.rope.dimension_count": DIM, "llama.vocab_size": VOCAB, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["t h"],
            "tokenizer.ggml.token_type": [1] * 128 + [3, 1], "tokenizer.ggml.eos_token_id": 128, "tokenizer.ggml.bos_token_id": 128}
    head, data, out = b"", b"", {}
    for name, shape in names():
        n = math.prod(shape)
        values = [1 + rng.gauss(0, 0.2) for _ in range(n)] if len(shape) == 1 else [rng.gauss(0, 0.15) for _ in range(n)]
        raw = struct.pack(f"<{n}f", *values)
        values = list(struct.unpack(f"<{n}f", raw))
        label = (name + ".weight").encode()
        head += struct.pack("<Q", len(label)) + label + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", d) for d in reversed(shape)) + struct.pack("<IQ", 0, len(data))
        data += raw + bytes(-len(raw) % 32)
        rows = [values[r * shape[-1]:(r + 1) * shape[-1]] for r in range(n // shape[-1])]
        if name.endswith(("attn_q", "attn_k")):  # pairs are adjacent in the file, halves apart in the folder
            rows = [rows[r // DIM * DIM + (2 * (r % DIM) if r % DIM < DIM // 2 else 2 * (r % DIM) - DIM + 1)] for r in range(len(rows))]
        out[hf_name(name)] = rows if len(shape) == 2 else rows[0]
    meta = b""
    for key, value in keys.items():
        kind, body = gguf_value(value)
        meta += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + body
    blob = b"GGUF" + struct.pack("<IQQ", 3, len(out), len(keys)) + meta + head
    Path(path).write_bytes(blob + bytes(-len(blob) % 32) + data)
    return out


def e4m3(code):
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    return sign * (mantissa / 8 * 2 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2 ** (exponent - 7))


def read_folder(folder):
    """name -> (shape, flat values as Python numbers)."""
    out = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        blob = path.read_bytes()
        n = struct.unpack_from("<Q", blob)[0]
        header, data = json.loads(blob[8:8 + n]), memoryview(blob)[8 + n:]
        header.pop("__metadata__", None)
        covered = 0
        for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = t["data_offsets"]
            assert begin == covered, "a hole in the file"
            covered = end
            code = {"F32": "f", "F16": "e", "I32": "I", "U8": "B", "I8": "b", "F8_E4M3": "B", "BF16": "H"}[t["dtype"]]
            values = struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}", data[begin:end])
            if t["dtype"] == "BF16":
                values = struct.unpack(f"<{len(values)}f", b"".join(struct.pack("<I", v << 16) for v in values))
            if t["dtype"] == "F8_E4M3":
                values = [e4m3(v) for v in values]
            out[name] = (t["shape"], values)
        assert covered == len(data)
    return out


def unpacked(words, bits, order=None):
    for w in words:
        for j in range(32 // bits):
            yield w >> bits * (order[j] if order else j) & ((1 << bits) - 1)


def matrix(tensors, module, q):
    """A linear's values [out][in], whatever it is kept in."""
    get = lambda suffix: tensors[f"{module}.{suffix}"]
    has = lambda suffix: f"{module}.{suffix}" in tensors
    if has("qweight"):
        (groups, n), scales = get("scales")
        bits = q["bits"]
        if q["quant_method"] == "awq":
            order = [0, 4, 1, 5, 2, 6, 3, 7]
            k = get("qweight")[0][0]
            ints, zeros = list(unpacked(get("qweight")[1], 4, order)), list(unpacked(get("qzeros")[1], 4, order))
            value = lambda o, i, g: ints[i * n + o] - zeros[g * n + o]
            index = [i // (k // groups) for i in range(k)]
        else:
            per = 32 // bits
            k = get("qweight")[0][0] * per
            words, zeros = get("qweight")[1], list(unpacked(get("qzeros")[1], bits))
            value = lambda o, i, g: (words[i // per * n + o] >> bits * (i % per) & ((1 << bits) - 1)) - (zeros[g * n + o] + 1)
            index = get("g_idx")[1]
        return [[value(o, i, index[i]) * scales[index[i] * n + o] for i in range(k)] for o in range(n)]
    if has("weight.absmax"):
        state = json.loads(bytes(get("weight.quant_state.bitsandbytes__nf4")[1]))
        n, k = state["shape"]
        codes = [c for b in get("weight")[1] for c in (b >> 4, b & 15)]
        absmax = get("weight.absmax")[1]
        if "nested_offset" in state:
            table, nested = get("weight.nested_quant_map")[1], get("weight.nested_absmax")[1]
            absmax = [table[a] * nested[i // state["nested_blocksize"]] + state["nested_offset"] for i, a in enumerate(absmax)]
        table = get("weight.quant_map")[1]
        return [[table[codes[r * k + c]] * absmax[(r * k + c) // state["blocksize"]] for c in range(k)] for r in range(n)]
    shape, values = get("weight")
    n, k = shape
    scale = [1.0] * n
    if has("SCB"):
        assert get("weight_format") == ([], (0,))
        scale = [s / 127 for s in get("SCB")[1]]
    if has("weight_scale_inv"):  # no block is cut off at an edge
        (down, across), s = get("weight_scale_inv")
        block = q["weight_block_size"][0]
        assert (n, k) == (down * block, across * block)
        return [[values[r * k + c] * s[r // block * across + c // block] for c in range(k)] for r in range(n)]
    if has("weight_scale"):
        s = get("weight_scale")[1]
        scale = list(s) if len(s) == n else [s[0]] * n
    return [[values[r * k + c] * scale[r] for c in range(k)] for r in range(n)]


def relative_error(got, want):
    flat = [(g, w) for a, b in zip(got, want) for g, w in zip(a, b)]
    return math.sqrt(sum((g - w) ** 2 for g, w in flat) / sum(w * w for _, w in flat))


class QuantizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.base = Path(cls.dir.name)
        cls.model = cls.base / "tiny.gguf"
        cls.source = write_model(cls.model)
        (cls.base / "text.txt").write_text(TEXT)

    def run_it(self, *args, code=0, **more):
        done = subprocess.run([BINARY, "quantize", *map(str, args)], capture_output=True, text=True, timeout=120, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def make(self, method, *args):
        out = self.base / f"{method}{len(args)}{'-'.join(args)}".replace("/", "")
        done = self.run_it(self.model, "-o", out, "--method", method, "--text", self.base / "text.txt", "--json", *args)
        report = json.loads(done.stdout)
        self.assertEqual(report["method"], method)
        self.assertGreater(sum(f.stat().st_size for f in out.glob("*.safetensors")), report["bytes"])
        config = json.loads((out / "config.json").read_text())
        return out, report, config.get("quantization_config"), read_folder(out)

    def linears(self):
        return [name[:-7] for name, v in self.source.items() if "_proj" in name]

    def test_float32_is_exact(self):
        for shard in ("1k", "5g"):
            out, report, q, tensors = self.make("none", "--dtype", "float32", "--max-shard-size", shard)
            self.assertIsNone(q)
            self.assertEqual(report["bits_per_weight"], 32)
            self.assertLess(report["kld_mean"], 1e-9)
            self.assertEqual(set(tensors), set(self.source))
            files = len(list(out.glob("*.safetensors")))
            self.assertEqual(files == 1, shard == "5g")
            for name, (shape, values) in tensors.items():
                want = self.source[name]
                want = [v for row in want for v in row] if isinstance(want[0], list) else want
                self.assertEqual(list(values), want, name)
        index = json.loads((self.base / "none4--dtype-float32---max-shard-size-1k/model.safetensors.index.json").read_text())
        self.assertEqual(set(index["weight_map"]), set(self.source))

    def test_the_tokenizer_is_the_models(self):
        out = self.make("none")[0]
        tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
        self.assertEqual(tokenizer.encode("the 12<|end|>", add_special_tokens=True).ids, [129, 101, 32, 49, 50, 128])
        self.assertEqual(tokenizer.decode([129, 101, 32, 49]), "the 1")

    def test_values_that_need_no_calibration(self):
        for method, args, most in (("fp8", (), 0.03), ("fp8", ("--fp8-scales", "tensor"), 0.03),
                                   ("fp8", ("--fp8-scales", "block"), 0.03), ("bnb-int8", (), 0.01),
                                   ("bnb-nf4", (), 0.1), ("bnb-nf4", ("--no-double-quant",), 0.1)):
            with self.subTest(method=method, args=args):
                _, report, q, tensors = self.make(method, *args)
                self.assertIn(q["quant_method"], {"fp8", "compressed-tensors", "bitsandbytes"})
                for module in self.linears():
                    error = relative_error(matrix(tensors, module, q), self.source[module + ".weight"])
                    self.assertLess(error, most, module)
                    self.assertGreater(error, 1e-4, module)
                self.assertGreater(report["kld_mean"], 0)

    def test_gptq(self):
        for args, most in (((), 0.16), (("--desc-act",), 0.16), (("--no-sym",), 0.16), (("--bits", "8"), 0.02), (("--bits", "2"), 0.9)):
            with self.subTest(args=args):
                _, report, q, tensors = self.make("gptq", *args)
                self.assertEqual(q["group_size"], 32)
                self.assertEqual(q["desc_act"], "--desc-act" in args)
                for module in self.linears():
                    index = tensors[module + ".g_idx"][1]
                    self.assertEqual(list(index) == [i // 32 for i in range(len(index))], "--desc-act" not in args, module)
                    self.assertLess(relative_error(matrix(tensors, module, q), self.source[module + ".weight"]), most, module)
                self.assertGreater(report["calibration_tokens"], 500)

    def test_awq(self):
        _, report, q, tensors = self.make("awq")
        self.assertEqual((q["bits"], q["version"], q["zero_point"]), (4, "gemm", True))
        value = lambda name: tensors[name][1]
        for layer in range(LAYERS):
            p = f"model.layers.{layer}."
            # What a norm was divided by, the columns behind it carry.
            for norm, modules in (("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj")), ("post_attention_layernorm", ("mlp.gate_proj",))):
                scale = [a / b for a, b in zip(value(p + norm + ".weight"), self.source[p + norm + ".weight"])]
                for module in modules:
                    got = [[v * s for v, s in zip(row, scale)] for row in matrix(tensors, p + module, q)]
                    self.assertLess(relative_error(got, self.source[p + module + ".weight"]), 0.16, module)
            # v and o, up and down only mean something together: the product of a column and a row.
            up, down = (matrix(tensors, p + f"mlp.{m}_proj", q) for m in ("up", "down"))
            want_up, want_down = (self.source[p + f"mlp.{m}_proj.weight"] for m in ("up", "down"))
            norm = value(p + "post_attention_layernorm.weight")
            want_norm = self.source[p + "post_attention_layernorm.weight"]
            got = [[down[0][f] * up[f][i] * norm[i] for i in range(HIDDEN)] for f in range(FFN)]
            want = [[want_down[0][f] * want_up[f][i] * want_norm[i] for i in range(HIDDEN)] for f in range(FFN)]
            self.assertLess(relative_error(got, want), 0.3)
        self.assertLess(report["kld_mean"], 0.2)

    def test_wrong_use(self):
        def wrong(*args, says, code=2):
            out = self.base / "wrong"
            done = self.run_it(*args, "-o", out, code=code)
            self.assertEqual(done.stdout, "")
            self.assertIn(says, done.stderr)
            self.assertFalse(out.exists())
            self.assertEqual(list(self.base.glob(".wrong*")), [])

        wrong(self.model, "--method", "awq8", says="bnb-nf4")
        wrong(self.model, says="--method")
        wrong(self.model, "--method", "gptq", "--bits", "5", says="2, 3, 4 or 8")
        wrong(self.model, "--method", "awq", "--group-size", "48", says="does not divide")
        wrong(self.base / "absent.gguf", "--method", "fp8", says="no such file", code=1)
        quantised = self.make("fp8", "--force")[0]
        wrong(quantised, "--method", "gptq", says="compressed-tensors")
        done = self.run_it(self.model, "-o", quantised, "--method", "none", code=2)
        self.assertIn("--force", done.stderr)
        self.assertTrue((quantised / "config.json").exists())

    def test_a_full_disk_leaves_nothing(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))

        out = self.base / "full"
        done = self.run_it(self.model, "-o", out, "--method", "none", "--eval-tokens", "0", code=1, preexec_fn=limit)
        self.assertIn("File too large", done.stderr)
        self.assertFalse(out.exists())
        self.assertEqual(list(self.base.glob(".full*")), [])


if __name__ == "__main__":
    unittest.main()
