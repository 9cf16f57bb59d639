// What other engines allocate for the same cache: their rounding, from their logs and sources.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calc/kv_bytes.h"

namespace pagefold::calc {

struct RuleOptions {
  int64_t block_size = 16;    // vllm: tokens a page
  int64_t padding = 32;       // llama.cpp: the context is a multiple of this
  int64_t batch = 512;        // llama.cpp: tokens of a micro batch
  int64_t shared_prefix = 0;  // tokens that all sequences share
};

struct Allocation {
  uint64_t bytes = 0;        // keys and values of all sequences
  uint64_t token_bytes = 0;  // a token's share as this engine counts it
  std::string rule;          // in words
};

// vLLM: one page size for all groups of layers, the largest layer's, and every layer is paid as
// full attention up to its last token; pages of block_size tokens. Shared whole pages count once.
Result<Allocation> vllm_allocation(const std::vector<LayerGroup>& groups, const CacheTypes& types,
                                   std::span<const int64_t> lengths, const RuleOptions& options);

// llama.cpp: one buffer for the contexts of all sequences together, padded; layers with a window
// have a second one of window x sequences + batch cells, padded, where that is less.
Result<Allocation> llama_cpp_allocation(const std::vector<LayerGroup>& groups,
                                        const CacheTypes& types, std::span<const int64_t> lengths,
                                        const RuleOptions& options);

// The largest n in [0, limit] with fits(n), which must not become true again above it.
template <class Fits>
int64_t most_that_fits(int64_t limit, const Fits& fits) {
  int64_t n = 0;
  for (int64_t step = int64_t{1} << 40; step > 0; step /= 2) {
    if (n + step <= limit && fits(n + step)) n += step;
  }
  return n;
}

}  // namespace pagefold::calc
