// The numbers that calculate() takes, for its own checks and for readers of requests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefold::calc_limits {

inline constexpr int64_t kTokens = int64_t{1} << 30;     // the engine's own limit of a context
inline constexpr int64_t kSequences = int64_t{1} << 20;  // in a request
inline constexpr size_t kLengths = 1 << 16;
inline constexpr int64_t kRanks = 1 << 16;
inline constexpr int64_t kBatchedTokens = 1 << 20;
inline constexpr int64_t kSeqs = 1 << 16;
inline constexpr int64_t kPadding = 1 << 20;
inline constexpr int64_t kSnapshots = 1 << 20;
inline constexpr int64_t kBlockSize = 4096;
// Sizes that no other number is multiplied with unchecked.
inline constexpr int64_t kSize = int64_t{1} << 62;

}  // namespace pagefold::calc_limits
