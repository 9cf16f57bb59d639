#include "backend/cpu/key_reader.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/hadamard.h"
#include "base/check.h"

namespace pagefold::cpu {
namespace {

constexpr int kStrip = kernels::kStripSlots;
constexpr int kRowTile = 32;   // rows of the cosine matrix at a time
constexpr int kStripTile = 4;  // strips of its columns at a time

int64_t strips_of(int64_t slots) { return (slots + kStrip - 1) / kStrip; }
bool is_live(const TableView& t, int64_t slot) {
  return t.live == nullptr || (t.live[slot / 32] >> (slot % 32) & 1u) != 0;
}
// The last of the first n values above the threshold; -1: none. Whole strips are there.
int64_t newest_above(const float* row, int64_t n, float threshold) {
  for (int64_t begin = (strips_of(n) - 1) * kStrip; begin >= 0; begin -= kStrip) {
    float most = row[begin];
    for (int64_t j = 1; j < kStrip; ++j) most = std::max(most, row[begin + j]);
    if (!(most > threshold)) continue;
    for (int64_t j = std::min(begin + kStrip, n) - 1; j >= begin; --j) {
      if (row[j] > threshold) return j;
    }
  }
  return -1;
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
  restore();
  const int64_t there = slots - slot;
  for (size_t d = 0; there < kStrip && d < dim; ++d) {
    std::fill(keys_.data() + d * kStrip + there, keys_.data() + (d + 1) * kStrip, 0.0f);
  }
  return keys_.data();
}

// From the store's form to the model's.
void KeyReader::restore() {
  if (stored_.hadamard) rotate_hadamard(keys_.data(), layout_.head_dim, kStrip);
  if (stored_.scale != 1.0f) {
    for (float& key : keys_) key *= stored_.scale;
  }
  if (stored_.centre == nullptr) return;
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i] += stored_.centre[i / kStrip];
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

// Sum over all rows of the cosine matrix with a zero diagonal: k_j . (sum of all k) - k_j . k_j.
void KeyReader::add_column_sums(int64_t slots, float* out) const {
  const auto dim = static_cast<size_t>(layout_.head_dim);
  std::vector<double> sum(dim, 0.0);
  for (int64_t i = 0; i < slots; ++i) {
    const float* key = rows_.data() + static_cast<size_t>(i) * dim;
    for (size_t d = 0; d < dim; ++d) sum[d] += double{key[d]};
  }
  for (int64_t j = 0; j < slots; ++j) {
    const float* key = rows_.data() + static_cast<size_t>(j) * dim;
    double all = 0;
    for (size_t d = 0; d < dim; ++d) all += double{key[d]} * (sum[d] - double{key[d]});
    out[j] += static_cast<float>(all);
  }
}

// Takes from each row the newest column above the threshold; without one, column 0, as the method's
// code has it. Columns are computed from the newest on, and a row is done at its first hit: keys of
// a head are much alike, so few products are needed.
void KeyReader::take_newest_similar(const TableView& table, int64_t slots, float threshold,
                                    float* out) {
  const auto dim = static_cast<size_t>(layout_.head_dim);
  const int64_t n_strips = strips_of(slots);
  results_.resize(static_cast<size_t>(kRowTile * kStripTile * kStrip));
  std::vector<float> queries(static_cast<size_t>(kRowTile) * dim);
  int64_t open[kRowTile];  // rows without a hit yet
  for (int64_t first = 0; first < slots; first += kRowTile) {
    int n = 0;
    for (int64_t i = first; i < std::min(slots, first + kRowTile); ++i) {
      if (is_held(table, i, layout_.block_size)) open[n++] = i;
    }
    for (int64_t end = n_strips; end > 0 && n > 0; end -= kStripTile) {
      const int64_t begin = std::max<int64_t>(0, end - kStripTile);
      for (int r = 0; r < n; ++r) {
        std::copy_n(rows_.data() + static_cast<size_t>(open[r]) * dim, dim,
                    queries.data() + static_cast<size_t>(r) * dim);
      }
      const int64_t ld = (end - begin) * kStrip;
      k_.dot_strips({strips_.data() + static_cast<size_t>(begin * kStrip) * dim,
                     static_cast<int>(end - begin), layout_.head_dim, queries.data(),
                     layout_.head_dim, n, 1.0f, results_.data(), ld});
      int left = 0;
      for (int r = 0; r < n; ++r) {
        float* row = results_.data() + r * ld;
        const int64_t itself = open[r] - begin * kStrip;
        if (itself >= 0 && itself < ld) row[itself] = 0;  // the diagonal
        const int64_t there = std::min(ld, slots - begin * kStrip);
        const int64_t hit = newest_above(row, there, threshold);
        if (hit >= 0) {
          out[begin * kStrip + hit] -= row[hit];
        } else if (begin == 0) {
          out[0] -= row[0];
        } else {
          open[left++] = open[r];
        }
      }
      n = left;
    }
  }
}

void KeyReader::similarity(const TableView& table, int64_t slots, float threshold, float* out) {
  std::fill_n(out, slots, 0.0f);
  if (slots == 0) return;
  normalise(table, slots);
  add_column_sums(slots, out);
  take_newest_similar(table, slots, threshold, out);
  int64_t rows = 0;
  for (int64_t i = 0; i < slots; ++i) rows += is_held(table, i, layout_.block_size) ? 1 : 0;
  const float inverse = 1.0f / static_cast<float>(std::max<int64_t>(rows, 1));
  for (int64_t j = 0; j < slots; ++j) out[j] *= inverse;
}

}  // namespace pagefold::cpu
