#include "kv/pooling.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace pagefold {

void pool_scores(const float* in, int64_t n, int kernel, Pool pool, float* out) {
  PF_CHECK(kernel >= 1 && kernel % 2 == 1, "pooling kernels are odd");
  const int64_t half = kernel / 2;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t begin = std::max<int64_t>(0, i - half), end = std::min(n, i + half + 1);
    if (pool == Pool::max) {
      out[i] = *std::max_element(in + begin, in + end);
    } else {
      out[i] = std::accumulate(in + begin, in + end, 0.0f) / static_cast<float>(kernel);
    }
  }
}

void pool_by_position(const float* in, const int32_t* positions, int64_t n, int kernel, Pool pool,
                      float* out) {
  if (std::is_sorted(positions, positions + n)) {
    pool_scores(in, n, kernel, pool, out);
    return;
  }
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return positions[a] < positions[b]; });
  std::vector<float> sorted(order.size()), pooled(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[i] = in[order[i]];
  pool_scores(sorted.data(), n, kernel, pool, pooled.data());
  for (size_t i = 0; i < order.size(); ++i) out[order[i]] = pooled[i];
}

}  // namespace pagefold
