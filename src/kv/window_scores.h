// What the policies with an observation window share.
#pragma once

#include <cstdint>

#include "kv/pooling.h"
#include "kv/signals.h"

namespace pagefold {

// out = raw pooled along the positions of the slots before window_begin; later slots keep their raw
// value, and the pool never sees it.
void pool_before_window(const SlotSignals& s, const float* raw, int64_t window_begin, int kernel,
                        Pool pool, float* out);

}  // namespace pagefold
