// Pieces that the AVX2 files share. Internal linkage, always inlined (see packed_layout.h).
// A tile's 16 outputs are two registers: half 0 holds outputs 0..7, half 1 holds 8..15.
#pragma once

#include <immintrin.h>

#include "kernels/matmul_driver.h"

namespace pagefold::kernels::avx2 {
namespace {

PF_ISA_INLINE __m256 load_meta(const std::byte* p, bool f16, int half) {
  return f16 ? _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p + half * 16)))
             : _mm256_load_ps(reinterpret_cast<const float*>(p + half * 32));
}
PF_ISA_INLINE __m256i load_32(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

// y[row][16 outputs of the tile] = sum (+ bias) or += it.
PF_ISA_INLINE void store_outputs(const MatmulArgs& a, int tile, int row, const __m256* sum) {
  const int first = tile * kTileRows;
  const int n = a.weights->shape.n_out - first;
  const OutputRow out = output_row(a, row);
  float* y = out.y + first;
  if (n >= kTileRows) {
    for (int h = 0; h < 2; ++h) {
      __m256 v = sum[h];
      if (out.bias != nullptr) v = _mm256_add_ps(v, _mm256_loadu_ps(out.bias + first + h * 8));
      if (out.accumulate) v = _mm256_add_ps(_mm256_loadu_ps(y + h * 8), v);
      _mm256_storeu_ps(y + h * 8, v);
    }
    return;
  }
  alignas(32) float part[kTileRows];
  _mm256_store_ps(part, sum[0]);
  _mm256_store_ps(part + 8, sum[1]);
  for (int j = 0; j < n; ++j) {
    const float v = out.bias != nullptr ? part[j] + out.bias[first + j] : part[j];
    y[j] = out.accumulate ? y[j] + v : v;
  }
}

}  // namespace
}  // namespace pagefold::kernels::avx2
