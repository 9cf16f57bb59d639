"""The rows of the speed table: what is measured, what must be reached at least (gate) and what is aimed at (target)."""
from dataclasses import dataclass


@dataclass(frozen=True)
class PeerRow:
    """A step of ours against one of llama.cpp."""
    row: int
    name: str
    gate: float
    target: float
    test: str                # decode, prefill (of `tokens` rows at the depth)
    depth: int
    seqs: int = 1
    tokens: int = 1          # rows of a prefill step
    steps: int = 32          # decode steps of one measurement
    kv: str = "bfloat16"     # ours
    peer_kv: str = "f16"
    model: str = "default"


@dataclass(frozen=True)
class OwnRow:
    """A ratio or share that needs no peer; own_rows.py measures it."""
    row: int
    name: str
    gate: float
    target: float
    key: str
    less: bool = False       # the smaller the better


ROWS = [
    PeerRow(1, "decode, batch 1, short context", 1.5, 2.8, "decode", 64, steps=128),
    PeerRow(2, "decode, batch 8, depth 512", 2.5, 4, "decode", 512, 8),
    PeerRow(2, "decode, batch 32, depth 512", 2.5, 4, "decode", 512, 32, steps=12),
    PeerRow(3, "prefill 512", 3, 7, "prefill", 0, tokens=512),
    PeerRow(4, "prefill 512 at depth 8,192", 2, 3, "prefill", 8192, tokens=512),
    PeerRow(5, "decode at 8K, 16-bit KV", 3, 4.5, "decode", 8192),
    PeerRow(5, "decode at 8K, 8-bit KV", 6, 12, "decode", 8192, kv="int8", peer_kv="q8_0", steps=16),
    PeerRow(6, "decode at 32K, 16-bit KV", 3, 5, "decode", 32768, steps=12),
    PeerRow(6, "decode at 32K, 8-bit KV", 6, 16, "decode", 32768, kv="int8", peer_kv="q8_0", steps=6),
    PeerRow(7, "batch 8 at 8K, bfloat16 against f16 KV", 3, 5, "decode", 8192, 8, steps=8),
    PeerRow(7, "batch 8 at 8K, int8 against f16 KV", 5, 8, "decode", 8192, 8, kv="int8", steps=8),
    OwnRow(8, "attention kernel, share of read bandwidth, bfloat16", 0.60, 0.80, "attention/bf16"),
    OwnRow(8, "attention kernel, share of read bandwidth, int8", 0.60, 0.75, "attention/int8"),
    OwnRow(8, "attention kernel, share of read bandwidth, int4", 0.60, 0.60, "attention/int4"),
    OwnRow(9, "weight pass, share of read bandwidth, batch 1", 0.70, 0.90, "weights"),
    OwnRow(10, "10x eviction, batch 8 at 8K", 3, 4.5, "evicted/8192/8"),
    OwnRow(10, "10x eviction, batch 1 at 8K", 1.7, 2.1, "evicted/8192/1"),
    OwnRow(10, "10x eviction, batch 1 at 32K", 3, 4, "evicted/32768/1"),
    OwnRow(11, "scoring and compaction every 128 steps, fill, triattention", 0.03, 0.01, "compaction/triattention", less=True),
    OwnRow(11, "scoring and compaction every 128 steps, fill, h2o", 0.03, 0.01, "compaction/h2o", less=True),
    OwnRow(11, "scoring and compaction every 128 steps, fill, kvcompress", 0.03, 0.01, "compaction/kvcompress", less=True),
    OwnRow(11, "scoring and compaction every 128 steps, fill, rkv", 0.03, 0.01, "compaction/rkv", less=True),
    OwnRow(12, "throughput beside one foreign process, against none", 0.40, 0.60, "hog"),
    PeerRow(13, "Qwen3-0.6B shape, Q8_0, decode, batch 1", 1.5, 2, "decode", 64, steps=32, model="qwen3"),
]
