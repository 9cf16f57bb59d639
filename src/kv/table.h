// Plain data that the cache hands to a backend: block ids and lengths, no bytes.
#pragma once

#include <cstdint>

namespace pagefold {

using BlockId = uint32_t;
constexpr BlockId kNoBlock = 0xffffffffu;

// The table of one (sequence, layer, KV head), as of the start of a step. `len` is a count of
// slots, never a position.
struct TableView {
  // ceil((len + rows of this step) / block_size) ids; kNoBlock before `start`, and in the middle
  // where packing `off` freed a wholly dead block (all of its live bits are 0).
  const BlockId* blocks = nullptr;
  int64_t len = 0;    // slots filled before this step's rows
  int64_t start = 0;  // first slot still held (sliding windows free whole blocks before it)
  // Packing `off`: bit s % 32 of word s / 32 says that slot s is live; slots of this step's rows
  // are. Null: all are.
  const uint32_t* live = nullptr;
};

}  // namespace pagefold
