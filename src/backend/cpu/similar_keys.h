// How alike the keys of a table are, as R-KV counts it (ScoredKeys::similarity in kv/signals.h),
// without the matrix of all pairs:
//   mean of a column = (k_j . sum of all k - k_j . k_j - what rows took from it) / rows
// with keys at unit length, so that only the newest similar key of each row has to be searched.
// Codes of 8 bits tell which products may be above the threshold; their rounding is bounded, so
// none is missed, and only those are computed in float32. The matrix is symmetric: where two tiles
// both have rows to search, one product serves both.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernels.h"

namespace pagefold::cpu {

// One table at a time; buffers are kept.
class SimilarKeys {
 public:
  void begin(const kernels::Kernels& k, int head_dim, int64_t slots);
  // The strip that begins at `slot`: [head_dim][16]; bit `lane` of `counts`: that slot is a key.
  // Others are like no other, are no row and get 0.
  void add_strip(int64_t slot, const float* keys, uint32_t counts);
  // After all strips. threshold: above it keys are similar. out: [slots]
  void means(float threshold, float* out);

 private:
  static constexpr int kTile = 64;  // rows and columns
  // Rows of a tile that have found nothing yet.
  struct Open {
    int32_t rows[kTile];
    int n = 0;
  };
  struct Free {
    void operator()(int8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
  };

  float* unit(int64_t slot) { return units_.data() + slot * dim_; }
  float dot(const float* a, const float* b) const;
  void fold_sums();
  void add_column_sums();
  int32_t encode(float threshold);
  void search();
  void search_pair(Open& rows, int64_t tile, Open& columns, int64_t column_tile);
  // Fills near_; false: nothing is near.
  bool near_tile(const int32_t* rows, int n, int64_t tile);
  // near: [open.n] columns of `tile` that may be above the threshold.
  void take_newest(Open& open, const uint64_t* near, int64_t tile);
  bool take(int32_t row, uint64_t near, int64_t tile);
  void take_first_column();

  const kernels::Kernels* k_ = nullptr;
  int dim_ = 0;
  int64_t slots_ = 0, n_strips_ = 0, rows_ = 0;
  float most_ = 0;                         // largest |element| of the unit keys
  std::vector<float> units_;               // [slots][head_dim]: a product of two is all a row needs
  std::unique_ptr<int8_t[], Free> codes_;  // as StripNearArgs has them
  size_t code_bytes_ = 0;
  std::vector<int32_t> sums_;       // [slots] of the codes
  std::vector<uint16_t> counts_;    // [strips]
  std::vector<uint16_t> directed_;  // [strips] bit: the key is counted and not zero
  std::vector<float> part_sum_;     // [head_dim] of the unit keys since fold_sums()
  std::vector<float> products_;     // [slots] of the unit keys with their sum
  std::vector<double> sum_;         // [head_dim] of those before
  std::vector<double> column_;      // [slots] sum of a column
  std::vector<Open> open_;          // [tiles]
  std::vector<uint64_t> near_;      // [rows of the last near_tile()] bits of the tile's columns
  float threshold_ = 0;
  int32_t limit_ = 0;
};

}  // namespace pagefold::cpu
