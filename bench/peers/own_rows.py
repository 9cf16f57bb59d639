"""The rows that compare pagefold with itself or with the machine. Each returns the value, its samples and the command."""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

from programs import BIN, Steps


def _run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _named(value, samples, command):
    words = ("MODEL" if str(c).endswith(".gguf") else str(c).replace(str(BIN.parents[2]) + "/", "") for c in command)
    return {"value": value, "samples": samples, "command": " ".join(words)}


def attention(kind, args):
    command = [BIN / "attention_bench", f"--benchmark_filter=^memory/avx512/{kind}/dim64/group3/threads:2",
               "--benchmark_min_time=0.3", "--benchmark_format=json"]
    runs = [json.loads(_run(command))["benchmarks"][0] for _ in range(args.repeat)]
    shares = [r["share"] for r in runs]
    return _named(statistics.median(shares), {"share": shares, "GB/s": [r["GB/s"] for r in runs],
                                              "read_GB/s": [r["limit"] for r in runs], "reader_GB/s": [r["reader"] for r in runs]}, command)


def weights(args):
    """Bytes of all weights over the time of all stages that read any, in the step of median time."""
    with tempfile.TemporaryDirectory() as folder:
        command = [BIN / "pagefold", "bench", args.model, "--contexts", "64", "--batches", "1", "--repeat", "40", "--prompt-tokens", "1", "-n", "0", "-o", f"{folder}/out"]
        shares, reads = [], []
        for _ in range(args.repeat):
            _run(command)
            report = json.loads(next(pathlib.Path(folder).glob("**/*.json")).read_text())
            step = next(r for r in report["rows"] if r["test"] == "decode")
            stages = [s for s in step["stages"] if s["stage"] not in ("attention", "embed", "other")]
            rate = sum(s["bytes"] for s in stages) / sum(s["ms"] for s in stages) * 1e-6
            reads.append(report["machine"]["read_gb_per_s"])
            shares.append(rate / reads[-1])
    return _named(statistics.median(shares), {"share": shares, "read_GB/s": reads}, command[:-1] + ["OUT"])


def evicted(depth, batch, args):
    """Steps over a full cache and over a tenth of it, with half an interval of 128 tokens on top, in turn."""
    depth, batch = int(depth), int(batch)
    specs = [f"len={depth},batch={batch}", f"len={depth // 10 + 64},batch={batch}"]
    with Steps(args.model, specs) as ours:
        full, less = [], []
        for _ in range(args.repeat):
            full.append(ours.seconds(8, 0) / 8)
            less.append(ours.seconds(16, 1) / 16)
    return _named(statistics.median(full) / statistics.median(less), {"full_s": full, "evicted_s": less},
                  [BIN / "step_bench", "MODEL", *specs])


def compaction(policy, args):
    command = [BIN / "engine_bench", args.model, "prompt=2304", "gen=512", f"kv.policy={policy}", "kv.budget=2048", "kv.packing=fill",
               "kv.interval=128", "kv.protect_prompt=off"]
    shares = []
    for _ in range(min(args.repeat, 3)):
        answer = json.loads(_run(command).splitlines()[-1])
        if not answer["compactions"]:
            raise RuntimeError(f"{policy} did not compact")
        shares.append(answer["scoring"] + answer["moving"])
    return _named(statistics.median(shares), {"share": shares}, command)


def hog(args):
    """Short decode steps with and without a process that never sleeps, in turn."""
    with Steps(args.model, ["len=64"]) as ours:
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            alone, beside = [], []
            for _ in range(args.repeat):
                os.kill(other.pid, signal.SIGSTOP)
                alone.append(ours.seconds(200) / 200)
                os.kill(other.pid, signal.SIGCONT)
                beside.append(ours.seconds(200) / 200)
        finally:
            other.kill()
    return _named(statistics.median(alone) / statistics.median(beside), {"alone_s": alone, "beside_s": beside},
                  [BIN / "step_bench", "MODEL", "len=64", "serve=on"])


def measure(key, args):
    what, *rest = key.split("/")
    return {"attention": attention, "weights": weights, "evicted": evicted, "compaction": compaction, "hog": hog}[what](*rest, args)
