// Attention of a step over the paged cache: which (sequence, KV head, rows, chunks) is computed by
// whom.
//
// The unit of work is a tile: up to kTileRows consecutive rows of one sequence for one KV head. A
// tile's parts (slot_source.h: chunks of 256 slots) are added up as part_sum.h says. When there are
// too few tiles for the threads (decode of a few long sequences) the parts of a tile are computed
// by several threads, kept apart (or their spans, where there are several), and added up in the
// same order by the thread that ends last: the numbers are the same either way.
//
// Tiles of observed rows (SeqSignals) are smaller, so that the weights of all their parts stay in
// L2 until the rows are complete. Tiles of one table are observed in row order: a thread waits
// until the tile before has been, which an earlier unit of the list computes.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kv_arena.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/observe.h"
#include "backend/cpu/part_sum.h"
#include "backend/cpu/quest.h"
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
    // Of stored keys and values, folded into the queries and the outputs.
    float q_scale = 1, out_scale = 1;
    // q rotated for the sink slots, [rows][n_heads * head_dim]; null: no sequence has such.
    const float* sink_q = nullptr;
    const float* sink_bias = nullptr;  // [rows][n_heads], with sink_q: added to the sinks' logits
    // Blocks to read, [seqs][n_kv_heads]; null: all. An empty selection: all.
    const PageSelection* selection = nullptr;
  };
  // K and V of the step's rows are in the cache already.
  void run(const KvArena& arena, const Args& args);

 private:
  struct Tile {
    int seq, head, row, rows;  // row: within the sequence's rows
    int part_begin, part_end;  // visible parts
    int partial = -1;          // first kept partial, or -1: merged by one thread
    bool spans = false;        // what is kept: spans, or parts
    int seen = -1;             // first kept strip of weights, if split and observed
    int split = -1;            // index in left_
    int turn = -1;             // place among the observed tiles of the table, or -1: not observed
  };
  struct Unit {
    int tile, part_begin, part_end;
  };
  // One thread's buffers for a tile.
  struct Scratch {
    FloatBuffer heads, q, sink_q, l, o, span_m, span_l, span_o, total_m, total_l, total_o, factor;
    FloatBuffer m, weights;  // of every part where the tile is observed, else of one
    int next = 0;            // the unit that the thread runs after this one
  };
  // A counter a slot; more slots lose the values.
  class Counters {
   public:
    void resize(size_t n);
    std::atomic<int>& operator[](int i) { return counts_[static_cast<size_t>(i)]; }

   private:
    std::unique_ptr<std::atomic<int>[]> counts_;
    size_t size_ = 0;
  };
  // The prepared queries of a tile.
  struct Queries {
    const void *normal, *sink;
  };

  void plan(const KvArena& arena, const Args& args);
  SlotSource source_of(const KvArena& arena, const Args& args, int seq, int head) const;
  void add_tiles(const Args& args, int seq, int head, int begin, int end, bool observed, int* turn);
  void split_tiles();
  void split(int tile);
  void make_room(const KvArena& arena, const Args& args);
  const void* prepare(const KvArena& arena, const Args& args, const Tile& tile, const float* q,
                      int64_t ld, Scratch& s, FloatBuffer& out);
  Queries prepare_queries(const KvArena& arena, const Args& args, const Tile& tile, Scratch& s);
  void run_unit(const KvArena& arena, const Args& args, const Unit& unit, Scratch& s);
  void run_shared_unit(const KvArena& arena, const Args& args, const Unit& unit, const Queries& q,
                       Scratch& s);
  PartSum sum_of(const Args& args, const Tile& tile, Scratch& s) const;
  // upcoming: the unit whose first part the same thread reads after this one, if it is known.
  void run_part(const KvArena& arena, const Args& args, const Tile& tile, int part,
                const Queries& q, const kernels::AttentionPartial& out, float* weights,
                const Unit* upcoming);
  int claim() { return next_.fetch_add(1, std::memory_order_relaxed); }
  const Unit* claim_upcoming(Scratch& s);
  void announce(const Args& args, const Tile& tile, const Part& part, int64_t rest,
                const Unit* upcoming, int block_size, kernels::AttentionChunkArgs& a) const;
  void add_sink_bias(const Args& args, const Tile& tile, const kernels::AttentionPartial& out);
  void finish(const Args& args, const Tile& tile, const kernels::AttentionPartial& total);
  void observe(const Args& args, const Tile& tile, const float* weights, const float* part_m,
               int stride, const kernels::AttentionPartial& total, Scratch& s);
  void merge_kept(const Args& args, const Tile& tile, Scratch& s);
  kernels::AttentionPartial kept(int index, int group, int head_dim) const;
  const SlotSource& source(const Args& args, const Tile& tile) const {
    return sources_[static_cast<size_t>(tile.seq * args.shape.n_kv_heads + tile.head)];
  }

  const kernels::Kernels& k_;
  ThreadPool& pool_;
  std::vector<SlotSource> sources_;  // [seqs][n_kv_heads]
  std::vector<Tile> tiles_;
  std::vector<Unit> units_;
  std::vector<Scratch> scratch_;
  FloatBuffer kept_m_, kept_l_, kept_o_, kept_weights_;
  size_t kept_ = 0;   // partials of kSplitRows rows each
  size_t seen_ = 0;   // those whose weights are kept too
  size_t split_ = 0;  // split tiles
  size_t strip_ = 0;  // queries x parts of the largest observed tile of one thread
  Counters left_;     // units of a split tile that are not done
  Counters turn_;     // observed tiles of a table that are done, [seqs][n_kv_heads]
  std::atomic<int> next_{0};
};

}  // namespace pagefold::cpu
