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
constexpr int64_t kFoldStrips = 32;  // so many float32 terms a lane before they go to float64
constexpr int kQuarter = 4;          // lanes of a register of the baseline's

using F4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));

F4 load4(const float* p) {
  F4 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
void store4(float* p, F4 x) { std::memcpy(p, &x, sizeof x); }
I4 bits_of(F4 x) { return reinterpret_cast<I4>(x); }
F4 float_of(I4 x) { return reinterpret_cast<F4>(x); }
F4 max4(F4 a, F4 b) { return a < b ? b : a; }
float max_of(F4 x) { return std::max(std::max(x[0], x[1]), std::max(x[2], x[3])); }

// 1 / length of a key of which keys[16 d] are the elements; 0: it has no direction. square: its
// squared length in float32, which neither a tiny nor a huge key has.
float inverse_length(float square, const float* keys, int dim) {
  if (square > 1e-24f && square < 1e30f) return 1 / std::sqrt(square);
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += double{keys[d * kLanes]} * double{keys[d * kLanes]};
  return sum > 0 ? static_cast<float>(1 / std::sqrt(sum)) : 0;
}

}  // namespace

void SimilarKeys::begin(const kernels::Kernels& k, int head_dim, int64_t slots) {
  k_ = &k;
  dim_ = head_dim;
  slots_ = slots;
  n_strips_ = (slots + kLanes - 1) / kLanes;
  rows_ = 0;
  most_ = 0;
  have_keys_ = 0;
  keys_tile_ = -1;
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
  lane_sums_.assign(static_cast<size_t>(dim_ * kLanes), 0.0f);
  sum_.assign(static_cast<size_t>(dim_), 0.0);
  column_dots_.resize(padded);
  column_keys_.resize(static_cast<size_t>(kTile * dim_));
  queries_.resize(static_cast<size_t>(kLanes * dim_));
  near_.resize(kTile);
}

// Four lanes of a strip at unit length; returns the largest |element|. Bits of `directed`: keys
// that have a direction. The squares are added in parts of 16, which keeps their rounding small.
float SimilarKeys::unit_lanes(const float* keys, float* to, uint32_t counts, uint32_t& directed) {
  F4 square = {};
  for (int d = 0; d < dim_;) {
    F4 part = {};
    for (const int end = std::min(d + 16, dim_); d < end; ++d) {
      const F4 x = load4(keys + d * kLanes);
      part += x * x;
    }
    square += part;
  }
  F4 factor;
  directed = 0;
  for (int i = 0; i < kQuarter; ++i) {
    factor[i] = (counts >> i & 1u) != 0 ? inverse_length(square[i], keys + i, dim_) : 0.0f;
    directed |= factor[i] != 0 ? 1u << i : 0u;
  }
  const I4 held = factor != 0;  // others may be no numbers
  F4 most = {};
  float* sums = lane_sums_.data() + (to - units_.data()) % kLanes;
  for (int d = 0; d < dim_; ++d) {
    const F4 x = float_of(bits_of(load4(keys + d * kLanes) * factor) & held);
    store4(to + d * kLanes, x);
    store4(sums + d * kLanes, load4(sums + d * kLanes) + x);
    most = max4(most, float_of(bits_of(x) & 0x7fffffff));
  }
  return max_of(most);
}

void SimilarKeys::add_strip(int64_t slot, const float* keys, uint32_t counts) {
  uint32_t directed = 0;
  for (int lane = 0; lane < kLanes; lane += kQuarter) {
    uint32_t of_quarter;
    const float most = unit_lanes(keys + lane, strip(slot) + lane, counts >> lane, of_quarter);
    most_ = std::max(most_, most);
    directed |= of_quarter << lane;
  }
  rows_ += std::popcount(counts);
  const int64_t index = slot / kLanes;
  counts_[static_cast<size_t>(index)] = static_cast<uint16_t>(counts);
  directed_[static_cast<size_t>(index)] = static_cast<uint16_t>(directed);
  if (index % kFoldStrips == kFoldStrips - 1) fold_sums();
}

void SimilarKeys::fold_sums() {
  for (int d = 0; d < dim_; ++d) {
    const float* x = lane_sums_.data() + d * kLanes;
    const F4 sum = (load4(x) + load4(x + 4)) + (load4(x + 8) + load4(x + 12));
    sum_[static_cast<size_t>(d)] +=
        (double{sum[0]} + double{sum[1]}) + (double{sum[2]} + double{sum[3]});
  }
  std::fill(lane_sums_.begin(), lane_sums_.end(), 0.0f);
}

// Sum over all rows of the cosine matrix with a zero diagonal: k_j . (sum of all k) - 1.
void SimilarKeys::add_column_sums() {
  fold_sums();
  for (int d = 0; d < dim_; ++d)
    queries_[static_cast<size_t>(d)] = static_cast<float>(sum_[static_cast<size_t>(d)]);
  k_->dot_strips({units_.data(), static_cast<int>(n_strips_), dim_, queries_.data(), dim_, 1, 1.0f,
                  column_dots_.data(), n_strips_ * kLanes});
  for (int64_t slot = 0; slot < slots_; ++slot) {
    const auto i = static_cast<size_t>(slot);
    const int own = directed_[i / kLanes] >> (i % kLanes) & 1;
    column_[i] = double{column_dots_[i]} - own;
  }
}

