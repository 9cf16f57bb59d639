#include "backend/cpu/attention.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "base/check.h"

namespace pagefold::cpu {
namespace {

using kernels::AttentionPartial;
using kernels::kChunkSlots;

constexpr int kTileRows =
    32;  // rows of a tile: enough to reuse each K register, small enough for L1
constexpr int kSplitRows = 4;  // tiles of at most this many rows may be split over threads by parts
// Weights of an observed tile: half of L2 or less, but not so few queries that keys are read from
// memory for little work.
constexpr int64_t kStripFloats = 192 * 1024;
constexpr int kLeastQueries = 12;

AttentionPartial at(const AttentionPartial& p, int query, int head_dim) {
  return {p.m + query, p.l + query, p.o + static_cast<int64_t>(query) * head_dim};
}

// Growth only, in powers of two: a warm step allocates nothing.
void grow(FloatBuffer& buffer, size_t n) {
  PF_CHECK(buffer.ensure(std::bit_ceil(n)).ok(), "out of memory");
}

// Rows of an observed tile so that the weights of all their parts fit kStripFloats.
int observed_tile_rows(int64_t parts, int group) {
  const int64_t fit = kStripFloats / (std::max<int64_t>(parts, 1) * kChunkSlots * group);
  const int64_t least = (kLeastQueries + group - 1) / group;
  return static_cast<int>(std::clamp<int64_t>(fit, least, kTileRows));
}

// Scores are computed for whole runs of strips: blocks that are gone are read as a neighbour, and
// their live bits hide it.
void fill_gaps(const BlockId* blocks, int64_t n, BlockId* out) {
  BlockId some = 0;
  for (int64_t i = 0; i < n; ++i)
    if (blocks[i] != kNoBlock) some = blocks[i];
  for (int64_t i = 0; i < n; ++i) out[i] = blocks[i] != kNoBlock ? blocks[i] : some;
}

}  // namespace

void Attention::Counters::resize(size_t n) {
  if (n <= size_) return;
  size_ = std::bit_ceil(n);
  counts_ = std::make_unique<std::atomic<int>[]>(size_);
}

SlotSource Attention::source_of(const KvArena& arena, const Args& args, int seq, int head) const {
  const SeqRows& rows = args.seqs[static_cast<size_t>(seq)];
  const int index = args.layer * args.shape.n_kv_heads + head;
  const TableView& table = rows.tables[index];
  SlotSource s;
  s.blocks = table.blocks;
  s.len = s.live_len = table.len;
  s.start = table.start;
  s.live = table.live;
  s.block_size = arena.layout().block_size;
  if (const SeqSignals* signals = rows.signals) {
    if (args.sink_q != nullptr && signals->sink_shift != 0)
      s.sinks = std::min(signals->sink_slots, table.len);
  }
  if (args.selection != nullptr) {
    const PageSelection& chosen = args.selection[seq * args.shape.n_kv_heads + head];
    if (!chosen.index.empty()) {
      s.blocks = chosen.blocks.data();
      s.index = chosen.index.data();
      s.len =
          (static_cast<int64_t>(chosen.index.size()) - 1) * s.block_size + table.len % s.block_size;
      int64_t first = 0;  // selected blocks that are the table's first
      while (chosen.index[static_cast<size_t>(first)] == first) ++first;
      s.sinks = std::min(s.sinks, first * s.block_size);
    }
  }
  return s;
}

void Attention::add_tiles(const Args& args, int seq, int head, int begin, int end, bool observed,
                          int* turn) {
  const SlotSource& t = sources_[static_cast<size_t>(seq * args.shape.n_kv_heads + head)];
  int step = kTileRows;
  if (observed) {
    const auto [first, last] = parts_of(t, visible(t, end - 1, args.shape.window));
    step = observed_tile_rows(last - first, args.shape.n_heads / args.shape.n_kv_heads);
  }
  for (int row = begin; row < end; row += step) {
    const int rows = std::min(step, end - row);
    const int64_t first = visible(t, row, args.shape.window).first;
    const int64_t last = visible(t, row + rows - 1, args.shape.window).last;
    const auto [part_begin, part_end] = parts_of(t, {first, last});
    Tile tile{seq, head, row, rows, part_begin, part_end};
    if (observed) tile.turn = (*turn)++;
    tiles_.push_back(tile);
  }
}

void Attention::plan(const KvArena& arena, const Args& args) {
  tiles_.clear();
  units_.clear();
  sources_.clear();
  for (int seq = 0; seq < static_cast<int>(args.seqs.size()); ++seq) {
    const SeqRows& rows = args.seqs[static_cast<size_t>(seq)];
    const ObservedRows seen = observed_rows(rows);
    PF_CHECK(0 <= seen.begin && seen.end <= rows.n_rows);
    for (int head = 0; head < args.shape.n_kv_heads; ++head) {
      sources_.push_back(source_of(arena, args, seq, head));
      int turn = 0;
      if (seen.begin < seen.end) {
        add_tiles(args, seq, head, 0, seen.begin, false, nullptr);
        add_tiles(args, seq, head, seen.begin, seen.end, true, &turn);
        add_tiles(args, seq, head, seen.end, rows.n_rows, false, nullptr);
      } else {
        add_tiles(args, seq, head, 0, rows.n_rows, false, nullptr);
      }
    }
  }
  split_tiles();
}

void Attention::split_tiles() {
  kept_ = seen_ = split_ = 0;
  const bool few = static_cast<int>(tiles_.size()) < 4 * pool_.size() && pool_.size() > 1;
  for (int i = 0; i < static_cast<int>(tiles_.size()); ++i) {
    const Tile& t = tiles_[static_cast<size_t>(i)];
    if (few && t.rows <= kSplitRows && t.part_end - t.part_begin >= 2)
      split(i);
    else
      units_.push_back({i, t.part_begin, t.part_end});
  }
}

void Attention::split(int tile) {
  Tile& t = tiles_[static_cast<size_t>(tile)];
  const int parts = t.part_end - t.part_begin;
  t.partial = static_cast<int>(kept_);
  // Observed tiles need the maximum of every part.
  t.spans = parts >= 2 * kSpanParts && t.turn < 0;
  const int whole = t.spans ? kSpanParts : 1;
  kept_ += static_cast<size_t>((t.part_end - 1) / whole - t.part_begin / whole + 1);
  if (t.turn >= 0) {
    t.seen = static_cast<int>(seen_);
    seen_ += static_cast<size_t>(parts);
  }
  t.split = static_cast<int>(split_++);
  left_.resize(split_);
  // Runs of parts: a thread walks neighbours, so that its prefetches are of use.
  int run = std::max(1, parts / (2 * pool_.size()));
  if (t.spans) run = std::max(1, run / kSpanParts) * kSpanParts;
  for (int p = t.part_begin; p < t.part_end;) {
    const int end = std::min(p / run * run + run, t.part_end);
    units_.push_back({tile, p, end});
    p = end;
  }
}

AttentionPartial Attention::kept(int index, int group, int head_dim) const {
  const int64_t first = static_cast<int64_t>(index) * kSplitRows * group;
  return {kept_m_.data() + first, kept_l_.data() + first, kept_o_.data() + first * head_dim};
}

// Buffers and counters of a planned step.
void Attention::make_room(const KvArena& arena, const Args& args) {
  const auto group = static_cast<size_t>(args.shape.n_heads / args.shape.n_kv_heads);
  const size_t queries = kTileRows * group;
  const size_t dim = static_cast<size_t>(args.shape.head_dim);
  const size_t kept_queries = kept_ * kSplitRows * group;
  grow(kept_m_, kept_queries);
  grow(kept_l_, kept_queries);
  grow(kept_o_, kept_queries * dim);
  if (seen_ > 0) grow(kept_weights_, seen_ * kSplitRows * group * kChunkSlots);
  size_t strip = 0;
  for (const Tile& t : tiles_) {
    if (t.turn >= 0 && t.split < 0)
      strip = std::max(strip, static_cast<size_t>(t.rows * (t.part_end - t.part_begin)) * group);
  }
  turn_.resize(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i)
    turn_[static_cast<int>(i)].store(0, std::memory_order_relaxed);
  for (size_t i = 0; i < split_; ++i)
    left_[static_cast<int>(i)].store(0, std::memory_order_relaxed);
  for (const Unit& u : units_) {
    const int split = tiles_[static_cast<size_t>(u.tile)].split;
    if (split >= 0) left_[split].fetch_add(1, std::memory_order_relaxed);
  }
  scratch_.resize(static_cast<size_t>(pool_.size()));
  for (Scratch& s : scratch_) {
    for (FloatBuffer* b : {&s.l, &s.span_m, &s.span_l, &s.total_m, &s.total_l, &s.factor})
      grow(*b, queries);
    for (FloatBuffer* b : {&s.o, &s.span_o, &s.total_o, &s.heads}) grow(*b, queries * dim + 16);
    grow(s.m, std::max(queries, strip));
    if (strip > 0) grow(s.weights, strip * kChunkSlots);
    const size_t prepared =
        kernels::prepared_query_bytes(arena.layout(), static_cast<int>(queries)) / sizeof(float);
    grow(s.q, prepared + 1);
    if (args.sink_q != nullptr) grow(s.sink_q, prepared + 1);
  }
}

void Attention::run(const KvArena& arena, const Args& args) {
  plan(arena, args);
  make_room(arena, args);
  next_.store(0, std::memory_order_relaxed);
  pool_.run([&](int t, int) {
    Scratch& s = scratch_[static_cast<size_t>(t)];
    for (s.next = claim(); s.next < static_cast<int>(units_.size());)
      run_unit(arena, args, units_[static_cast<size_t>(s.next)], s);
  });
}

// The queries of a tile side by side, in the kernels' own form. q: of the batch's first row.
const void* Attention::prepare(const KvArena& arena, const Args& args, const Tile& tile,
                               const float* q, int64_t ld, Scratch& s, FloatBuffer& out) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const int64_t first = args.seqs[static_cast<size_t>(tile.seq)].row + tile.row;
  const float* from = q + first * ld + static_cast<int64_t>(tile.head) * group * dim;
  if (tile.rows > 1) {
    for (int r = 0; r < tile.rows; ++r)
      std::copy_n(from + r * ld, group * dim, s.heads.data() + r * group * dim);
    from = s.heads.data();
  }
  k_.attention_prepare_q(arena.layout(), from, dim, tile.rows * group,
                         args.shape.scale * args.q_scale, out.data());
  return out.data();
}

