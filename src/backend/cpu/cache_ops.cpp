// Operations on cached keys outside attention: reading them back, scoring them, moving slots.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

namespace pagefold::cpu {
namespace {

using kernels::kStripSlots;

std::byte* strip_of(const KvArena& arena, const BlockId* blocks, int64_t slot) {
  const kernels::KvLayout& l = arena.layout();
  return arena.base() + blocks[slot / l.block_size] * l.block_bytes() +
         static_cast<size_t>(slot % l.block_size / kStripSlots) * l.strip_bytes();
}

// Moves that share both strips go to the kernel in one call.
void move_all(const kernels::Kernels& k, const KvArena& arena, const BlockId* blocks,
              const std::vector<SlotMove>& moves) {
  for (size_t i = 0; i < moves.size();) {
    const int32_t from = moves[i].from / kStripSlots, to = moves[i].to / kStripSlots;
    kernels::LaneMoves lanes;
    lanes.from = strip_of(arena, blocks, moves[i].from);
    lanes.to = strip_of(arena, blocks, moves[i].to);
    while (i < moves.size() && lanes.n < kStripSlots && moves[i].from / kStripSlots == from &&
           moves[i].to / kStripSlots == to) {
      lanes.from_lane[lanes.n] = static_cast<uint8_t>(moves[i].from % kStripSlots);
      lanes.to_lane[lanes.n] = static_cast<uint8_t>(moves[i].to % kStripSlots);
      ++lanes.n, ++i;
    }
    k.move_lanes(arena.layout(), lanes);
  }
}

// Queries of the window for the head's group, oldest first: [window][group][head_dim].
void gather_queries(const KeyScoreQuery& q, const KeyTables& keys, int layer, int head,
                    int head_dim, std::vector<float>& out) {
  const int group = keys.n_heads / keys.n_kv_heads, ring = q.ring->window;
  const int64_t row = int64_t{group} * head_dim;
  out.assign(static_cast<size_t>(q.window * row), 0.0f);
  for (int i = 0; i < q.window; ++i) {
    const int64_t position = q.next_position - q.window + i;
    if (position < 0) continue;  // fewer tokens than the window
    const float* from = q.ring->data + ((int64_t{layer} * ring + position % ring) * keys.n_heads +
                                        int64_t{head} * group) *
                                           head_dim;
    std::copy_n(from, row, out.data() + i * row);
  }
}

void score_redundancy(KeyReader& reader, const KeyScoreQuery& q, const KeyTables& keys, int layer,
                      int head, int head_dim, const ScoredKeys& out) {
  const TableView& table = keys.tables[layer * keys.n_kv_heads + head];
  const int group = keys.n_heads / keys.n_kv_heads;
  std::vector<float> queries;
  gather_queries(q, keys, layer, head, head_dim, queries);
  reader.redundancy(table, table.len, queries.data(), q.window, group, keys.scale, q.threshold,
                    out);
  if (table.live == nullptr) return;
  for (int i = 0; i < q.window; ++i) {
    float* logits = out.logits + i * out.stride;
    for (int64_t s = 0; s < table.len; ++s) {
      if ((table.live[s / 32] >> (s % 32) & 1u) == 0) logits[s] = -1e30f;  // no share of a softmax
    }
  }
}

}  // namespace

KeyReader CpuBackend::key_reader(int layer, int head) const {
  return KeyReader(k_, arena_.layout(), arena_.base(),
                   {kv_.hadamard_keys, k_scale(layer), centre_.of(layer, head)});
}

void CpuBackend::read_keys(int layer, int head, const TableView& table, int64_t n, float* out) {
  key_reader(layer, head).read(table, n, out);
}

void CpuBackend::score_keys(int layer, int head, const TableView& table, int64_t n,
                            const KeyCoefficients& c, float* const* out) {
  std::vector<float> scores(static_cast<size_t>(c.group * n));
  kernels::StripScoreArgs a;
  a.bands = c.bands;
  a.half_layout = c.half_layout;
  a.group = c.group;
  a.re = c.re;
  a.im = c.im;
  a.norm = c.norm;
  a.out = scores.data();
  a.ldo = n;
  key_reader(layer, head).score(table, n, a);
  for (int g = 0; g < c.group; ++g) std::copy_n(scores.data() + g * n, n, out[g]);
}

void CpuBackend::key_logits(int layer, int head, const TableView& table, int64_t n,
                            const float* queries, int n_queries, float scale, float* out) {
  key_reader(layer, head).dots(table, n, queries, n_queries, scale, out, n);
}

void CpuBackend::score_tables(const KeyScoreQuery& query, const KeyTables& keys, ScoredKeys* out) {
  if (query.kind == KeyScore::none) return;
  const int group = keys.n_heads / keys.n_kv_heads;
  const pagefold::KeyCoefficients& c = query.coefficients;
  for_units(int64_t{keys.n_layers} * keys.n_kv_heads, [&](int64_t t) {
    const int layer = static_cast<int>(t / keys.n_kv_heads);
    const int head = static_cast<int>(t % keys.n_kv_heads);
    const TableView& table = keys.tables[t];
    const ScoredKeys& result = out[t];
    if (result.logits == nullptr || table.len == 0) return;
    KeyReader reader = key_reader(layer, head);
    if (query.kind == KeyScore::redundancy) {
      score_redundancy(reader, query, keys, layer, head, arena_.layout().head_dim, result);
      return;
    }
    const int64_t at = (int64_t{layer} * keys.n_heads + int64_t{head} * group) * c.bands;
    kernels::StripScoreArgs a;
    a.bands = c.bands;
    a.half_layout = keys.half_layout;
    a.group = group;
    a.sets = c.sets;
    a.re = c.w_re + at;
    a.im = c.w_im + at;
    a.set_stride = int64_t{keys.n_layers} * keys.n_heads * c.bands;
    a.norm = c.e + at;
    a.out = result.logits;
    a.ldo = result.stride;
    reader.score(table, table.len, a);
  });
}

void CpuBackend::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& c : copies) {
    std::memcpy(arena_.base() + c.to * block_bytes(), arena_.base() + c.from * block_bytes(),
                block_bytes());
    if (bounds_.enabled()) bounds_.copy(c.from, c.to);
  }
}

