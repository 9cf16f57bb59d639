"""The programs that are measured, as processes that answer one line for one line."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "release" / "bin"
# How the peer is built, by instruction set; each build has an environment of its own.
BUILDS = {"native": "-DGGML_NATIVE=ON",
          "avx2": "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=OFF"}


def peer_python(isa="native"):
    """Builds the peer from its source package on the first run."""
    venv = ROOT / "build" / ("peer-venv" if isa == "native" else f"peer-venv-{isa}")
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    if subprocess.run([python, "-c", "import llama_cpp, gguf"], capture_output=True).returncode != 0:
        print("building the peer from source (several minutes) ...", file=sys.stderr)
        env = dict(os.environ, CMAKE_ARGS=f"{BUILDS[isa]} -DLLAMA_CURL=OFF")
        subprocess.run([python, "-m", "pip", "install", "-q", "gguf"], check=True)
        # Not from pip's cache, which may hold a wheel of another build.
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-binary", "llama-cpp-python", "llama-cpp-python"],
                       check=True, env=env)
    return python


class Program:
    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env=env)
        self.first = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended: run {' '.join(map(str, self.process.args))}")
        return line.strip()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


class Peer(Program):
    def __init__(self, model, isa):
        super().__init__([peer_python(isa), ROOT / "bench/peers/llama_driver.py", model])
        self.about = json.loads(self.first)

    def do(self, op, **job):
        return json.loads(self.ask(json.dumps({"op": op, **job})))


class Steps(Program):
    """Decode or prefill steps of ours over a cache of a given depth (step_bench); specs as it takes them."""

    def __init__(self, model, specs, isa="native"):
        env = None if isa == "native" else dict(os.environ, PAGEFOLD_ISA=isa)
        super().__init__([BIN / "step_bench", model, *specs, "serve=on"], env)

    def seconds(self, steps, index=0):
        return float(self.ask(f"{index} {steps}"))


def read_bandwidth():
    """GB/s that two threads read from memory."""
    return float(subprocess.run([BIN / "step_bench", "bandwidth"], check=True, capture_output=True, text=True).stdout)
