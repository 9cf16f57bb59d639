#!/usr/bin/env python3
"""Records tests/model/golden/greedy.json: greedy tokens of the default model by reference_logits.py (numpy, float32).

Usage: record_greedy.py MODEL.gguf [OUT.json]        Needs: pip install numpy gguf llama-cpp-python (its tokenizer only)
"""
import json
import os
import sys

import numpy as np
from llama_cpp import Llama

from reference_logits import forward, read_model

PROMPTS = ["The capital of France is", "def fibonacci(n):\n    ", "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"]
NEW = 20


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "..", "tests", "model", "golden", "greedy.json")
    shape, weights = read_model(sys.argv[1])
    tokenizer = Llama(sys.argv[1], vocab_only=True, verbose=False)
    cases = []
    for text in PROMPTS:
        prompt = tokenizer.tokenize(text.encode(), add_bos=False, special=True)
        ids, least = list(prompt), np.inf
        while len(ids) < len(prompt) + NEW:
            row = forward(shape, weights, np.array(ids))[-1]
            best = np.sort(row)[-2:]
            least = min(least, best[1] - best[0])
            ids.append(int(row.argmax()))
        answer = ids[len(prompt):]
        print(repr(tokenizer.detokenize(answer).decode()), "least margin", least)
        cases.append(dict(prompt=prompt, answer=answer))
    with open(out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
