// The one hot loop of calibration: c[8][32] += sum over k of a[k][8] x b[k][32], on packed panels.
// One file an instruction set (the suffix decides its flags; such files include no STL).
#pragma once

#include <cstdint>

namespace pagefold {

inline constexpr int kPanelA = 8, kPanelB = 32;

// a: [k][8], b: [k][32], c: row-major with ldc values a row.
using PanelProduct = void (*)(int64_t k, const float* a, const float* b, float* c, int64_t ldc);
void panel_product_scalar(int64_t k, const float* a, const float* b, float* c, int64_t ldc);
void panel_product_avx2(int64_t k, const float* a, const float* b, float* c, int64_t ldc);
void panel_product_avx512(int64_t k, const float* a, const float* b, float* c, int64_t ldc);

}  // namespace pagefold