Attention::Queries Attention::prepare_queries(const KvArena& arena, const Args& args,
                                              const Tile& tile, Scratch& s) {
  Queries q{prepare(arena, args, tile, args.qkv, args.ld, s, s.q), nullptr};
  if (source(args, tile).sinks > 0) {
    const int64_t ld = static_cast<int64_t>(args.shape.n_heads) * args.shape.head_dim;
    q.sink = prepare(arena, args, tile, args.sink_q, ld, s, s.sink_q);
  }
  return q;
}

// Before a unit's last part, so that the first blocks of the next unit are on their way.
const Attention::Unit* Attention::claim_upcoming(Scratch& s) {
  s.next = claim();
  return s.next < static_cast<int>(units_.size()) ? &units_[static_cast<size_t>(s.next)] : nullptr;
}

void Attention::run_unit(const KvArena& arena, const Args& args, const Unit& unit, Scratch& s) {
  const Tile& tile = tiles_[static_cast<size_t>(unit.tile)];
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const int queries = tile.rows * group;
  const Queries q = prepare_queries(arena, args, tile, s);
  if (tile.split >= 0) {
    run_shared_unit(arena, args, unit, q, s);
    if (left_[tile.split].fetch_sub(1, std::memory_order_acq_rel) == 1) merge_kept(args, tile, s);
    return;
  }
  PartSum sum = sum_of(args, tile, s);
  for (int p = unit.part_begin; p < unit.part_end; ++p) {
    const int64_t kept_at = tile.turn >= 0 ? int64_t{p - unit.part_begin} * queries : 0;
    const AttentionPartial part{s.m.data() + kept_at, s.l.data(), s.o.data()};
    const Unit* upcoming = p + 1 == unit.part_end ? claim_upcoming(s) : nullptr;
    run_part(arena, args, tile, p, q, part,
             tile.turn >= 0 ? s.weights.data() + kept_at * kChunkSlots : nullptr, upcoming);
    sum.add(p, part);
  }
  const AttentionPartial total{s.total_m.data(), s.total_l.data(), s.total_o.data()};
  finish(args, tile, total);
  if (tile.turn >= 0) observe(args, tile, s.weights.data(), s.m.data(), queries, total, s);
}

