// What the engine counts. Written by the engine thread, copied out under a lock once a step.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pagefold {

// A Prometheus histogram: counts[i] = observations <= bounds[i], not cumulative; the last count is
// +Inf.
struct Histogram {
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // bounds.size() + 1
  double sum = 0;
  uint64_t n = 0;
  explicit Histogram(std::vector<double> upper_bounds = {});
  void observe(double value);
};

struct EngineMetrics {
  EngineMetrics();
  // gauges
  int64_t running = 0, waiting = 0;
  // total = used + cached + free. cached: kept by the prefix index alone, free when needed.
  int64_t blocks_total = 0, blocks_used = 0, blocks_cached = 0;
  uint64_t kv_block_bytes = 0, kv_resident_bytes = 0;
  // counters
  uint64_t prompt_tokens = 0, generation_tokens = 0, steps = 0, preemptions = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  // compression: counters, then gauges over running sequences (slots of all tables). What a paused
  // sequence does again counts in compactions_again alone; times hold all work.
  uint64_t compactions = 0, evicted_slots = 0, moved_slots = 0, compaction_freed_blocks = 0;
  uint64_t compactions_again = 0, kv_released_bytes = 0;
  // Prefix cache: tokens of admitted prompts, those of them that were found, entries removed for
  // want of room or age; gauge: entries (one block of every table each).
  uint64_t prefix_queries = 0, prefix_hits = 0, prefix_reclaimed = 0, prefix_expired = 0;
  int64_t prefix_entries = 0;
  // Sessions (kv.session) and their blocks, which blocks_used counts too; turns that went on from
  // one, tokens that those did not read, turns that read their prompt anew.
  int64_t sessions = 0, session_blocks = 0;
  uint64_t sessions_continued = 0, session_tokens = 0, sessions_reread = 0;
  uint64_t sessions_reclaimed = 0, sessions_expired = 0;
  uint64_t budgets_lowered = 0;  // kv.elastic
  // Pauses by what became of the cache, and bytes of the spill file.
  uint64_t pauses_spilled = 0, pauses_recomputed = 0, spill_written = 0, spill_read = 0;
  int64_t paused = 0;
  uint64_t spill_used = 0;
  uint64_t kv_saturated = 0;  // elements that an fp8 cache cut off
  double scoring_s = 0, moving_s = 0;
  int64_t logical_slots = 0, held_slots = 0, running_blocks = 0;
  // histograms, vLLM's bounds
  Histogram ttft_s, inter_token_s, e2e_s, queue_s, prefill_s, decode_s, request_prompt_tokens,
      request_generation_tokens, iteration_tokens;
  // seconds by stage of the step: plan, forward, sample, emit
  std::array<double, 4> stage_s{};
};

}  // namespace pagefold
