// What the machine can do at most, measured beside the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefold::bench {

// Each runs `loops` times over 24 independent accumulators and returns the operations done
// (a multiply-add counts as two).
double peak_f32_avx512(int64_t loops);
double peak_bf16_avx512(int64_t loops);
double peak_int8_avx512(int64_t loops);
// Reads every byte once, 64 at a time; bytes a multiple of 512.
uint64_t read_avx512(const std::byte* data, size_t bytes);

}  // namespace pagefold::bench
