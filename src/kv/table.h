// Plain data that the cache hands to a backend: block ids and lengths, no bytes.
#pragma once

#include <cstdint>

namespace pagefold {

using BlockId = uint32_t;
constexpr BlockId kNoBlock = 0xffffffffu;

// The table of one (sequence, layer, KV head), as of the start of a step. `len` is a count of
// slots, never a position.
struct TableView {
  const BlockId* blocks =
      nullptr;        // ceil((len + rows of this step) / block_size) ids; kNoBlock before `start`
  int64_t len = 0;    // slots filled before this step's rows
  int64_t start = 0;  // first slot still held (sliding windows free whole blocks before it)
};

}  // namespace pagefold
