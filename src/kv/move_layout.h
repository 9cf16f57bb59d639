// From keep-sets to moves: pure, the same for the compactor and for `pagefold reclaim`.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache.h"
#include "kv/model.h"
#include "kv/moves.h"
#include "kv/policy.h"

namespace pagefold {

// One table of `len` slots that keeps `kept` (ascending; live slots). block_size matters to `block`
// alone, whose kept set consists of whole blocks. live: TableView::live, matters to `off` alone.
void lay_out_table(Packing packing, const std::vector<int32_t>& kept, int64_t len, int block_size,
                   const uint32_t* live, TableMoves& out);

// All tables of a cache: kept[n_tables]; layers with windows are left out. Blocks with other owners
// that would be written become copies (without ids yet: SequenceCache::take_copies).
void lay_out_moves(Packing packing, const KvModel& model, const SequenceCache& cache,
                   const BlockPool& pool, const std::vector<std::vector<int32_t>>& kept,
                   MovePlan& out);

}  // namespace pagefold
