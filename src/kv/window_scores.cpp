#include "kv/window_scores.h"

#include <algorithm>
#include <vector>

namespace pagefold {

void pool_before_window(const SlotSignals& s, const float* raw, int64_t window_begin, int kernel,
                        Pool pool, float* out) {
  std::vector<float> in, pooled;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < s.n; ++i) {
    const bool dead = s.flags != nullptr && (s.flags[i] & kSlotDead) != 0;
    if (s.positions[i] >= window_begin || dead) continue;
    in.push_back(raw[i]);
    positions.push_back(s.positions[i]);
  }
  pooled.resize(in.size());
  pool_by_position(in.data(), positions.data(), static_cast<int64_t>(in.size()), kernel, pool,
                   pooled.data());
  size_t next = 0;
  for (int64_t i = 0; i < s.n; ++i) {
    const bool dead = s.flags != nullptr && (s.flags[i] & kSlotDead) != 0;
    out[i] = s.positions[i] >= window_begin || dead ? raw[i] : pooled[next++];
  }
}

}  // namespace pagefold
