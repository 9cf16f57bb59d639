// A picture of the engine for people who watch it: sequences and a map of the pool's blocks. Made
// by the engine thread at the end of a step, and only while somebody asks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/metrics.h"

namespace pagefold {

enum class SequencePhase : uint8_t { waiting, prefill, decode, paused };
std::string_view phase_name(SequencePhase phase);

// Slots and blocks are summed over layers and KV heads.
struct SequenceState {
  std::string id;  // as the client gave it: not to be trusted
  std::string policy;
  SequencePhase phase = SequencePhase::waiting;
  int64_t budget = 0;  // slots a table; 0: none
  int64_t prompt_tokens = 0, generated_tokens = 0, computed_tokens = 0, cached_tokens = 0;
  int64_t max_tokens = 0;
  int64_t kept_slots = 0;
  int64_t blocks = 0, peak_blocks = 0;
  int64_t full_blocks = 0;  // what a full cache would hold for the tokens computed
  int64_t compactions = 0;
};

// A cell is a run of blocks of the pool, the lowest ids first.
struct BlockCell {
  static constexpr uint16_t kFree = 0, kPrefix = 1, kFirstSequence = 2;
  // kFree, kPrefix (only the prefix index holds its blocks), or kFirstSequence + the index in
  // EngineState::sequences of whoever has most of its slots.
  uint16_t owner = kFree;
  uint8_t fill = 0;  // percent of the cell's slots that are filled
  bool operator==(const BlockCell&) const = default;
};

struct EngineState {
  uint64_t serial = 0;  // counts pictures
  double time_s = 0;    // of the steady clock
  EngineMetrics metrics;
  std::vector<SequenceState> sequences;  // running ones in order of arrival, then waiting ones
  int64_t sequences_left_out = 0;        // beyond kMostSequences
  // The map ends behind the highest block that was ever in use since somebody watches.
  int64_t blocks_per_cell = 1;
  std::vector<BlockCell> cells;
};

}  // namespace pagefold
