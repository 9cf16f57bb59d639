#!/usr/bin/env python3
"""pagefold against llama.cpp on the same file and machine, and against the machine itself: the rows of rows.py.

    bench/peers/llama_cpp.py MODEL.gguf --work DIR [--rows 1,4,8] [--repeat 5] [--isa avx2] [--out bench/results/NAME.json]

Builds the peer natively from its Python source package into build/peer-venv on the first run; with --isa avx2 both sides
keep to AVX2 (rows against the peer alone). Its cache is computed once,
saved in DIR at each depth and restored by later runs (`--fill` does only that, and makes the random model of Qwen3-0.6B's
shape). A depth of 32,768 repeats the rows computed for 8,192: speed does not depend on what is in the cache.
For each row the peer's best of 1 and 2 threads and flash attention on and off is chosen in a pilot, then both sides take
turns, and medians are compared. Ours is the whole forward step from tokens to logits (step_bench), the peer's is
llama_decode; neither samples. --out is written after every row, and rows that are not asked for keep what it holds.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import own_rows
from programs import BUILDS, ROOT, Peer, Steps, peer_python, read_bandwidth
from rows import ROWS, OwnRow

COMPUTED = (512, 8192)  # depths; 32,768 is the last of them four times
REPEAT = 4
SETTLE_S = 0.1  # the other side's idle threads spin for some milliseconds (OpenMP's do) before they sleep
DEPTHS = (*COMPUTED, COMPUTED[-1] * REPEAT)


class Run:
    def __init__(self, args):
        self.args = args
        self.peers = {}
        self.work = pathlib.Path(args.work)

    def model(self, name):
        if name == "default":
            return self.args.model
        path = self.work / "qwen3-shape.gguf"
        if not path.exists():
            part = self.work / "qwen3-shape.part"
            subprocess.run([peer_python(), ROOT / "bench/peers/random_gguf.py", part], check=True)
            part.rename(path)
        return str(path)

    def peer(self, name):
        if name not in self.peers:
            self.peers[name] = Peer(self.model(name), self.args.isa)
        return self.peers[name]

    def states(self):
        """A folder for the model's file; made full once."""
        size = pathlib.Path(self.args.model).stat().st_size
        folder = self.work / f"{pathlib.Path(self.args.model).stem}-{size}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def fill(self):
        self.peer("default").do("fill", threads=self.args.threads, depths=list(COMPUTED), repeat=REPEAT, dir=str(self.states()))

    def peer_contexts(self, row):
        """Opens a context with flash attention and, where the cache is not quantised, one without."""
        state = None
        filled = row.depth if row.depth in DEPTHS else 0
        if filled:
            self.fill()
            state = str(self.states() / f"{filled}.state")
        peer = self.peer(row.model)
        flash = (1,) if row.peer_kv == "q8_0" else (0, 1)
        for f in flash:
            peer.do("open", slot=f, threads=self.args.threads, flash=f, kv=row.peer_kv, seqs=row.seqs, depth=filled,
                    room=max(row.tokens, row.steps, row.depth - filled + row.steps) + 16, state=state)
        return peer, flash


