// What the processor can compute at most, measured beside the kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/threads.h"
#include "bench/bandwidth.h"

namespace pagefold::bench {

// Each runs `loops` times over independent accumulators and returns the operations done (a
// multiply-add counts as two). bf16: vdpbf16ps; int8: vpdpbusd, on AVX2 vpmaddubsw with the
// widening addition that it needs.
double peak_f32_avx512(int64_t loops);
double peak_bf16_avx512(int64_t loops);
double peak_int8_avx512(int64_t loops);
double peak_f32_avx2(int64_t loops);
double peak_int8_avx2(int64_t loops);

// Of all threads of the pool. 0: not known for this instruction set.
struct Peaks {
  Rate f32, bf16, int8;  // 10^9 operations a second
};
// isa: name of a kernel table. Takes some 20 ms a figure.
Peaks measure_peaks(ThreadPool& pool, std::string_view isa);

}  // namespace pagefold::bench
