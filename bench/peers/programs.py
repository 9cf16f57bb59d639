"""The programs that are measured, as processes that answer one line for one line."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "release" / "bin"
VENV = ROOT / "build" / "peer-venv"


def peer_python():
    """Builds the peer natively from its source package on the first run."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if subprocess.run([python, "-c", "import llama_cpp, gguf"], capture_output=True).returncode != 0:
        print("building the peer from source (several minutes) ...", file=sys.stderr)
        env = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_CURL=OFF")
        subprocess.run([python, "-m", "pip", "install", "-q", "gguf"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", "llama-cpp-python"], check=True, env=env)
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
    def __init__(self, model):
        super().__init__([peer_python(), ROOT / "bench/peers/llama_driver.py", model])
        self.about = json.loads(self.first)

    def do(self, op, **job):
        return json.loads(self.ask(json.dumps({"op": op, **job})))


class Steps(Program):
    """Decode or prefill steps of ours over a cache of a given depth (step_bench); specs as it takes them."""

    def __init__(self, model, specs):
        super().__init__([BIN / "step_bench", model, *specs, "serve=on"])

    def seconds(self, steps, index=0):
        return float(self.ask(f"{index} {steps}"))


def read_bandwidth():
    """GB/s that two threads read from memory."""
    return float(subprocess.run([BIN / "step_bench", "bandwidth"], check=True, capture_output=True, text=True).stdout)