// A unit of a tile that several threads share: its spans, or its parts, are kept.
void Attention::run_shared_unit(const KvArena& arena, const Args& args, const Unit& unit,
                                const Queries& q, Scratch& s) {
  const Tile& tile = tiles_[static_cast<size_t>(unit.tile)];
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const AttentionPartial mine{s.m.data(), s.l.data(), s.o.data()};
  for (int p = unit.part_begin; p < unit.part_end; ++p) {
    const int i = p - tile.part_begin;
    float* weights = tile.seen < 0 ? nullptr
                                   : kept_weights_.data() +
                                         int64_t{tile.seen + i} * kSplitRows * group * kChunkSlots;
    const Unit* upcoming = p + 1 == unit.part_end ? claim_upcoming(s) : nullptr;
    if (!tile.spans) {
      run_part(arena, args, tile, p, q, kept(tile.partial + i, group, dim), weights, upcoming);
      continue;
    }
    run_part(arena, args, tile, p, q, mine, weights, upcoming);
    const int span = p / kSpanParts - tile.part_begin / kSpanParts;
    const AttentionPartial to = kept(tile.partial + span, group, dim);
    if (p % kSpanParts == 0 || p == tile.part_begin) clear(to, tile.rows * group, dim);
    k_.attention_merge(tile.rows * group, dim, mine, to);
  }
}

