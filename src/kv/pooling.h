// 1-D pooling of scores along the sequence, as SnapKV has it: stride 1, kernel centred.
#pragma once

#include <cstdint>

namespace pagefold {

enum class Pool : uint8_t { max, avg };

// out[i] over in[i - kernel / 2 .. i + kernel / 2]. avg divides by the kernel even at the borders
// (zero padding); max ignores what is outside. kernel is odd; 1 copies. out != in.
void pool_scores(const float* in, int64_t n, int kernel, Pool pool, float* out);

// The same over slots taken in the order of their positions, which `fill` may have scrambled.
void pool_by_position(const float* in, const int32_t* positions, int64_t n, int kernel, Pool pool,
                      float* out);

}  // namespace pagefold
