#include "kv/selectors/quest.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pagefold {

void quest_add_key(const float* key, int head_dim, bool first, float* page_min, float* page_max) {
  for (int c = 0; c < head_dim; ++c) {
    page_min[c] = first ? key[c] : std::min(page_min[c], key[c]);
    page_max[c] = first ? key[c] : std::max(page_max[c], key[c]);
  }
}

void quest_bounds(const float* q, int group, int head_dim, const float* page_min,
                  const float* page_max, int64_t pages, float* bounds) {
  for (int64_t p = 0; p < pages; ++p) {
    const float* low = page_min + p * head_dim;
    const float* high = page_max + p * head_dim;
    float best = -std::numeric_limits<float>::infinity();
    for (int g = 0; g < group; ++g) {
      float sum = 0;
      for (int c = 0; c < head_dim; ++c) {
        const float x = q[g * head_dim + c];
        sum += std::max(x * low[c], x * high[c]);
      }
      best = std::max(best, sum);
    }
    bounds[p] = best;
  }
}

void quest_select(const float* bounds, int64_t pages, int64_t budget, std::vector<int32_t>& out) {
  out.clear();
  if (pages == 0) return;
  out.resize(static_cast<size_t>(pages));
  std::iota(out.begin(), out.end(), 0);
  const int64_t others = std::max<int64_t>(0, budget - 1);
  if (pages - 1 <= others) return;
  std::nth_element(out.begin(), out.begin() + others, out.end() - 1, [&](int32_t a, int32_t b) {
    return bounds[a] != bounds[b] ? bounds[a] > bounds[b] : a < b;
  });
  out[static_cast<size_t>(others)] = static_cast<int32_t>(pages - 1);
  out.resize(static_cast<size_t>(others + 1));
  std::sort(out.begin(), out.end());
}

}  // namespace pagefold