PartSum Attention::sum_of(const Args& args, const Tile& tile, Scratch& s) const {
  return {k_,
          tile.rows * (args.shape.n_heads / args.shape.n_kv_heads),
          args.shape.head_dim,
          tile.part_begin,
          tile.part_end,
          {s.span_m.data(), s.span_l.data(), s.span_o.data()},
          {s.total_m.data(), s.total_l.data(), s.total_o.data()}};
}

// What is read next, to be fetched meanwhile: the upcoming unit's first part, else the next of this
// tile's. rest: slots of the tile behind this part.
void Attention::announce(const Args& args, const Tile& tile, const Part& part, int64_t rest,
                         const Unit* upcoming, int block_size,
                         kernels::AttentionChunkArgs& a) const {
  const SlotSource* t = &source(args, tile);
  int64_t origin = part.origin + kChunkSlots;
  if (upcoming != nullptr) {
    const Tile& next = tiles_[static_cast<size_t>(upcoming->tile)];
    t = &source(args, next);
    origin = part_of(*t, upcoming->part_begin).origin;
    rest = visible(*t, next.row + next.rows - 1, args.shape.window).last - origin;
  }
  if (rest <= 0) return;
  a.next_blocks = t->blocks + origin / block_size;
  a.next_count =
      static_cast<int>((std::min<int64_t>(rest, kChunkSlots) + block_size - 1) / block_size);
}

void Attention::run_part(const KvArena& arena, const Args& args, const Tile& tile, int index,
                         const Queries& q, const AttentionPartial& out, float* weights,
                         const Unit* upcoming) {
  const SlotSource& t = source(args, tile);
  const Part part = part_of(t, index);
  const int block_size = arena.layout().block_size;
  int16_t lo[kTileRows], hi[kTileRows];
  int64_t end = 0;
  for (int r = 0; r < tile.rows; ++r) {
    const Visible v = visible(t, tile.row + r, args.shape.window);
    end = std::min(v.last, part.last);
    lo[r] = static_cast<int16_t>(
        std::clamp<int64_t>(std::max(v.first, part.first) - part.origin, 0, kChunkSlots));
    hi[r] = static_cast<int16_t>(std::clamp<int64_t>(end - part.origin, 0, kChunkSlots));
  }
  uint32_t live[kChunkSlots / 32];
  BlockId held[kChunkSlots / kernels::kStripSlots];
  if (t.live != nullptr) {
    live_mask(t, part.origin, live);
    const int64_t blocks = std::min<int64_t>(kChunkSlots / block_size,
                                             (end - part.origin + block_size - 1) / block_size);
    fill_gaps(t.blocks + part.origin / block_size, blocks, held);
  }
  kernels::AttentionChunkArgs a;
  a.base = arena.base();
  a.blocks = t.live != nullptr ? held : t.blocks + part.origin / block_size;
  a.slots = static_cast<int>(std::min<int64_t>(kChunkSlots, end - part.origin));
  a.q = part.sink ? q.sink : q.normal;
  a.rows = tile.rows;
  a.group = args.shape.n_heads / args.shape.n_kv_heads;
  a.lo = lo;
  a.hi = hi;
  a.live = t.live != nullptr ? live : nullptr;
  a.out = out;
  a.weights = weights;
  announce(args, tile, part, end - part.origin - kChunkSlots, upcoming, block_size, a);
  k_.attention_chunk(arena.layout(), a);
  if (part.sink) add_sink_bias(args, tile, out);
}

