// Sizes of the cache that follow from a config and a model.
#pragma once

#include "engine/engine.h"
#include "kv/cache.h"

namespace pagefold {

// Logit rows of a step beyond one a sequence, for prompt log-probabilities: they bound the float32
// logits that a step holds.
constexpr int kExtraLogitRows = 32;

// --block-size: whole strips of 16 slots that fill the kernels' chunks.
Status check_block_size(int block_size);

CacheShape cache_shape(const EngineConfig& config, const ModelShape& model);

struct PoolSize {
  uint32_t n_blocks = 0;
  int64_t blocks_per_request = 0;  // of one sequence of max_model_len
  int64_t capacity_tokens = 0;
  double concurrency = 0;  // sequences of max_model_len
};
// kInvalidArgument when the pool cannot hold one sequence of max_model_len: names what is needed,
// what is there and the longest max_model_len that fits.
Result<PoolSize> pool_size(const EngineConfig& config, const ModelShape& model,
                           uint64_t block_bytes);

// Tokens that a pool of `blocks` blocks holds, of as many sequences as you like. concurrency: how
// many of max_model_len tokens it holds, which is what counts where layers have windows.
int64_t pool_tokens(const CacheShape& shape, int64_t blocks, double concurrency,
                    int64_t max_model_len);

// 83488 -> "83,488"
std::string with_commas(int64_t n);

}  // namespace pagefold
