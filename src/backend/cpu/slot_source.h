// Which slots a (sequence, KV head) attends to in a step, and the parts they are computed in.
//
// A part is what one call of the chunk kernel computes: at most 256 slots, aligned to slot 0.
//  * Normally part i is chunk i.
//  * With `sinks` re-indexed slots (SeqSignals::sink_slots) the sinks come first, in chunks of
//    their own query, then the rest, from the chunk of the first other slot on. A chunk with both
//    is two parts.
//  * With a block selection (Quest) slots are counted in the list of selected blocks, ascending:
//    chunk i is the list's slots [256 i, 256 (i + 1)).
// Parts are added up as part_sum.h says.
#pragma once

#include <algorithm>

#include "kernels/paged.h"
#include "kv/table.h"

namespace pagefold::cpu {

struct SlotSource {
  const BlockId* blocks = nullptr;  // the table's, or the selected ones
  const int32_t* index = nullptr;   // of selected blocks in the table, ascending; null: all
  int64_t len = 0;                  // slots before the step's rows, in the list
  int64_t start = 0;                // first slot still held
  int64_t sinks = 0;                // first slots, attended with the sink query; at most len
  const uint32_t* live = nullptr;   // the table's mask of live slots, or null
  int64_t live_len = 0;             // slots of the table that the mask speaks of; later ones live
  int block_size = 16;

  int64_t sink_parts() const { return (sinks + kernels::kChunkSlots - 1) / kernels::kChunkSlots; }
  // The slot of the table that slot `s` of the list is.
  int64_t table_slot(int64_t s) const {
    return index == nullptr ? s : int64_t{index[s / block_size]} * block_size + s % block_size;
  }
};

// Slots [first, last) that row `r` of the step's sees.
struct Visible {
  int64_t first, last;
};
inline Visible visible(const SlotSource& t, int r, int64_t window) {
  const int64_t last = t.len + r + 1;
  int64_t first = t.start;
  if (window > 0) first = std::max(first, last - window);
  return {first, last};
}

struct Part {
  int64_t origin;       // slot of the list, a multiple of 256
  int64_t first, last;  // only slots in [first, last) belong to the part
  bool sink;
};
inline Part part_of(const SlotSource& t, int i) {
  const int64_t sink_parts = t.sink_parts();
  if (i < sink_parts) return {int64_t{i} * kernels::kChunkSlots, 0, t.sinks, true};
  const int64_t chunk = i - sink_parts + t.sinks / kernels::kChunkSlots;
  return {chunk * kernels::kChunkSlots, t.sinks, INT64_MAX, false};
}
// Parts [first, second) that hold all slots of [v.first, v.last).
inline std::pair<int, int> parts_of(const SlotSource& t, const Visible& v) {
  const int64_t begin = t.sinks > 0 ? 0 : v.first / kernels::kChunkSlots;
  const int64_t end = (v.last + kernels::kChunkSlots - 1) / kernels::kChunkSlots;
  return {static_cast<int>(begin),
          static_cast<int>(end + t.sink_parts() - t.sinks / kernels::kChunkSlots)};
}

// The live mask of the 256 slots from `origin` on. The source has a mask.
void live_mask(const SlotSource& t, int64_t origin, uint32_t out[kernels::kChunkSlots / 32]);
// Live slots of [v.first, v.last).
int64_t count_live(const SlotSource& t, const Visible& v);

}  // namespace pagefold::cpu
