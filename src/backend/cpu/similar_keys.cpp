#include "backend/cpu/similar_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>

namespace pagefold::cpu {
namespace {

constexpr int kLanes = kernels::kStripSlots;
constexpr int64_t kTileStrips = 4;

}  // namespace

void SimilarKeys::begin(const kernels::Kernels& k, int head_dim, int64_t slots) {
  k_ = &k;
  dim_ = head_dim;
  slots_ = slots;
  n_strips_ = (slots + kLanes - 1) / kLanes;
  rows_ = 0;
  most_ = 0;
  query_row_ = -1;
  const auto padded = static_cast<size_t>(n_strips_ * kLanes);
  units_.resize(padded * static_cast<size_t>(dim_));
  if (code_bytes_ < units_.size()) {
    codes_.reset(static_cast<int8_t*>(::operator new (units_.size(), std::align_val_t{64})));
    code_bytes_ = units_.size();
  }
  sums_.resize(padded);
  counts_.resize(static_cast<size_t>(n_strips_));
  column_.assign(padded, 0.0);
  query_.resize(static_cast<size_t>(dim_));
  near_.resize(kTile);
}

void SimilarKeys::add_strip(int64_t slot, const float* keys, uint32_t counts) {
  double square[kLanes] = {};
  for (int d = 0; d < dim_; ++d) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = keys[d * kLanes + lane];
      square[lane] += x * x;
    }
  }
  float factor[kLanes], most[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool held = (counts >> lane & 1u) != 0;
    rows_ += held ? 1 : 0;
    factor[lane] = held && square[lane] > 0 ? static_cast<float>(1 / std::sqrt(square[lane])) : 0;
  }
  counts_[static_cast<size_t>(slot / kLanes)] = static_cast<uint16_t>(counts);
  float* to = strip(slot);
  for (int d = 0; d < dim_; ++d) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float x = factor[lane] != 0 ? keys[d * kLanes + lane] * factor[lane] : 0.0f;
      to[d * kLanes + lane] = x;
      most[lane] = most[lane] < std::fabs(x) ? std::fabs(x) : most[lane];
    }
  }
  most_ = std::max(most_, *std::max_element(most, most + kLanes));
}

// Sum over all rows of the cosine matrix with a zero diagonal: k_j . (sum of all k) - k_j . k_j.
void SimilarKeys::add_column_sums() {
  std::vector<double> sum(static_cast<size_t>(dim_), 0.0);
  for (int64_t slot = 0; slot < slots_; slot += kLanes) {
    const float* keys = strip(slot);
    for (int d = 0; d < dim_; ++d) {
      for (int lane = 0; lane < kLanes; ++lane)
        sum[static_cast<size_t>(d)] += double{keys[d * kLanes + lane]};
    }
  }
  for (int64_t slot = 0; slot < slots_; slot += kLanes) {
    const float* keys = strip(slot);
    double* out = column_.data() + slot;
    for (int d = 0; d < dim_; ++d) {
      const double all = sum[static_cast<size_t>(d)];
      for (int lane = 0; lane < kLanes; ++lane) {
        const double x = keys[d * kLanes + lane];
        out[lane] += x * (all - x);
      }
    }
  }
}

// Returns the largest squared distance of a key from its codes.
double SimilarKeys::encode_strip(int64_t slot, float scale) {
  const float* keys = strip(slot);
  int8_t* to = codes_.get() + slot * dim_;
  const float inverse = 1 / scale;
  float error[kLanes] = {};
  int32_t sum[kLanes] = {};
  for (int d = 0; d < dim_; d += 4, to += 4 * kLanes) {
    uint32_t quad[kLanes] = {};
    for (int i = 0; i < 4; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const float x = keys[(d + i) * kLanes + lane];
        const auto code = static_cast<int32_t>(x * inverse + (x < 0 ? -0.5f : 0.5f));
        const float off = x - static_cast<float>(code) * scale;
        error[lane] += off * off;
        sum[lane] += code;
        quad[lane] |= (static_cast<uint32_t>(code) & 255u) << (8 * i);
      }
    }
    std::memcpy(to, quad, sizeof quad);
  }
  std::copy_n(sum, kLanes, sums_.data() + slot);
  return static_cast<double>(*std::max_element(error, error + kLanes));
}

