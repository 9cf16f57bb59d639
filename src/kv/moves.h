// Plain data: which slots of a table survive and where they go. A backend moves bytes; positions
// and per-slot signals move with them.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/table.h"

namespace pagefold {

// A block to copy before the next forward pass.
struct BlockCopy {
  BlockId from = 0, to = 0;
};

struct SlotMove {
  int32_t from = 0, to = 0;  // slots of the same table, to < from
};

// For one (layer, KV head). A backend does `copies` first, then `moves` in order, both on block ids
// of `blocks`; a move never reads a slot that an earlier move wrote.
struct TableMoves {
  int layer = 0, head = 0;
  int64_t len_before = 0, len_after = 0;
  std::vector<SlotMove> moves;
  // A shared block that would be written is replaced by a fresh one with the same bytes.
  struct Copy {
    int32_t index = 0;  // block of the table
    BlockId from = 0, to = 0;
  };
  std::vector<Copy> copies;
  // Packing `block`: blocks of the table that leave it whole; the ones after move up, no byte does.
  std::vector<int32_t> dropped_blocks;
  // Packing `off`: slots that are dead from now on; len stays.
  std::vector<int32_t> dead;
  // The table's ids while moves run: copies applied, nothing dropped yet. Valid until the plan is
  // applied to the cache.
  const BlockId* blocks = nullptr;
  bool empty() const {
    return len_after == len_before && moves.empty() && copies.empty() && dead.empty();
  }
};

// tables: only those that change.
struct MovePlan {
  std::vector<TableMoves> tables;
  int64_t slots_moved() const {
    int64_t n = 0;
    for (const TableMoves& t : tables) n += static_cast<int64_t>(t.moves.size());
    return n;
  }
};

}  // namespace pagefold
