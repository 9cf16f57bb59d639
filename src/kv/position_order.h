// Slots in the order of their tokens, which `fill` packing scrambles.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefold {

// A position before its slot: sorting these never looks a position up.
inline uint64_t position_key(int32_t position, int64_t slot) {
  return static_cast<uint64_t>(position) << 32 | static_cast<uint64_t>(slot);
}
inline uint32_t slot_of(uint64_t position_key) { return static_cast<uint32_t>(position_key); }

// Ascending by position, which is not negative. Keys of one position keep their order.
void sort_by_position(std::vector<uint64_t>& keys);

}  // namespace pagefold
