#!/usr/bin/env python3
"""Draws docs/memory.svg: bytes of the KV cache against tokens, full and compressed, as /api/state tells while a server answers.

  tools/plot_memory.py MODEL [--tokens 2000] [--policy triattention] [--budget 256] [--out docs/memory.svg]
"""

import argparse
import http.client
import json
import re
import subprocess
import threading
import time

COLOURS = {"full": "#c47a00", "small": "#2f7dd1"}


def measure(port, kv, tokens):
    """[(tokens computed, bytes)] while one answer is made."""
    def generate():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        c.request("POST", "/v1/completions", json.dumps(
            {"prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "kv": kv}),
            {"Content-Type": "application/json"})
        c.getresponse().read()

    worker = threading.Thread(target=generate)
    worker.start()
    points, c = [], http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while worker.is_alive():
        c.request("GET", "/api/state")
        state = json.loads(c.getresponse().read())
        for s in state["sequences"][:1]:
            points.append((s["computed_tokens"], s["blocks"] * state["pool"]["block_bytes"]))
        time.sleep(0.03)
    worker.join()
    return points


def draw(full, small, label, command):
    w, h, left, bottom, top, right = 720, 300, 62, 40, 34, 16
    most_x = max(p[0] for p in full + small)
    most_y = max(p[1] for p in full + small) * 1.05
    x = lambda v: left + (w - left - right) * v / most_x
    y = lambda v: h - bottom - (h - bottom - top) * v / most_y
    path = lambda points: "M" + "L".join(f"{x(a):.0f} {y(b):.0f}" for a, b in points)
    mib = 1 << 20
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10 ** 6) if most_y / mib / s <= 6)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="12">',
           f"<title>KV cache against tokens, full and {label}</title><desc>{command}</desc>",
           "<style>text{fill:#333}.g{stroke:#ccc}@media(prefers-color-scheme:dark){text{fill:#ccc}.g{stroke:#444}}</style>"]
    for v in range(0, int(most_y / mib) + 1, step):
        out.append(f'<path class="g" d="M{left} {y(v * mib):.0f}H{w - right}"/>'
                   f'<text x="{left - 6}" y="{y(v * mib) + 4:.0f}" text-anchor="end">{v} MiB</text>')
    for v in range(0, most_x + 1, 500):
        out.append(f'<text x="{x(v):.0f}" y="{h - 20}" text-anchor="middle">{v:,}</text>')
    out.append(f'<text x="{w / 2}" y="{h - 4}" text-anchor="middle">tokens</text>')
    for i, (name, points, text) in enumerate((("full", full, "full cache"), ("small", small, label))):
        out.append(f'<path d="{path(points)}" fill="none" stroke="{COLOURS[name]}" stroke-width="2.5"/>')
        out.append(f'<path d="M{left + 10 + 330 * i} 16h24" stroke="{COLOURS[name]}" stroke-width="3"/>'
                   f'<text x="{left + 40 + 330 * i}" y="20">{text}: {points[-1][1] / mib:.1f} MiB at the end</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def thinned(points, most=300):
    step = max(1, len(points) // most)
    return points[::step] + points[-1:]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("model")
    args.add_argument("--binary", default="build/release/bin/pagefold")
    args.add_argument("--tokens", type=int, default=2000)
    args.add_argument("--policy", default="triattention")
    args.add_argument("--budget", type=int, default=256)
    args.add_argument("--out", default="docs/memory.svg")
    a = args.parse_args()
    server = subprocess.Popen([a.binary, "serve", a.model, "--port", "0", "--log-level", "warn"],
                              stderr=subprocess.PIPE, text=True)
    try:
        port = next(int(m.group(1)) for line in server.stderr if (m := re.search(r"listening on http://\S+:(\d+)", line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()
        full = measure(port, {"policy": "full"}, a.tokens)
        small = measure(port, {"policy": a.policy, "budget": a.budget}, a.tokens)
    finally:
        server.kill()
        server.wait()
    command = f"tools/plot_memory.py MODEL --tokens {a.tokens} --policy {a.policy} --budget {a.budget}"
    with open(a.out, "w") as f:
        f.write(draw(thinned(full), thinned(small), f"{a.policy}, budget {a.budget}", command))


if __name__ == "__main__":
    main()