// To all logits of a part: its maximum moves, its probabilities do not.
void Attention::add_sink_bias(const Args& args, const Tile& tile, const AttentionPartial& out) {
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const int64_t first = args.seqs[static_cast<size_t>(tile.seq)].row + tile.row;
  for (int r = 0; r < tile.rows; ++r) {
    const float* bias =
        args.sink_bias + (first + r) * args.shape.n_heads + int64_t{tile.head} * group;
    for (int g = 0; g < group; ++g) out.m[r * group + g] += bias[g];
  }
}

void Attention::finish(const Args& args, const Tile& tile, const AttentionPartial& total) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  for (int r = 0; r < tile.rows; ++r) {
    const int64_t row = args.seqs[static_cast<size_t>(tile.seq)].row + tile.row + r;
    float* out =
        args.out + (row * args.shape.n_heads + static_cast<int64_t>(tile.head) * group) * dim;
    k_.attention_finish(group, dim, at(total, r * group, dim), out, dim);
    for (int i = 0; args.out_scale != 1.0f && i < group * dim; ++i) out[i] *= args.out_scale;
  }
}

void Attention::observe(const Args& args, const Tile& tile, const float* weights,
                        const float* part_m, int stride, const AttentionPartial& total,
                        Scratch& s) {
  std::atomic<int>& turn = turn_[tile.seq * args.shape.n_kv_heads + tile.head];
  // Short: the tile before was started before this one.
  for (int spins = 0; turn.load(std::memory_order_acquire) != tile.turn; ++spins)
    if (spins > 64) std::this_thread::yield();
  const ObservedTile seen{.observe = args.seqs[static_cast<size_t>(tile.seq)].signals->observe,
                          .table = args.layer * args.shape.n_kv_heads + tile.head,
                          .row = tile.row,
                          .rows = tile.rows,
                          .group = args.shape.n_heads / args.shape.n_kv_heads,
                          .window = args.shape.window,
                          .part_begin = tile.part_begin,
                          .part_end = tile.part_end,
                          .weights = weights,
                          .part_m = part_m,
                          .stride = stride,
                          .m = total.m,
                          .l = total.l};
  observe_tile(k_, source(args, tile), seen, s.factor.data());
  turn.store(tile.turn + 1, std::memory_order_release);
}

void Attention::merge_kept(const Args& args, const Tile& tile, Scratch& s) {
  const int dim = args.shape.head_dim;
  const int group = args.shape.n_heads / args.shape.n_kv_heads;
  const AttentionPartial total{s.total_m.data(), s.total_l.data(), s.total_o.data()};
  if (tile.spans) {
    clear(total, tile.rows * group, dim);
    const int first = tile.part_begin / kSpanParts, last = (tile.part_end - 1) / kSpanParts;
    for (int i = 0; i <= last - first; ++i)
      k_.attention_merge(tile.rows * group, dim, kept(tile.partial + i, group, dim), total);
  } else {
    PartSum sum = sum_of(args, tile, s);
    for (int p = tile.part_begin; p < tile.part_end; ++p)
      sum.add(p, kept(tile.partial + p - tile.part_begin, group, dim));
  }
  finish(args, tile, total);
  if (tile.turn < 0) return;
  const int stride = kSplitRows * group;
  observe(args, tile, kept_weights_.data() + int64_t{tile.seen} * stride * kChunkSlots,
          kept(tile.partial, group, dim).m, stride, total, s);
}

}  // namespace pagefold::cpu
