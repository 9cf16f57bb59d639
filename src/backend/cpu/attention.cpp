#include "backend/cpu/attention.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace pagefold::cpu {
namespace {

using kernels::AttentionPartial;
using kernels::kChunkSlots;

constexpr int kTileRows =
    32;  // rows of a tile: enough to reuse each K register, small enough for L1
constexpr int kSplitRows =
    4;  // tiles of at most this many rows may be split over threads by chunks

// Slots [first, last) that row `r` of a sequence sees.
struct Visible {
  int64_t first, last;
};
Visible visible(const TableView& t, int r, int64_t window) {
  const int64_t last = t.len + r + 1;
  int64_t first = t.start;
  if (window > 0) first = std::max(first, last - window);
  return {first, last};
}

AttentionPartial at(const AttentionPartial& p, int query, int head_dim) {
  return {p.m + query, p.l + query, p.o + static_cast<int64_t>(query) * head_dim};
}

void clear(const AttentionPartial& p, int queries, int head_dim) {
  std::fill_n(p.m, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(p.l, queries, 0.0f);
  std::fill_n(p.o, static_cast<int64_t>(queries) * head_dim, 0.0f);
}

const TableView& table_of(const Attention::Args& args, int seq, int head) {
  return args.seqs[static_cast<size_t>(seq)].tables[args.layer * args.shape.n_kv_heads + head];
}

}  // namespace

void Attention::plan(const Args& args) {
  tiles_.clear();
  units_.clear();
  split_tiles_.clear();
  kept_ = 0;
  for (int seq = 0; seq < static_cast<int>(args.seqs.size()); ++seq) {
    const int n_rows = args.seqs[static_cast<size_t>(seq)].n_rows;
    for (int head = 0; head < args.shape.n_kv_heads; ++head) {
      const TableView& table = table_of(args, seq, head);
      for (int row = 0; row < n_rows; row += kTileRows) {
        const int rows = std::min(kTileRows, n_rows - row);
        const int64_t first = visible(table, row, args.shape.window).first;
        const int64_t last = visible(table, row + rows - 1, args.shape.window).last;
        tiles_.push_back({seq, head, row, rows, static_cast<int>(first / kChunkSlots),
                          static_cast<int>((last + kChunkSlots - 1) / kChunkSlots), -1});
      }
    }
  }
  const bool few = static_cast<int>(tiles_.size()) < 4 * pool_.size() && pool_.size() > 1;
  for (int i = 0; i < static_cast<int>(tiles_.size()); ++i) {
    Tile& t = tiles_[static_cast<size_t>(i)];
    const int chunks = t.chunk_end - t.chunk_begin;
    if (!few || t.rows > kSplitRows || chunks < 2) {
      units_.push_back({i, t.chunk_begin, t.chunk_end});
      continue;
    }
    t.partial = static_cast<int>(kept_);
    kept_ += static_cast<size_t>(chunks);
    split_tiles_.push_back(i);
    // Runs of chunks: a thread walks neighbours, so that its prefetches are of use.
    const int run = std::max(1, chunks / (2 * pool_.size()));
    for (int c = t.chunk_begin; c < t.chunk_end; c += run)
      units_.push_back({i, c, std::min(c + run, t.chunk_end)});
  }
}

AttentionPartial Attention::kept(int index, int group, int head_dim) const {
  const int64_t first = static_cast<int64_t>(index) * kSplitRows * group;
  return {kept_m_.data() + first, kept_l_.data() + first, kept_o_.data() + first * head_dim};
}

void Attention::run(const KvArena& arena, const Args& args) {
  plan(args);
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const size_t queries = static_cast<size_t>(kTileRows) * static_cast<size_t>(group);
  const size_t dim = static_cast<size_t>(args.shape.head_dim);
  const size_t kept_queries = kept_ * kSplitRows * static_cast<size_t>(group);
  // Growth only: a warm step allocates nothing.
  PF_CHECK(kept_m_.ensure(kept_queries).ok() && kept_l_.ensure(kept_queries).ok() &&
               kept_o_.ensure(kept_queries * dim).ok(),
           "out of memory");
  scratch_.resize(static_cast<size_t>(pool_.size()));
  for (Scratch& s : scratch_) {
    for (FloatBuffer* b : {&s.m, &s.l, &s.total_m, &s.total_l})
      PF_CHECK(b->ensure(queries).ok(), "out of memory");
    for (FloatBuffer* b : {&s.o, &s.total_o, &s.heads})
      PF_CHECK(b->ensure(queries * dim + 16).ok(), "out of memory");
    const size_t prepared =
        kernels::prepared_query_bytes(arena.layout(), static_cast<int>(queries));
    PF_CHECK(s.q.ensure(prepared / sizeof(float) + 1).ok(), "out of memory");
  }
  next_.store(0, std::memory_order_relaxed);
  pool_.run([&](int t, int) {
    for (int u;
         (u = next_.fetch_add(1, std::memory_order_relaxed)) < static_cast<int>(units_.size());) {
      run_unit(arena, args, units_[static_cast<size_t>(u)], scratch_[static_cast<size_t>(t)]);
    }
  });
  for (const int i : split_tiles_) merge_kept(args, tiles_[static_cast<size_t>(i)], scratch_[0]);
}

// The queries of a tile side by side, in the kernels' own form.
const void* Attention::prepare_queries(const KvArena& arena, const Args& args, const Tile& tile,
                                       Scratch& s) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const int64_t first = args.seqs[static_cast<size_t>(tile.seq)].row + tile.row;
  const float* source = args.qkv + first * args.ld + static_cast<int64_t>(tile.head) * group * dim;
  if (tile.rows > 1) {
    for (int r = 0; r < tile.rows; ++r) {
      std::copy_n(source + r * args.ld, group * dim, s.heads.data() + r * group * dim);
    }
    source = s.heads.data();
  }
  k_.attention_prepare_q(arena.layout(), source, dim, tile.rows * group, args.shape.scale,
                         s.q.data());
  return s.q.data();
}

