// One request on the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "engine/request.h"
#include "engine/spill_file.h"
#include "engine/spill_thread.h"
#include "kv/cache.h"
#include "kv/compression.h"
#include "kv/prefix.h"

namespace pagefold {

class GrammarMatcher;

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// The cache of a paused sequence. While it comes back its blocks are in the sequence's cache, and
// `filling` says which of them are read.
struct SpilledCache {
  struct Filling {
    std::vector<BlockId> ids;
    std::vector<int32_t> filled;
    std::vector<std::pair<size_t, size_t>> pieces;  // first block, blocks
    size_t asked = 0, done = 0;                     // pieces
    std::shared_ptr<SpillTransfer> transfer;
    Clock::time_point begin{};
  };
  CacheLengths lengths;
  int64_t blocks = 0;
  std::unique_ptr<SpillFile::Extent> extent;
  std::shared_ptr<SpillTransfer> writing;  // fails when the bytes could not be written
  std::unique_ptr<Filling> filling;
};

// Its numbers, each with one writer:
//   n_prompt    submit; longer when a session goes on that dropped tokens (hidden)
//   next_pos()  the engine, when a token was chosen; only grows
//   n_computed  the engine, after a forward pass; what the prefix cache gave counts; back to 0
//               when a paused sequence must be computed again
//   len         the cache (commit, free_all)
struct Sequence {
  Sequence(const CacheShape& shape, Request r, int64_t most_tokens)
      : request(std::move(r)),
        max_tokens(most_tokens),
        tokens(std::move(request.tokens)),
        n_prompt(static_cast<int64_t>(tokens.size())),
        cache(shape, n_prompt + max_tokens) {}

  int64_t next_pos() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_generated() const { return next_pos() - n_prompt; }
  // Rows to compute before the next token can be chosen; 1 while decoding.
  int64_t gap() const { return next_pos() - n_computed; }
  // First row >= n_computed whose logits are wanted: a row whose prompt log-probabilities are still
  // missing, else the last one.
  int64_t first_logit_row() const {
    const auto done = static_cast<int64_t>(prompt_logprobs.size());  // entry r + 1 needs row r
    if (request.sampling.prompt_logprobs && done < n_prompt) {
      return n_computed > done - 1 ? n_computed : done - 1;
    }
    return next_pos() - 1;
  }
  bool wants_logits(int64_t row) const {
    if (row == next_pos() - 1) return true;
    const auto done = static_cast<int64_t>(prompt_logprobs.size());
    return request.sampling.prompt_logprobs && row >= done - 1 && row < n_prompt - 1;
  }

  Request request;  // its tokens live below
  std::shared_ptr<Generation> generation;
  uint64_t arrival = 0;         // order of submission
  int64_t max_tokens = 0;       // resolved
  uint64_t seed = 0;            // resolved
  std::vector<int32_t> tokens;  // prompt, then what was generated; token i has position i
  int64_t n_prompt;
  int64_t n_computed = 0;
  SequenceCache cache;
  std::unique_ptr<SpilledCache> spilled;  // paused, or running and not filled in yet
  int64_t peak_blocks = 0;
  PrefixIndex::Cursor prefix;  // of its blocks in the prefix index
  bool publishes = true;
  int64_t cached_tokens = 0;  // of the prompt, found when it was admitted first
  std::string cache_note;     // see KvUsage
  bool cache_bypass = false;
  std::string session;       // kv.session; empty: none
  KvOptions session_words;   // the request's kv options, which the next turn must repeat
  std::string session_note;  // see KvUsage
  // Positions that earlier turns of the session dropped: their tokens are here, but in no prompt.
  std::vector<KeepSpan> hidden;
  std::shared_ptr<const KvPlan> asked_plan;  // before hidden tokens moved its spans; null: plan is
  bool drop_thinking = true;
  int64_t asked_budget = 0;            // kv.elastic: before it was lowered; 0: it was not
  bool compact_now = false;            // it was lowered in this step
  std::shared_ptr<const KvPlan> plan;  // never null
  std::unique_ptr<SequenceCompression> compression;  // null: nothing is ever evicted
  CompressionCounts counted;                         // what the engine's counters know of
  SeqSignals signals;                                // of the step being planned
  int64_t quest_blocks_read[2] = {0, 0};             // read, and what a full pass would have read
  double scored_s = 0;
  int scheduled_rows = 0, scheduled_logits = 0;  // of the step being planned
  int times_paused = 0;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  bool stopped = false;                     // by request.watch
  std::shared_ptr<GrammarMatcher> matcher;  // where in its grammar the answer is; null: none

  Clock::time_point submitted{}, last_token{};
  std::optional<Clock::time_point> admitted, first_token;
};

}  // namespace pagefold