// Returns the largest squared distance of a key from its codes.
float SimilarKeys::encode_strip(int64_t slot, float scale) {
  const float inverse = 1 / scale;
  F4 most = {};
  for (int lane = 0; lane < kLanes; lane += kQuarter) {
    const float* keys = strip(slot) + lane;
    int8_t* to = codes_.get() + slot * dim_ + lane * 4;
    F4 error = {};
    I4 sum = {};
    for (int d = 0; d < dim_; d += 4, to += 4 * kLanes) {
      I4 quad = {};
      for (int i = 0; i < 4; ++i) {
        const F4 x = load4(keys + (d + i) * kLanes);
        const I4 half = (bits_of(x) & INT32_MIN) | std::bit_cast<int32_t>(0.5f);  // has x's sign
        const I4 code = __builtin_convertvector(x * inverse + float_of(half), I4);
        const F4 off = x - __builtin_convertvector(code, F4) * scale;
        error += off * off;
        sum += code;
        quad |= (code & 255) << (8 * i);
      }
      std::memcpy(to, &quad, sizeof quad);
    }
    std::memcpy(sums_.data() + slot + lane, &sum, sizeof sum);
    most = max4(most, error);
  }
  return max_of(most);
}

// Makes the codes; returns the product of codes up to which a cosine is surely not above the
// threshold: |a . b - a' . b'| <= |a| |b - b'| + |a - a'| |b'|.
int32_t SimilarKeys::encode(float threshold) {
  const float scale = most_ > 0 ? most_ / 127 : 1;
  float square = 0;
  for (int64_t slot = 0; slot < slots_; slot += kLanes)
    square = std::max(square, encode_strip(slot, scale));
  const double error = std::sqrt(double{square}) * (1 + 1e-4);
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

const float* SimilarKeys::column_key(int64_t tile, int column) {
  if (tile != keys_tile_) have_keys_ = 0;
  keys_tile_ = tile;
  float* key = column_keys_.data() + int64_t{column} * dim_;
  if ((have_keys_ >> column & 1u) == 0) {
    have_keys_ |= uint64_t{1} << column;
    const float* from = strip(tile * kTile + column / kLanes * kLanes) + column % kLanes;
    for (int d = 0; d < dim_; ++d) key[d] = from[d * kLanes];
  }
  return key;
}

// Rows of one strip: each tries its newest column of near[]. One product of a column with the strip
// serves all rows that try it. A row that took its column, or has no more, ends with near 0;
// returns the rows that took one, as bits.
int SimilarKeys::take_round(const int32_t* rows, uint64_t* near, int n, int64_t tile) {
  uint64_t tried = 0;
  for (int r = 0; r < n; ++r) tried |= std::bit_floor(near[r]);
  int n_columns = 0;
  for (uint64_t bits = tried; bits != 0; bits &= bits - 1)
    std::copy_n(column_key(tile, std::countr_zero(bits)), dim_,
                queries_.data() + n_columns++ * dim_);
  // Eight at once take less time than three alone: what the others give is not looked at.
  const int n_dots = n_columns < 3 ? n_columns : (n_columns + 7) / 8 * 8;
  float products[kLanes * kLanes];
  const int64_t slot = rows[0] / kLanes * kLanes;
  k_->dot_strips({strip(slot), 1, dim_, queries_.data(), dim_, n_dots, 1.0f, products, kLanes});
  int took = 0;
  for (int r = 0; r < n; ++r) {
    if (near[r] == 0) continue;
    const uint64_t bit = std::bit_floor(near[r]);
    const int64_t column = tile * kTile + std::countr_zero(bit);
    const float c = column == rows[r]
                        ? 0.0f  // the diagonal
                        : products[std::popcount(tried & (bit - 1)) * kLanes + rows[r] % kLanes];
    near[r] ^= bit;
    if (!(c > threshold_)) continue;
    column_[static_cast<size_t>(column)] -= double{c};
    near[r] = 0;
    took |= 1 << r;
  }
  return took;
}

void SimilarKeys::take_newest(Open& open, uint64_t* near, int64_t tile) {
  int left = 0;
  for (int begin = 0, end = 0; begin < open.n; begin = end) {
    const int32_t* rows = open.rows + begin;
    uint64_t any = 0;
    for (; end < open.n && open.rows[end] / kLanes == rows[0] / kLanes; ++end) any |= near[end];
    int took = 0;
    while (any != 0) {
      took |= take_round(rows, near + begin, end - begin, tile);
      any = 0;
      for (int r = begin; r < end; ++r) any |= near[r];
    }
    for (int r = begin; r < end; ++r) {
      if ((took >> (r - begin) & 1) == 0) open.rows[left++] = open.rows[r];
    }
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
  float products[kTile];
  for (size_t tile = 0; tile < open_.size(); ++tile) {
    const Open& open = open_[tile];
    if (open.n == 0) continue;
    const int64_t begin = static_cast<int64_t>(tile) * kTile;
    const auto n = static_cast<int>(std::min(kTileStrips, n_strips_ - begin / kLanes));
    k_->dot_strips({strip(begin), n, dim_, column_key(0, 0), dim_, 1, 1.0f, products, kTile});
    for (int r = 0; r < open.n; ++r)
      column_[0] -= open.rows[r] == 0 ? 0.0 : double{products[open.rows[r] - begin]};
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
