// Lengths of keys, for unit_strip. Everything has internal linkage, as in packed_layout.h.
#pragma once

#include "kernels/keys.h"

namespace pagefold::kernels {
namespace {

// Squared lengths in between have neither lost their small terms nor come near infinity in float32.
constexpr float kLeastSquare = 1e-24f, kMostSquare = 1e30f;

// 1 / length of the key keys[16 d]; 0: it has no direction.
inline float inverse_length(const float* keys, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d)
    sum += double{keys[d * kStripSlots]} * double{keys[d * kStripSlots]};
  return sum > 0 ? static_cast<float>(1 / __builtin_sqrt(sum)) : 0;
}

// Written over a Vec (vec_avx2.h, vec_avx512.h) and a struct Rows with
//   static Vec::F inverse_sqrt(Vec::F)
//   static Vec::F abs(Vec::F)
//   static void store4(Vec::F (&x)[4], float* rows, int64_t stride, float* sums)
//      x[j] lane r to rows[stride r + j], its sum to sums[j]
#ifdef PF_KEYS_OVER_VEC
// 1 / length of each key; the squares are added in parts of 16, which keeps their rounding small.
inline void inverse_lengths(const StripUnitArgs& a, float* factor) {
  Vec::F square = Vec::zero();
  for (int d = 0; d < a.head_dim;) {
    Vec::F part = Vec::zero();
    for (const int end = d + 16 < a.head_dim ? d + 16 : a.head_dim; d < end; ++d) {
      const Vec::F x = Vec::load(a.keys + d * kStripSlots);
      part = Vec::fma(x, x, part);
    }
    square = Vec::add(square, part);
  }
  alignas(64) float squares[kStripSlots];
  Vec::store(squares, square);
  Vec::store(factor, Rows::inverse_sqrt(square));
  for (int lane = 0; lane < kStripSlots; ++lane) {
    if (!(squares[lane] > kLeastSquare && squares[lane] < kMostSquare))
      factor[lane] = inverse_length(a.keys + lane, a.head_dim);
  }
}

inline void row_dots(const RowDotArgs& a) {
  for (int64_t i = 0; i < a.n; ++i) {
    const float* row = a.rows + i * a.head_dim;
    Vec::F sum = Vec::zero();
    for (int d = 0; d < a.head_dim; d += 16) {
      const int n = a.head_dim - d < 16 ? 8 : 16;
      sum = Vec::fma(Vec::load_n(row + d, n), Vec::load_n(a.with + d, n), sum);
    }
    a.out[i] = Vec::reduce_add(sum);
  }
}

inline StripUnits unit_rows(const StripUnitArgs& a) {
  alignas(64) float factors[kStripSlots];
  inverse_lengths(a, factors);
  unsigned directed = 0;
  for (int lane = 0; lane < kStripSlots; ++lane) directed |= (factors[lane] != 0 ? 1u : 0u) << lane;
  directed &= a.counts;
  const Vec::F factor = Vec::load(factors);
  Vec::F most = Vec::zero();
  for (int d = 0; d < a.head_dim; d += 4) {
    Vec::F x[4];
    for (int j = 0; j < 4; ++j) {
      const Vec::F key = Vec::load(a.keys + (d + j) * kStripSlots);
      // What is not counted may be no number.
      x[j] = Vec::select(static_cast<uint16_t>(directed), Vec::mul(key, factor), Vec::zero());
      most = Vec::max(most, Rows::abs(x[j]));
    }
    Rows::store4(x, a.rows + d, a.head_dim, a.sums + d);
  }
  return {directed, Vec::reduce_max(most)};
}
#endif

}  // namespace
}  // namespace pagefold::kernels
