#include "backend/cpu/similar_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>

namespace pagefold::cpu {
namespace {

constexpr int kLanes = kernels::kStripSlots;
constexpr int64_t kTileStrips = 4;
constexpr int64_t kFoldStrips = 8;  // of float32 terms before they go to float64

}  // namespace

void SimilarKeys::begin(const kernels::Kernels& k, int head_dim, int64_t slots) {
  k_ = &k;
  dim_ = head_dim;
  slots_ = slots;
  n_strips_ = (slots + kLanes - 1) / kLanes;
  rows_ = 0;
  most_ = 0;
  const auto padded = static_cast<size_t>(n_strips_ * kLanes);
  units_.resize(padded * static_cast<size_t>(dim_));
  if (code_bytes_ < units_.size()) {
    codes_.reset(static_cast<int8_t*>(::operator new (units_.size(), std::align_val_t{64})));
    code_bytes_ = units_.size();
  }
  sums_.resize(padded);
  counts_.resize(static_cast<size_t>(n_strips_));
  column_.resize(padded);
  directed_.resize(static_cast<size_t>(n_strips_));
  part_sum_.assign(static_cast<size_t>(dim_), 0.0f);
  sum_.assign(static_cast<size_t>(dim_), 0.0);
  near_.resize(kTile);
}

void SimilarKeys::add_strip(int64_t slot, const float* keys, uint32_t counts) {
  const kernels::StripUnits units =
      k_->unit_strip({keys, dim_, counts, unit(slot), part_sum_.data()});
  most_ = std::max(most_, units.largest);
  rows_ += std::popcount(counts);
  const int64_t index = slot / kLanes;
  counts_[static_cast<size_t>(index)] = static_cast<uint16_t>(counts);
  directed_[static_cast<size_t>(index)] = static_cast<uint16_t>(units.directed);
  if (index % kFoldStrips == kFoldStrips - 1) fold_sums();
}

void SimilarKeys::fold_sums() {
  for (size_t d = 0; d < sum_.size(); ++d) sum_[d] += double{part_sum_[d]};
  std::fill(part_sum_.begin(), part_sum_.end(), 0.0f);
}

float SimilarKeys::dot(const float* a, const float* b) const {
  float sum = 0;
  k_->dot_rows({a, 1, dim_, b, &sum});
  return sum;
}

// Sum over all rows of the cosine matrix with a zero diagonal: k_j . (sum of all k) - 1.
void SimilarKeys::add_column_sums() {
  fold_sums();
  for (size_t d = 0; d < sum_.size(); ++d) part_sum_[d] = static_cast<float>(sum_[d]);
  products_.resize(static_cast<size_t>(slots_));
  k_->dot_rows({unit(0), slots_, dim_, part_sum_.data(), products_.data()});
  for (size_t i = 0; i < products_.size(); ++i) {
    const int own = directed_[i / kLanes] >> (i % kLanes) & 1;
    column_[i] = double{products_[i]} - own;
  }
}

// Makes the codes; returns the product of codes up to which a cosine is surely not above the
// threshold: |a . b - a' . b'| <= |a| |b - b'| + |a - a'| |b'|, where no element of a - a' is more
// than half a step.
int32_t SimilarKeys::encode(float threshold) {
  const float scale = most_ > 0 ? most_ / 127 : 1;
  for (int64_t slot = 0; slot < slots_; slot += kLanes)
    k_->encode_strip(
        {unit(slot), dim_, 1 / scale, codes_.get() + slot * dim_, sums_.data() + slot});
  const double error = 0.5 * double{scale} * std::sqrt(dim_) * (1 + 1e-4);
  const double rounding = 1e-6 + dim_ * 0x1p-22;  // of the float32 products
  const double bound = error * (1 + 1e-4) + error * (1 + 1e-4 + error) + rounding;
  const double limit = std::floor((double{threshold} - bound) / (double{scale} * double{scale}));
  return static_cast<int32_t>(std::clamp(limit, -0x1p29, 0x1p29));
}

bool SimilarKeys::near_tile(const int32_t* rows, int n, int64_t tile) {
  kernels::StripNearArgs a;
  uint16_t bits[kTile * kTileStrips];
  a.codes = codes_.get();
  a.sums = sums_.data();
  a.head_dim = dim_;
  a.rows = rows;
  a.n_rows = n;
  a.first_strip = static_cast<int>(tile * kTileStrips);
  a.n_strips = static_cast<int>(std::min(kTileStrips, n_strips_ - tile * kTileStrips));
  a.limit = limit_;
  a.out = bits;
  k_->near_strips(a);
  const int64_t there = slots_ - tile * kTile;
  const uint64_t held = there >= kTile ? ~uint64_t{0} : (uint64_t{1} << there) - 1;
  uint64_t any = 0;
  for (int r = 0; r < n; ++r) {
    uint64_t row = 0;
    for (int s = 0; s < a.n_strips; ++s) row |= uint64_t{bits[r * a.n_strips + s]} << (kLanes * s);
    near_[static_cast<size_t>(r)] = row & held;
    any |= row & held;
  }
  return any != 0;
}

// A row takes the newest column of `near` that is above the threshold. False: none is.
bool SimilarKeys::take(int32_t row, uint64_t near, int64_t tile) {
  while (near != 0) {
    const uint64_t bit = std::bit_floor(near);
    const int64_t column = tile * kTile + std::countr_zero(bit);
    const float c = column == row ? 0.0f : dot(unit(row), unit(column));  // the diagonal is 0
    if (c > threshold_) {
      column_[static_cast<size_t>(column)] -= double{c};
      return true;
    }
    near ^= bit;
  }
  return false;
}

void SimilarKeys::take_newest(Open& open, const uint64_t* near, int64_t tile) {
  int left = 0;
  for (int r = 0; r < open.n; ++r) {
    if (!take(open.rows[r], near[r], tile)) open.rows[left++] = open.rows[r];
  }
  open.n = left;
}

// Open rows of `tile` against the columns of the later `column_tile`, and the other way round.
void SimilarKeys::search_pair(Open& rows, int64_t tile, Open& columns, int64_t column_tile) {
  if (rows.n + columns.n <= kTile) {
    if (rows.n > 0 && near_tile(rows.rows, rows.n, column_tile))
      take_newest(rows, near_.data(), column_tile);
    if (columns.n > 0 && near_tile(columns.rows, columns.n, tile))
      take_newest(columns, near_.data(), tile);
    return;
  }
  int32_t all[kTile];
  for (int i = 0; i < kTile; ++i) all[i] = static_cast<int32_t>(tile * kTile + i);
  if (!near_tile(all, kTile, column_tile)) return;
  uint64_t of_columns[kTile];
  for (int c = 0; c < columns.n; ++c) {
    of_columns[c] = 0;
    const int64_t bit = columns.rows[c] - column_tile * kTile;
    for (size_t r = 0; r < kTile; ++r) of_columns[c] |= (near_[r] >> bit & 1u) << r;
  }
  uint64_t of_rows[kTile];
  for (int r = 0; r < rows.n; ++r)
    of_rows[r] = near_[static_cast<size_t>(rows.rows[r] - tile * kTile)];
  take_newest(rows, of_rows, column_tile);
  take_newest(columns, of_columns, tile);
}

// Rows that found nothing.
void SimilarKeys::take_first_column() {
  for (const Open& open : open_) {
    for (int r = 0; r < open.n; ++r)
      column_[0] -= open.rows[r] == 0 ? 0.0 : double{dot(unit(open.rows[r]), unit(0))};
  }
}

// Takes from each row the newest column above the threshold; without one, column 0, as the method's
// code has it. Every row meets its columns from the newest tile on, and is done at its first hit.
void SimilarKeys::search() {
  const int64_t tiles = (slots_ + kTile - 1) / kTile;
  open_.assign(static_cast<size_t>(tiles), {});
  for (int64_t slot = 0; slot < slots_; ++slot) {
    if ((counts_[static_cast<size_t>(slot / kLanes)] >> (slot % kLanes) & 1u) == 0) continue;
    Open& open = open_[static_cast<size_t>(slot / kTile)];
    open.rows[open.n++] = static_cast<int32_t>(slot);
  }
  for (int64_t tile = tiles - 1; tile >= 0; --tile) {
    Open& open = open_[static_cast<size_t>(tile)];
    if (open.n > 0 && near_tile(open.rows, open.n, tile)) take_newest(open, near_.data(), tile);
    for (int64_t older = tile - 1; older >= 0; --older)
      search_pair(open_[static_cast<size_t>(older)], older, open, tile);
  }
  take_first_column();
}

void SimilarKeys::means(float threshold, float* out) {
  add_column_sums();
  threshold_ = threshold;
  limit_ = encode(threshold);
  search();
  const double inverse = 1.0 / static_cast<double>(std::max<int64_t>(rows_, 1));
  for (int64_t j = 0; j < slots_; ++j)
    out[j] = static_cast<float>(column_[static_cast<size_t>(j)] * inverse);
}

}  // namespace pagefold::cpu
