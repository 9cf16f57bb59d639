#include "kv/pooling.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kv/position_order.h"

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
  std::vector<uint64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = position_key(positions[i], i);
  sort_by_position(order);
  std::vector<float> sorted(order.size()), pooled(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[i] = in[slot_of(order[i])];
  pool_scores(sorted.data(), n, kernel, pool, pooled.data());
  for (size_t i = 0; i < order.size(); ++i) out[slot_of(order[i])] = pooled[i];
}

}  // namespace pagefold