def peer_seconds(peer, row, threads, flash, pilot=False):
    if row.test == "prefill":
        rows = row.tokens // 4 if pilot else row.tokens
        return peer.do("prefill", slot=flash, threads=threads, rows=rows)["seconds"] * row.tokens / rows
    steps = max(2, row.steps // 4) if pilot else row.steps
    return peer.do("decode", slot=flash, threads=threads, steps=steps)["seconds"] / steps


def versus_peer(run, row):
    args = run.args
    # The middle of what the peer's steps see.
    depth = row.depth if row.test == "prefill" else row.depth + row.steps // 2
    spec = f"len={depth},batch={row.seqs},rows={row.tokens},kv={row.kv},threads={args.threads}"
    if args.kv_huge_pages:
        spec += ",huge=on"
    peer, flashes = run.peer_contexts(row)
    pilot = {(t, f): peer_seconds(peer, row, t, f, pilot=True) for f in flashes for t in (1, args.threads)}
    threads, flash = min(pilot, key=pilot.get)
    for f in flashes:
        if f != flash:
            peer.do("close", slot=f)
    steps = 1 if row.test == "prefill" else row.steps
    a, b = [], []
    with Steps(run.model(row.model), [spec], args.isa) as ours:
        for _ in range(args.repeat):
            time.sleep(SETTLE_S)
            a.append(ours.seconds(steps) / steps)
            time.sleep(SETTLE_S)
            b.append(peer_seconds(peer, row, threads, flash))
    peer.do("close", slot=flash)
    per_step = row.seqs * row.tokens
    return {"value": statistics.median(b) / statistics.median(a), "pagefold_tokens_per_s": per_step / statistics.median(a),
            "peer_tokens_per_s": per_step / statistics.median(b), "peer_threads": threads, "peer_flash": flash,
            "samples": {"pagefold_s": a, "peer_s": b}, "peer": peer.about,
            "pilot": {f"threads {t}, flash {f}": per_step / s for (t, f), s in pilot.items()},
            "command": f"build/release/bin/step_bench MODEL {spec}"}


def shown(value, row):
    return f"{value * 100:.1f} %" if isinstance(row, OwnRow) and not row.key.startswith("evicted") else f"{value:.2f}x"


def reached(value, limit, row):
    return value <= limit if getattr(row, "less", False) else value >= limit


def print_row(row, r):
    mark = "target" if reached(r["value"], row.target, row) else "gate" if reached(r["value"], row.gate, row) else "MISSED"
    detail = (f"{r['pagefold_tokens_per_s']:.1f} against {r['peer_tokens_per_s']:.1f} tokens/s ({r['peer_threads']} threads, flash attention "
              f"{'on' if r['peer_flash'] else 'off'})" if "peer_threads" in r else "")
    print(f"| {row.row} | {row.name} | {shown(row.gate, row)} | {shown(row.target, row)} | {shown(r['value'], row)} | {mark} | {detail} | "
          f"{r['read_gb_per_s'][0]:.1f}, {r['read_gb_per_s'][1]:.1f} |", flush=True)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--work", default=str(ROOT / "build" / "peer-work"), help="states and made models, reused")
    parser.add_argument("--rows", help="numbers of rows, such as 1,4 or 6:8-bit (a part of the name); all if not given")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=list(BUILDS), default="native", help="what both sides may use")
    parser.add_argument("--kv-huge-pages", action="store_true", help="our cache in pages of 2 MiB (serve --kv-huge-pages)")
    parser.add_argument("--fill", action="store_true", help="only make what --work lacks")
    parser.add_argument("--out")
    return parser.parse_args()


def chosen(row, words):
    if not words:
        return True
    numbers = [w.partition(":") for w in words.split(",")]
    return any(int(n) == row.row and part in row.name for n, _, part in numbers)


def main():
    args = parse_args()
    pathlib.Path(args.work).mkdir(parents=True, exist_ok=True)
    run = Run(args)
    if args.fill:
        run.fill()
        run.model("qwen3")
        return
    out = pathlib.Path(args.out) if args.out else None
    results = json.loads(out.read_text())["rows"] if out and out.exists() else {}
    print("| # | quantity | gate | target | measured | | | read before, after (GB/s) |\n|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        if not chosen(row, args.rows) or (args.isa != "native" and isinstance(row, OwnRow)):
            continue
        before = read_bandwidth()
        try:
            r = own_rows.measure(row.key, args) if isinstance(row, OwnRow) else versus_peer(run, row)
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"| {row.row} | {row.name} | not measured: {error} |", file=sys.stderr)
            run.peers.clear()  # one that ended is started again
            continue
        r |= {"row": row.row, "gate": row.gate, "target": row.target, "read_gb_per_s": [before, read_bandwidth()]}
        results[row.name] = r
        print_row(row, r)
        if out:
            order = [x.name for x in ROWS]
            kept = {name: results[name] for name in sorted(results, key=lambda n: order.index(n) if n in order else len(order))}
            out.write_text(json.dumps({"rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