void Attention::run_unit(const KvArena& arena, const Args& args, const Unit& unit, Scratch& s) {
  const Tile& tile = tiles_[static_cast<size_t>(unit.tile)];
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const void* q = prepare_queries(arena, args, tile, s);
  if (tile.partial >= 0) {
    for (int c = unit.chunk_begin; c < unit.chunk_end; ++c) {
      chunk(arena, args, tile, c, q, kept(tile.partial + c - tile.chunk_begin, group, dim));
    }
    return;
  }
  const AttentionPartial part{s.m.data(), s.l.data(), s.o.data()},
      total{s.total_m.data(), s.total_l.data(), s.total_o.data()};
  clear(total, tile.rows * group, dim);
  for (int c = unit.chunk_begin; c < unit.chunk_end; ++c) {
    chunk(arena, args, tile, c, q, part);
    k_.attention_merge(tile.rows * group, dim, part, total);
  }
  finish(args, tile, total);
}

void Attention::chunk(const KvArena& arena, const Args& args, const Tile& tile, int chunk,
                      const void* q, const AttentionPartial& out) {
  const TableView& table = table_of(args, tile.seq, tile.head);
  const int64_t origin = static_cast<int64_t>(chunk) * kChunkSlots;
  const int block_size = arena.layout().block_size;
  int16_t lo[kTileRows], hi[kTileRows];
  int64_t last = 0;
  for (int r = 0; r < tile.rows; ++r) {
    const Visible v = visible(table, tile.row + r, args.shape.window);
    lo[r] = static_cast<int16_t>(std::clamp<int64_t>(v.first - origin, 0, kChunkSlots));
    hi[r] = static_cast<int16_t>(std::clamp<int64_t>(v.last - origin, 0, kChunkSlots));
    last = v.last;
  }
  kernels::AttentionChunkArgs a;
  a.base = arena.base();
  a.blocks = table.blocks + origin / block_size;
  a.slots = static_cast<int>(std::min<int64_t>(kChunkSlots, last - origin));
  a.q = q;
  a.rows = tile.rows;
  a.group = args.shape.n_heads / args.shape.n_kv_heads;
  a.lo = lo;
  a.hi = hi;
  a.out = out;
  const int64_t rest = last - origin - kChunkSlots;
  if (rest > 0) {
    a.next_blocks = a.blocks + kChunkSlots / block_size;
    a.next_count =
        static_cast<int>((std::min<int64_t>(rest, kChunkSlots) + block_size - 1) / block_size);
  }
  k_.attention_chunk(arena.layout(), a);
}

void Attention::finish(const Args& args, const Tile& tile, const AttentionPartial& total) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  for (int r = 0; r < tile.rows; ++r) {
    const int64_t row = args.seqs[static_cast<size_t>(tile.seq)].row + tile.row + r;
    float* out =
        args.out + (row * args.shape.n_heads + static_cast<int64_t>(tile.head) * group) * dim;
    k_.attention_finish(group, dim, at(total, r * group, dim), out, dim);
  }
}

void Attention::merge_kept(const Args& args, const Tile& tile, Scratch& s) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const AttentionPartial total{s.total_m.data(), s.total_l.data(), s.total_o.data()};
  clear(total, tile.rows * group, dim);
  for (int c = 0; c < tile.chunk_end - tile.chunk_begin; ++c) {
    k_.attention_merge(tile.rows * group, dim, kept(tile.partial + c, group, dim), total);
  }
  finish(args, tile, total);
}

}  // namespace pagefold::cpu
