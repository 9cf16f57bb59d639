// Plain data: which slots of a table survive and where they go. A backend moves bytes; positions and per-slot
// signals move with them.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/table.h"

namespace pagefold {

struct SlotMove {
  int32_t from = 0, to = 0;   // slots of the same table, to < from unless the block was copied
};

// For one (layer, KV head). Applied in order; a move never reads a slot that an earlier move wrote.
struct TableMoves {
  int layer = 0, head = 0;
  int64_t len_before = 0, len_after = 0;
  std::vector<SlotMove> moves;
  // Shared blocks that lose or move slots are copied first: block index in the table, old id, fresh id.
  struct Copy {
    int32_t index;
    BlockId from, to;
  };
  std::vector<Copy> copies;
};

struct MovePlan {
  std::vector<TableMoves> tables;
};

}  // namespace pagefold