// Makes the codes; returns the product of codes up to which a cosine is surely not above the
// threshold: |a . b - a' . b'| <= |a| |b - b'| + |a - a'| |b'|.
int32_t SimilarKeys::encode(float threshold) {
  const float scale = most_ > 0 ? most_ / 127 : 1;
  double square = 0;
  for (int64_t slot = 0; slot < slots_; slot += kLanes)
    square = std::max(square, encode_strip(slot, scale));
  const double error = std::sqrt(square) * (1 + 1e-4);
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

float SimilarKeys::cosine(int32_t row, int32_t column) {
  if (row == column) return 0;  // the diagonal
  if (row != query_row_) {
    const float* from = strip(row / kLanes * kLanes) + row % kLanes;
    for (int d = 0; d < dim_; ++d) query_[static_cast<size_t>(d)] = from[d * kLanes];
    query_row_ = row;
    product_strip_ = -1;
  }
  if (product_strip_ != column / kLanes) {
    product_strip_ = column / kLanes;
    k_->dot_strips(
        {strip(product_strip_ * kLanes), 1, dim_, query_.data(), dim_, 1, 1.0f, products_, kLanes});
  }
  return products_[column % kLanes];
}

bool SimilarKeys::take(int32_t row, int32_t column) {
  const float c = cosine(row, column);
  if (!(c > threshold_)) return false;
  column_[static_cast<size_t>(column)] -= double{c};
  return true;
}

// The rows of the last near_tile() are the open ones; its columns are those of `tile`.
void SimilarKeys::take_from_columns(Open& open, int64_t tile) {
  int left = 0;
  for (int r = 0; r < open.n; ++r) {
    const int32_t row = open.rows[r];
    bool found = false;
    for (uint64_t bits = near_[static_cast<size_t>(r)]; bits != 0 && !found;) {
      const int newest = 63 - std::countl_zero(bits);
      bits ^= uint64_t{1} << newest;
      found = take(row, static_cast<int32_t>(tile * kTile + newest));
    }
    if (!found) open.rows[left++] = row;
  }
  open.n = left;
}

// The rows of the last near_tile() are all of `row_tile`, and columns here; its columns are the
// open rows' tile.
void SimilarKeys::take_from_rows(Open& open, int64_t tile, int64_t row_tile) {
  uint64_t any = 0;
  for (const uint64_t bits : near_) any |= bits;
  int left = 0;
  for (int r = 0; r < open.n; ++r) {
    const int32_t row = open.rows[r];
    const int64_t bit = row - tile * kTile;
    bool found = false;
    for (int c = kTile - 1; c >= 0 && !found && (any >> bit & 1u) != 0; --c) {
      if ((near_[static_cast<size_t>(c)] >> bit & 1u) != 0)
        found = take(row, static_cast<int32_t>(row_tile * kTile + c));
    }
    if (!found) open.rows[left++] = row;
  }
  open.n = left;
}

// Open rows of `tile` against the columns of the later `column_tile`, and the other way round.
void SimilarKeys::search_pair(Open& rows, int64_t tile, Open& columns, int64_t column_tile) {
  if (rows.n + columns.n <= kTile) {
    if (rows.n > 0 && near_tile(rows.rows, rows.n, column_tile))
      take_from_columns(rows, column_tile);
    if (columns.n > 0 && near_tile(columns.rows, columns.n, tile)) take_from_columns(columns, tile);
    return;
  }
  int32_t all[kTile];
  for (int i = 0; i < kTile; ++i) all[i] = static_cast<int32_t>(tile * kTile + i);
  if (!near_tile(all, kTile, column_tile)) return;
  take_from_rows(columns, column_tile, tile);
  // The open rows' bits move to where take_from_columns() looks.
  for (int r = 0; r < rows.n; ++r)
    near_[static_cast<size_t>(r)] = near_[static_cast<size_t>(rows.rows[r] - tile * kTile)];
  take_from_columns(rows, column_tile);
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
    if (open.n > 0 && near_tile(open.rows, open.n, tile)) take_from_columns(open, tile);
    for (int64_t older = tile - 1; older >= 0; --older)
      search_pair(open_[static_cast<size_t>(older)], older, open, tile);
  }
  for (const Open& open : open_) {
    for (int r = 0; r < open.n; ++r) column_[0] -= double{cosine(0, open.rows[r])};  // the same
  }
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
