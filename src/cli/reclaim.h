// The example behind pagefold, measured on the real pool, arena and compactor: how many blocks and
// bytes come back when most tokens of a sequence are evicted, for each way of packing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace pagefold {

struct ReclaimRow {
  std::string packing;    // off, block, fill, order
  std::string survivors;  // clustered, random, scattered
  int64_t tokens = 0;     // of each table
  int64_t kept = 0;       // live slots of each table afterwards
  int64_t blocks_before = 0, blocks_after = 0, blocks_freed = 0;  // of all tables
  int64_t tokens_moved = 0;                                       // slots, of all tables
  uint64_t bytes_before = 0;                                      // committed
  uint64_t bytes_released = 0;  // given back to the operating system
  uint64_t rss_released = 0;    // what the process lost of its resident memory
  double ms = 0;                // layout, moves, release
};

// Ascending survivors of one table: `clustered` in runs of about 160, `random`, or `scattered` at
// equal distances.
std::vector<int32_t> pick_survivors(const std::string& kind, int64_t tokens, int64_t kept,
                                    uint64_t seed);

// Errors: sizes that do not fit the machine.
Result<ReclaimRow> measure_reclaim(const ReclaimCommand& command, const std::string& packing,
                                   const std::string& survivors);
// All packings x all kinds of survivors.
Result<std::vector<ReclaimRow>> measure_reclaim(const ReclaimCommand& command);

}  // namespace pagefold
