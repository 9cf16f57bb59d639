// Attention of a step over the paged cache: which (sequence, KV head, rows, chunks) is computed by
// whom.
//
// The unit of work is a tile: up to kTileRows consecutive rows of one sequence for one KV head. A
// tile's chunks of 256 slots are merged in ascending order. When there are too few tiles for the
// threads (decode of a few long sequences) the chunks of a tile are computed by several threads,
// kept apart, and merged in the same order after a join: the numbers are the same either way.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kv_arena.h"
#include "backend/cpu/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

namespace pagefold::cpu {

class Attention {
 public:
  Attention(const kernels::Kernels& k, ThreadPool& pool) : k_(k), pool_(pool) {}

  struct Args {
    std::span<const SeqRows> seqs;
    int layer = 0;
    const float* qkv = nullptr;  // [rows][ld]: rotated q, k, v
    int64_t ld = 0;
    AttentionShape shape;
    float* out = nullptr;  // [rows][n_heads * head_dim]
  };
  // K and V of the step's rows are in the cache already.
  void run(const KvArena& arena, const Args& args);

 private:
  struct Tile {
    int seq, head, row, rows;    // row: within the sequence's rows
    int chunk_begin, chunk_end;  // visible chunks
    int partial;                 // first kept partial, or -1: merged by one thread
  };
  struct Unit {
    int tile, chunk_begin, chunk_end;
  };
  // One thread's buffers for a tile.
  struct Scratch {
    FloatBuffer heads, q, m, l, o, total_m, total_l, total_o;
  };
  void plan(const Args& args);
  const void* prepare_queries(const KvArena& arena, const Args& args, const Tile& tile, Scratch& s);
  void run_unit(const KvArena& arena, const Args& args, const Unit& unit, Scratch& s);
  void chunk(const KvArena& arena, const Args& args, const Tile& tile, int chunk, const void* q,
             const kernels::AttentionPartial& out);
  void finish(const Args& args, const Tile& tile, const kernels::AttentionPartial& total);
  void merge_kept(const Args& args, const Tile& tile, Scratch& s);
  kernels::AttentionPartial kept(int index, int group, int head_dim) const;

  const kernels::Kernels& k_;
  ThreadPool& pool_;
  std::vector<Tile> tiles_;
  std::vector<Unit> units_;
  std::vector<int> split_tiles_;
  std::vector<Scratch> scratch_;
  FloatBuffer kept_m_, kept_l_, kept_o_;
  size_t kept_ = 0;  // partials of kSplitRows rows each
  std::atomic<int> next_{0};
};

}  // namespace pagefold::cpu
