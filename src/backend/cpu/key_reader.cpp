#include "backend/cpu/key_reader.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/hadamard.h"
#include "base/check.h"

namespace pagefold::cpu {
namespace {

constexpr int kStrip = kernels::kStripSlots;
constexpr int kRowTile = 8;  // rows of the cosine matrix at a time

int64_t strips_of(int64_t slots) { return (slots + kStrip - 1) / kStrip; }
bool is_live(const TableView& t, int64_t slot) {
  return t.live == nullptr || (t.live[slot / 32] >> (slot % 32) & 1u) != 0;
}
bool is_held(const TableView& t, int64_t slot, int block_size) {
  return slot >= t.start && t.blocks[slot / block_size] != kNoBlock && is_live(t, slot);
}

}  // namespace

const std::byte* KeyReader::address(const TableView& table, int64_t slot) const {
  const BlockId block = table.blocks[slot / layout_.block_size];
  if (block == kNoBlock) return nullptr;
  return base_ + block * layout_.block_bytes() +
         static_cast<size_t>(slot % layout_.block_size / kStrip) * layout_.strip_bytes();
}

const float* KeyReader::strip(const TableView& table, int64_t slots, int64_t slot) {
  const size_t dim = static_cast<size_t>(layout_.head_dim);
  keys_.resize(dim * kStrip);
  const std::byte* at = address(table, slot);
  if (at == nullptr) {
    std::fill(keys_.begin(), keys_.end(), 0.0f);
    return keys_.data();
  }
  // The values between two strips' keys end the hardware's prefetching.
  if (const int64_t ahead = slot + 2 * kStrip; ahead < slots) {
    if (const std::byte* next = address(table, ahead)) {
      for (size_t i = 0; i < layout_.k_strip_bytes(); i += 64) __builtin_prefetch(next + i);
    }
  }
  k_.unpack_keys(layout_, at, keys_.data());
  const int64_t there = slots - slot;
  for (size_t d = 0; there < kStrip && d < dim; ++d) {
    std::fill(keys_.data() + d * kStrip + there, keys_.data() + (d + 1) * kStrip, 0.0f);
  }
  if (stored_.hadamard) rotate_hadamard(keys_.data(), layout_.head_dim, kStrip);
  if (stored_.scale != 1.0f) {
    for (float& key : keys_) key *= stored_.scale;
  }
  return keys_.data();
}

void KeyReader::read(const TableView& table, int64_t slots, float* out) {
  const int dim = layout_.head_dim;
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const float* keys = strip(table, slots, slot);
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    for (int64_t lane = 0; lane < n; ++lane) {
      for (int d = 0; d < dim; ++d) out[(slot + lane) * dim + d] = keys[d * kStrip + lane];
    }
  }
}

void KeyReader::score(const TableView& table, int64_t slots, kernels::StripScoreArgs a) {
  PF_CHECK(a.bands <= kernels::kMostBands && 2 * a.bands <= layout_.head_dim);
  float* const out = a.out;
  const int64_t ldo = a.ldo;
  results_.resize(static_cast<size_t>(a.group) * kStrip);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    a.keys = strip(table, slots, slot);
    a.out = n == kStrip ? out + slot : results_.data();
    a.ldo = n == kStrip ? ldo : kStrip;
    k_.score_strip(a);
    for (int g = 0; n < kStrip && g < a.group; ++g)
      std::copy_n(results_.data() + g * kStrip, n, out + g * ldo + slot);
  }
}

void KeyReader::dots(const TableView& table, int64_t slots, const float* queries, int n_queries,
                     float scale, float* out, int64_t ldo) {
  results_.resize(static_cast<size_t>(n_queries) * kStrip);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const int64_t n = std::min<int64_t>(kStrip, slots - slot);
    const bool whole = n == kStrip;
    const float* keys = strip(table, slots, slot);
    k_.dot_strips({keys, 1, layout_.head_dim, queries, layout_.head_dim, n_queries, scale,
                   whole ? out + slot : results_.data(), whole ? ldo : kStrip});
    for (int q = 0; !whole && q < n_queries; ++q)
      std::copy_n(results_.data() + q * kStrip, n, out + q * ldo + slot);
  }
}

// Fills strips_ and rows_ with the keys at unit length; zeros for those that do not count.
void KeyReader::normalise(const TableView& table, int64_t slots) {
  const size_t dim = static_cast<size_t>(layout_.head_dim);
  strips_.resize(static_cast<size_t>(strips_of(slots)) * dim * kStrip);
  rows_.resize(static_cast<size_t>(strips_of(slots)) * kStrip * dim);
  for (int64_t slot = 0; slot < slots; slot += kStrip) {
    const float* keys = strip(table, slots, slot);
    float* to = strips_.data() + static_cast<size_t>(slot) * dim;
    float* rows = rows_.data() + static_cast<size_t>(slot) * dim;
    for (size_t lane = 0; lane < kStrip; ++lane) {
      double square = 0;
      for (size_t d = 0; d < dim; ++d)
        square += double{keys[d * kStrip + lane]} * double{keys[d * kStrip + lane]};
      const int64_t s = slot + static_cast<int64_t>(lane);
      const bool counts = s < slots && is_held(table, s, layout_.block_size) && square > 0;
      const auto factor = static_cast<float>(counts ? 1 / std::sqrt(square) : 0.0);
      for (size_t d = 0; d < dim; ++d) {
        const float unit = counts ? keys[d * kStrip + lane] * factor : 0.0f;
        to[d * kStrip + lane] = unit;
        rows[lane * dim + d] = unit;
      }
    }
  }
}

// The last column above the threshold; without one, column 0, as the method's code has it.
void KeyReader::clear_newest_similar(float* row, int64_t i, int64_t slots, float threshold) const {
  row[i] = 0;
  for (int64_t begin = (strips_of(slots) - 1) * kStrip; begin >= 0; begin -= kStrip) {
    float most = row[begin];
    for (int64_t j = 1; j < kStrip; ++j) most = std::max(most, row[begin + j]);
    if (!(most > threshold)) continue;
    for (int64_t j = begin + kStrip - 1; j >= begin; --j) {
      if (row[j] > threshold) {
        row[j] = 0;
        return;
      }
    }
  }
  row[0] = 0;
}

void KeyReader::similarity(const TableView& table, int64_t slots, float threshold, float* out) {
  std::fill_n(out, slots, 0.0f);
  if (slots == 0) return;
  normalise(table, slots);
  const int64_t padded = strips_of(slots) * kStrip;
  results_.resize(static_cast<size_t>(kRowTile * padded));
  int64_t rows = 0;
  for (int64_t first = 0; first < slots; first += kRowTile) {
    const int n = static_cast<int>(std::min<int64_t>(kRowTile, slots - first));
    k_.dot_strips({strips_.data(), static_cast<int>(strips_of(slots)), layout_.head_dim,
                   rows_.data() + first * layout_.head_dim, layout_.head_dim, n, 1.0f,
                   results_.data(), padded});
    for (int r = 0; r < n; ++r) {
      if (!is_held(table, first + r, layout_.block_size)) continue;
      ++rows;
      float* row = results_.data() + r * padded;
      clear_newest_similar(row, first + r, slots, threshold);
      for (int64_t j = 0; j < slots; ++j) out[j] += row[j];
    }
  }
  const float inverse = 1.0f / static_cast<float>(std::max<int64_t>(rows, 1));
  for (int64_t j = 0; j < slots; ++j) out[j] *= inverse;
}

}  // namespace pagefold::cpu
