// What is told and counted about a sequence that ends.
#pragma once

#include <cstdint>

#include "engine/metrics.h"
#include "engine/sequence.h"

namespace pagefold {

// Before its blocks go back: the cache figures are those of the finish. Takes the prompt's
// log-probabilities out of the sequence. block_bytes: keys, values and scales; bounds_bytes: what
// quest keeps beside a block.
GenerationResult end_of(Sequence& sequence, FinishReason reason, uint64_t block_bytes,
                        uint64_t bounds_bytes, Clock::time_point now);

void count_end(const Sequence& sequence, const GenerationResult& result, Clock::time_point now,
               EngineMetrics& counters);

}  // namespace pagefold
