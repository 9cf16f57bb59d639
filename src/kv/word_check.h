// Words of a cache policy before there is a model.
#pragma once

#include "kv/registry.h"

namespace pagefold {

// What words have wrong with every model: unknown names, keys and values, a budget below what is
// always kept. Not: what a model's shape, or the lack of its query statistics, leaves no room for.
Status check_kv_words(const KvWords& words, KvLimits limits, int block_size = 16);

}  // namespace pagefold
