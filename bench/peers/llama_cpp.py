#!/usr/bin/env python3
"""pagefold against llama.cpp on the same file and machine, A B A B in one run; medians and ratios.

    bench/peers/llama_cpp.py MODEL.gguf [--repeat 5] [--out bench/results/NAME.json]

Builds the peer natively from its Python source package into build/peer-venv on the first run. For each row the peer's
best of 1 and 2 threads and flash attention on and off is chosen in a pilot, then both sides alternate.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build" / "peer-venv"
# name, prompt, gen, batch, field
ROWS = [
    ("decode, batch 1, short", 16, 128, 1, "decode_tokens_per_s"),
    ("prefill 512", 512, 1, 1, "prefill_tokens_per_s"),
    ("decode, batch 8, depth 512", 512, 64, 8, "decode_tokens_per_s"),
]


def peer_python():
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode != 0:
        print("building the peer from source (several minutes) ...", file=sys.stderr)
        env = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_CURL=OFF")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", "llama-cpp-python"], check=True, env=env)
    return python


class Peer:
    def __init__(self, model):
        self.process = subprocess.Popen([peer_python(), ROOT / "bench/peers/llama_driver.py", model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.about = json.loads(self.process.stdout.readline())

    def measure(self, row, threads, flash):
        _, prompt, gen, batch, field = row
        job = {"prompt": prompt, "gen": gen, "batch": batch, "threads": threads, "flash": flash}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())[field]


def ours(model, row, threads):
    _, prompt, gen, batch, field = row
    out = subprocess.run([ROOT / "build/release/bin/engine_bench", model, f"prompt={prompt}", f"gen={gen}", f"batch={batch}", f"threads={threads}"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])[field]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out")
    args = parser.parse_args()
    peer = Peer(args.model)
    print(f"peer: llama-cpp-python {peer.about['version']}, {peer.about['system_info']}")
    results = []
    for row in ROWS:
        pilot = {(t, f): peer.measure(row, t, f) for t in (1, args.threads) for f in (0, 1)}
        threads, flash = max(pilot, key=pilot.get)
        a, b = [], []
        for _ in range(args.repeat):
            a.append(ours(args.model, row, args.threads))
            b.append(peer.measure(row, threads, flash))
        ratio = statistics.median(a) / statistics.median(b)
        results.append({"row": row[0], "pagefold": a, "llama_cpp": b, "peer_threads": threads, "peer_flash": flash, "ratio": ratio,
                        "pilot": {f"threads {t} flash {f}": v for (t, f), v in pilot.items()}})
        print(f"{row[0]:28} pagefold {statistics.median(a):8.1f}  llama.cpp {statistics.median(b):8.1f} "
              f"(threads {threads}, flash {flash})  ratio {ratio:.2f}", flush=True)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps({"peer": peer.about, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
