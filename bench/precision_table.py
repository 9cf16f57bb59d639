#!/usr/bin/env python3
"""Measures what the precision of weights and of the cache changes: the table of docs/precision.md.

    bench/precision_table.py MODEL.gguf --work FOLDER make       the checkpoints, once (AWQ and GPTQ take minutes)
    bench/precision_table.py MODEL.gguf --work FOLDER quality    memory, KLD, perplexity; needs no quiet machine
    bench/precision_table.py MODEL.gguf --work FOLDER speed      decode and prefill; under 4 minutes, on a quiet machine
    bench/precision_table.py MODEL.gguf --work FOLDER table      writes what was measured into docs/precision.md

Measures are kept in bench/results/precision.json. Weights {bf16, AWQ, GPTQ, fp8, nf4, Q4_1, Q8_0}, all made of
MODEL.gguf, times KV {bf16, fp8_e4m3, fp8_e5m2, int8, int4, k int8 + v int4}; each runs as it is served: --dtype auto,
--activations auto. KLD is taken from MODEL.gguf on the exact path (float32, no rounding of activations, float32 KV).
Speeds are ratios to bf16 weights with bf16 KV, measured in turns with it by the same process.
Needs: pip install numpy gguf tokenizers
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results/precision.json"
DOCS = ROOT / "docs/precision.md"
BEGIN, END = "<!-- bench/precision_table.py writes from here -->\n", "<!-- to here -->\n"
METHODS = {"bf16": ["none", "--dtype", "bfloat16"], "AWQ": ["awq"], "GPTQ": ["gptq"], "fp8": ["fp8"], "nf4": ["bnb-nf4"]}
WEIGHTS = [*METHODS, "Q4_1", "Q8_0"]
KV = {"bf16": ("bfloat16", "auto"), "fp8_e4m3": ("fp8_e4m3", "auto"), "fp8_e5m2": ("fp8_e5m2", "auto"), "int8": ("int8", "auto"),
      "int4": ("int4", "auto"), "k int8, v int4": ("int8", "int4")}
MEMORY = 512 << 20  # for weights and cache
DEPTH, CHUNK = 4096, 128  # cached tokens of a decode step; rows of a prefill step
TEXT = "bench/precision_text.txt"


def path_of(args, weights):
    if weights == "Q4_1":
        return args.model
    return args.work / ("q8_0.gguf" if weights == "Q8_0" else weights.lower())


def run(args, tool, *words):
    done = subprocess.run([args.build / tool, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{tool} {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def write_q8_0(source, target):
    """The same file with every Q4_1 matrix as Q8_0."""
    import gguf
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        data, kind = t.data, t.tensor_type
        if kind == gguf.GGMLQuantizationType.Q4_1:
            kind = gguf.GGMLQuantizationType.Q8_0
            data = gguf.quantize(gguf.dequantize(t.data, t.tensor_type), kind)
        writer.add_tensor(t.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(args):
    args.work.mkdir(parents=True, exist_ok=True)
    for name, method in METHODS.items():
        out = path_of(args, name)
        if not out.exists():
            print("making", out, flush=True)
            run(args, "pagefold", "quantize", args.model, "-o", out, "--eval-tokens", "0", "--method", *method)
    if not path_of(args, "Q8_0").exists():
        part = args.work / "q8_0.part"
        write_q8_0(args.model, part)
        os.replace(part, path_of(args, "Q8_0"))


def write_tokens(args):
    import numpy
    from tokenizers import Tokenizer
    ids = Tokenizer.from_file(str(path_of(args, "bf16") / "tokenizer.json")).encode((ROOT / TEXT).read_text()).ids[:args.tokens]
    target = args.work / "tokens.i32"
    numpy.array(ids, numpy.int32).tofile(target)
    return target, len(ids)


def quality(args):
    tokens, n = write_tokens(args)
    reference = args.work / "reference.f32"
    run(args, "teacher_forced", args.model, tokens, "-", "dtype=float32", "activations=16", "kv=float32", f"out={reference}")
    rows = []
    for weights in args.weights:
        for kv, (k, v) in KV.items():
            out = run(args, "teacher_forced", path_of(args, weights), tokens, reference, f"kv={k}", f"kvv={v}")
            number = lambda pattern: float(re.search(pattern + r" ([-+.e\d]+)", out).group(1))
            rows.append({
                "weights": weights, "kv": kv, "weight_bytes": int(number("weights")), "kv_bytes_per_token":
                int(re.search(r"(\d+) bytes a token", out).group(1)), "kld": number("mean_kld"), "kld_p99": number("p99_kld"),
                "top1": number("top1"), "perplexity": number("perplexity")})
            print(rows[-1], flush=True)
    reference.unlink()
    keep("quality", {"text": TEXT, "tokens": n}, rows)


def speed(args):
    """One process a weight format: its caches and the baseline take turns, first decodes, then prefills."""
    begin, measured = time.monotonic(), []
    base = path_of(args, "bf16")
    for weights in args.weights:
        rows = {kv: {"weights": weights, "kv": kv} for kv in KV}
        for name, words, repeat in (("decode", f"len={DEPTH}", 9), ("prefill", f"len=0,rows={CHUNK}", 2)):
            specs = [f"{words},kv=bfloat16,model={base}"]
            specs += [f"{words},kv={k},kvv={v},model={path_of(args, weights)}" for k, v in KV.values()]
            lines = run(args, "step_bench", args.model, *specs, f"repeat={repeat}").splitlines()
            assert len(lines) == len(specs), lines
            for kv, line in zip(KV, lines[1:]):
                rows[kv][f"{name}_ratio"] = float(line.rsplit(" x ", 1)[1])
                rows[kv][f"{name}_tokens_per_s"] = float(re.search(r"([\d.]+) tokens/s", line).group(1))
        measured += rows.values()
        print(f"{weights}: {time.monotonic() - begin:.0f} s", flush=True)
    machine = next((line.split(": ", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    keep("speed", {"depth": DEPTH, "chunk": CHUNK, "machine": machine, "cores": len(os.sched_getaffinity(0))}, measured)


def table(args):
    del args
    results = load()
    rows = {}
    for part in ("quality", "speed"):
        for r in results.get(part, {}).get("rows", []):
            rows.setdefault((r["weights"], r["kv"]), {}).update(r)
    lines = ["| weights | KV | weights, MB | KV, bytes a token | tokens in 512 MiB | decode | prefill | KLD | perplexity |",
             "|---|---|---|---|---|---|---|---|---|"]
    for weights in WEIGHTS:
        for kv in KV:
            r = rows.get((weights, kv))
            if r is None:
                continue
            cell = lambda key, form: format(r[key], form) if key in r else "-"
            fit = f"{(MEMORY - r['weight_bytes']) // r['kv_bytes_per_token']:,}" if "weight_bytes" in r else "-"
            mb = f"{r['weight_bytes'] / 1e6:.1f}" if "weight_bytes" in r else "-"
            lines.append(f"| {weights} | {kv} | {mb} | {cell('kv_bytes_per_token', ',')} | {fit} | {cell('decode_ratio', '.2f')} | "
                         f"{cell('prefill_ratio', '.2f')} | {cell('kld', '.1e')} | {cell('perplexity', '.2f')} |")
    text = DOCS.read_text()
    assert BEGIN in text and END in text, f"{DOCS}: the marks are missing"
    DOCS.write_text(text[:text.index(BEGIN) + len(BEGIN)] + "\n".join(lines) + "\n" + text[text.index(END):])
    print("\n".join(lines))


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(part, facts, rows):
    """Rows of other weights stay, if they were measured the same way."""
    results = load()
    old = results.get(part, {})
    if any(old.get(key) != value for key, value in facts.items()):
        old = {}
    new = {r["weights"] for r in rows}
    rows = [r for r in old.get("rows", []) if r["weights"] not in new] + rows
    results[part] = facts | {"rows": sorted(rows, key=lambda r: WEIGHTS.index(r["weights"]))}
    lines = json.dumps(results, indent=1)
    lines = re.sub(r"\{\s+(\"weights\"[^}]*?)\s+\}", lambda m: "{" + re.sub(r"\s*\n\s*", " ", m.group(1)) + "}", lines)
    RESULTS.write_text(lines + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("steps", nargs="+", choices=["make", "quality", "speed", "table"])
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints, about 1 GB")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS, help="of the table's rows, these alone")
    parser.add_argument("--tokens", type=int, default=512, help="of the text, for quality")
    args = parser.parse_args()
    for step in args.steps:
        {"make": make, "quality": quality, "speed": speed, "table": table}[step](args)


if __name__ == "__main__":
    main()
