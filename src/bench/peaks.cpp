#include "bench/peaks.h"

namespace pagefold::bench {
namespace {

Rate giga_ops(ThreadPool& pool, double (*peak)(int64_t)) {
  // 6 ms a call: a worker that the scheduler wakes on the caller's core moves within a few, and
  // until then the caller would be measured alone.
  constexpr int64_t kLoops = 1'000'000;
  const double ops = peak(1) * static_cast<double>(kLoops) * pool.size();
  return median_rate(ops, [&] { pool.run([&](int, int) { peak(kLoops); }); });
}

}  // namespace

Peaks measure_peaks(ThreadPool& pool, std::string_view isa) {
  Peaks out;
#if defined(__x86_64__)
  if (isa == "avx512") {
    out.f32 = giga_ops(pool, peak_f32_avx512);
    out.bf16 = giga_ops(pool, peak_bf16_avx512);
    out.int8 = giga_ops(pool, peak_int8_avx512);
  } else if (isa == "avx2") {
    out.f32 = giga_ops(pool, peak_f32_avx2);
    out.int8 = giga_ops(pool, peak_int8_avx2);
  }
#endif
  return out;
}

}  // namespace pagefold::bench
