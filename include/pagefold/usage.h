// What an answer cost: tokens, time, and what its KV cache held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagefold {

// What the cache of a request was used for; the `usage.kv` object of an answer. Slots and blocks
// are summed over layers and KV heads. Values at the finish, before freeing.
struct KvUsage {
  std::string policy = "full";
  int64_t budget = 0;  // slots a table; 0: none
  int64_t kept_slots = 0;
  double kept_tokens = 0;     // kept_slots / tables
  double evicted_tokens = 0;  // tokens computed - kept_tokens
  int64_t max_head = 0;       // slots of the fullest table
  int64_t blocks = 0;
  uint64_t bytes = 0;      // blocks x bytes of a block
  uint64_t aux_bytes = 0;  // positions and signals
  uint64_t peak_bytes = 0;
  int64_t freed_blocks = 0;  // a full cache's blocks for the same tokens - blocks
  int64_t compactions = 0;
  uint64_t moved_bytes = 0;
  int64_t pinned_tokens = 0;  // kept on top of the budget: kv.keep, a protected prompt
  bool elastic = false;       // its budget was lowered because blocks ran short
  // kv.session: what became of it ("new", "continued", "reread: why"); empty: none was named.
  std::string session;
  double scored_ms = 0;  // scoring, selection and planning
  // Why the prefix cache could give this request no blocks, or only some; empty: nothing stood in
  // the way. bypass: it was not read at all.
  std::string cache_note;
  bool cache_bypass = false;
  // Words of the request's `kv` that do nothing under its policy: "budget" of `full`.
  std::vector<std::string> unused;
  int64_t blocks_read = 0, blocks_full = 0;  // quest: read, and what a full pass would have read
};

}  // namespace pagefold
