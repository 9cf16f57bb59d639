// Four floats at a time, in the vector instructions that every processor of the build has: for code
// outside the kernels whose loops a compiler does not vectorise by itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/exp_poly.h"

namespace pagefold {

using F4 = float __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));

inline F4 load4(const float* p) {
  F4 x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store4(float* p, F4 x) { std::memcpy(p, &x, sizeof x); }
inline I4 bits_of(F4 x) { return reinterpret_cast<I4>(x); }
inline F4 float_of(I4 x) { return reinterpret_cast<F4>(x); }
inline F4 max4(F4 a, F4 b) { return a < b ? b : a; }
inline float max_of(F4 x) { return std::max(std::max(x[0], x[1]), std::max(x[2], x[3])); }
inline float sum_of(F4 x) { return (x[0] + x[1]) + (x[2] + x[3]); }

// e^x of x <= 0 (exp_poly.h). NaN stays NaN.
inline F4 exp4(F4 x) {
  x = x < kExpLowest ? F4{} + kExpLowest : x;
  const F4 turns = x * kLog2E;
  const I4 half = (bits_of(turns) & INT32_MIN) | bits_of(F4{} + 0.5f);  // has the sign of turns
  const I4 whole = __builtin_convertvector(turns + float_of(half), I4);
  const F4 n = __builtin_convertvector(whole, F4);
  const F4 r = (x - n * kLn2High) - n * kLn2Low;
  const F4 p = (((kExp6 * r + kExp5) * r + kExp4) * r + kExp3) * r + kExp2;
  const F4 y = p * (r * r) + r + 1.0f;
  // 2^n in two factors: n reaches below the least normal exponent.
  const I4 low = whole >> 1;
  return (y * float_of((low + 127) << 23)) * float_of((whole - low + 127) << 23);
}

}  // namespace pagefold
