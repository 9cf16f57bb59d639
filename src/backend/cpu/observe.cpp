#include "backend/cpu/observe.h"

#include <bit>
#include <cmath>

namespace pagefold::cpu {
namespace {

using kernels::kChunkSlots;

constexpr int kHalf = 16;  // blocks are multiples of 16 slots

// Sixteen bits of the mask from slot `s` (a multiple of 16) of the list on.
uint32_t live_half(const SlotSource& t, int64_t s) {
  const int64_t slot = t.table_slot(s);
  if (slot >= t.live_len) return 0xffff;
  const uint32_t bits = t.live[slot / 32] >> (slot % 32) & 0xffffu;
  const int64_t known = t.live_len - slot;
  return known >= kHalf ? bits : bits | (0xffffu << known & 0xffffu);
}

// End of the list: no block lies behind it.
int64_t list_end(const SlotSource& t, const ObservedTile& tile) {
  return t.len + tile.row + tile.rows;
}

// exp(m - M) / L of `queries` queries; 0 where the query sees nothing in the part.
void factors(const float* part_m, const float* m, const float* l, int queries, float share,
             float* out) {
  for (int i = 0; i < queries; ++i) {
    const bool nothing = part_m[i] == -INFINITY || m[i] == -INFINITY;
    out[i] = nothing ? 0.0f : std::exp(part_m[i] - m[i]) / l[i] * share;
  }
}

// A part's mass, slot by slot of the list, to the slots of the table.
void add_part(const kernels::Kernels& k, const SlotSource& t, int64_t origin, int slots,
              const float* weights, const float* factor, int queries, bool squared, float* mass) {
  const int step = t.index == nullptr ? slots : t.block_size;
  for (int s = 0; s < slots; s += step) {
    k.attention_mass(weights + s, factor, queries, std::min(step, slots - s), squared,
                     mass + t.table_slot(origin + s));
  }
}

void shift_in(uint64_t* words, int n, bool bit) {
  for (int i = n - 1; i > 0; --i) words[i] = words[i] << 1 | words[i - 1] >> 63;
  words[0] = words[0] << 1 | uint64_t{bit};
}

// One row's bits for the slots of a part: 1 where the group's mean p is below `uniform`.
void add_history(const kernels::Kernels& k, const SlotSource& t, const Part& part, const Visible& v,
                 const float* weights, const float* factor, int group, float uniform, int words,
                 uint64_t* history) {
  alignas(64) float p[kChunkSlots] = {};
  const int64_t first = std::max({v.first, part.first, part.origin});
  const int64_t last = std::min({v.last, part.last, part.origin + kChunkSlots});
  if (first >= last) return;
  k.attention_mass(weights, factor, group, static_cast<int>(last - part.origin), false, p);
  uint32_t live[kChunkSlots / 32];
  if (t.live != nullptr) live_mask(t, part.origin, live);
  for (int64_t s = first; s < last; ++s) {
    const int64_t i = s - part.origin;
    if (t.live != nullptr && (live[i / 32] >> (i % 32) & 1u) == 0) continue;
    shift_in(history + t.table_slot(s) * words, words, p[i] < uniform);
  }
}

void observe_history(const kernels::Kernels& k, const SlotSource& t, const ObservedTile& tile,
                     float* factor) {
  const SeqSignals& s = *tile.signals;
  const float share = 1.0f / static_cast<float>(tile.group);
  for (int r = 0; r < tile.rows; ++r) {
    const Visible v = visible(t, tile.row + r, tile.window);
    const float uniform = 1.0f / static_cast<float>(std::max<int64_t>(count_live(t, v), 1));
    const int q = r * tile.group;
    for (int i = 0; i < tile.part_end - tile.part_begin; ++i) {
      const int64_t at = int64_t{i} * tile.stride + q;
      factors(tile.part_m + at, tile.m + q, tile.l + q, tile.group, share, factor);
      add_history(k, t, part_of(t, tile.part_begin + i), v, tile.weights + at * kChunkSlots, factor,
                  tile.group, uniform, s.history_words, s.history[tile.table]);
    }
  }
}

}  // namespace

void live_mask(const SlotSource& t, int64_t origin, uint32_t out[kChunkSlots / 32]) {
  for (int i = 0; i < kChunkSlots / 32; ++i) {
    const int64_t s = origin + i * 32;
    // Past the list there is nothing to look up, and nothing is visible.
    const uint32_t low = s < t.len ? live_half(t, s) : 0xffffu;
    const uint32_t high = s + kHalf < t.len ? live_half(t, s + kHalf) : 0xffffu;
    out[i] = low | high << 16;
  }
}

int64_t count_live(const SlotSource& t, const Visible& v) {
  if (t.live == nullptr) return v.last - v.first;
  int64_t n = 0;
  for (int64_t s = v.first / kHalf * kHalf; s < v.last; s += kHalf) {
    uint32_t bits = s < t.len ? live_half(t, s) : 0xffffu;
    if (s < v.first) bits &= 0xffffu << (v.first - s);
    if (s + kHalf > v.last) bits &= 0xffffu >> (s + kHalf - v.last);
    n += std::popcount(bits & 0xffffu);
  }
  return n;
}

void observe_tile(const kernels::Kernels& k, const SlotSource& t, const ObservedTile& tile,
                  float* factor) {
  const SeqSignals& s = *tile.signals;
  const int queries = tile.rows * tile.group;
  const float share = s.mass_squared ? 1.0f : 1.0f / static_cast<float>(tile.group);
  const int64_t end = list_end(t, tile);
  for (int i = 0; s.mass != nullptr && i < tile.part_end - tile.part_begin; ++i) {
    const int64_t at = int64_t{i} * tile.stride;
    const Part part = part_of(t, tile.part_begin + i);
    const int slots = static_cast<int>(
        std::min({int64_t{kChunkSlots}, end - part.origin, part.last - part.origin}));
    factors(tile.part_m + at, tile.m, tile.l, queries, share, factor);
    add_part(k, t, part.origin, slots, tile.weights + at * kChunkSlots, factor, queries,
             s.mass_squared, s.mass[tile.table]);
  }
  if (s.history != nullptr) observe_history(k, t, tile, factor);
}

void add_query_stats(const SeqSignals& s, int64_t head, int row, const float* q, int rot,
                     bool half_layout) {
  if (s.stats_re == nullptr || row < s.stats_row) return;
  const int bands = rot / 2;
  for (int f = 0; f < bands; ++f) {
    const double re = half_layout ? q[f] : q[2 * f];
    const double im = half_layout ? q[f + bands] : q[2 * f + 1];
    s.stats_re[head * bands + f] += re;
    s.stats_im[head * bands + f] += im;
    s.stats_abs[head * bands + f] += std::sqrt(re * re + im * im);
  }
}

void keep_query(const SeqSignals& s, int64_t head, int row, int n_rows, const float* q,
                int head_dim) {
  if (s.query_ring == nullptr || row < n_rows - s.ring_rows) return;
  const int64_t slot = (int64_t{s.ring_next} + row) % s.ring_rows;
  std::copy_n(q, head_dim, s.query_ring + (head * s.ring_rows + slot) * head_dim);
}

}  // namespace pagefold::cpu