void CpuBackend::save_blocks(std::span<const BlockId> blocks, std::byte* out) {
  for_units(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    std::memcpy(out + static_cast<uint64_t>(i) * block_bytes(),
                arena_.base() + blocks[static_cast<size_t>(i)] * block_bytes(), block_bytes());
  });
}

void CpuBackend::load_blocks(std::span<const BlockId> blocks, std::span<const int32_t> filled,
                             const std::byte* in) {
  for_units(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const auto b = static_cast<size_t>(i);
    std::memcpy(arena_.base() + blocks[b] * block_bytes(), in + b * block_bytes(), block_bytes());
    refresh_page_bounds(&blocks[b], 0, 1, filled[b]);
  });
}

void CpuBackend::move_slots(const MovePlan& plan, const TableView* tables, int n_kv_heads) {
  for_units(static_cast<int64_t>(plan.tables.size()), [&](int64_t i) {
    const TableMoves& t = plan.tables[static_cast<size_t>(i)];
    for (const TableMoves::Copy& copy : t.copies) {
      std::memcpy(arena_.base() + copy.to * block_bytes(),
                  arena_.base() + copy.from * block_bytes(), block_bytes());
    }
    if (t.moves.empty() && t.copies.empty()) return;
    const int64_t bs = arena_.layout().block_size;
    const BlockId* blocks = t.blocks;
    std::vector<BlockId> patched;
    if (blocks == nullptr) {  // a plan that no cache has seen: the copies are not in a table yet
      const TableView& view = tables[t.layer * n_kv_heads + t.head];
      patched.assign(view.blocks, view.blocks + (t.len_before + bs - 1) / bs);
      for (const TableMoves::Copy& copy : t.copies)
        patched[static_cast<size_t>(copy.index)] = copy.to;
      blocks = patched.data();
    }
    move_all(k_, arena_, blocks, t.moves);
    if (t.dropped_blocks.empty())
      refresh_page_bounds(blocks, 0, (t.len_after + bs - 1) / bs, t.len_after);
  });
}

}  // namespace pagefold::cpu
