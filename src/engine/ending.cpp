#include "engine/ending.h"

#include <algorithm>
#include <utility>

namespace pagefold {
namespace {

KvUsage usage_of(const Sequence& s, uint64_t block_bytes, uint64_t bounds_bytes) {
  const CacheShape& shape = s.cache.shape();
  const double tables = shape.n_tables();
  KvUsage u;
  u.policy = s.plan->name;
  u.cache_note = s.cache_note;
  u.cache_bypass = s.cache_bypass;
  u.session = s.session_note;
  u.unused.assign(s.plan->unused.begin(), s.plan->unused.end());
  if (s.plan->evicts()) {
    u.budget = s.plan->budget_at(s.n_computed);
    u.elastic = s.asked_budget > 0;
    u.pinned_tokens = s.plan->pinned_count(s.n_computed, s.n_prompt);
  }
  u.kept_slots = s.cache.held_slots();
  u.kept_tokens = static_cast<double>(u.kept_slots) / tables;
  u.evicted_tokens = static_cast<double>(s.n_computed) - u.kept_tokens;
  int64_t full_blocks = 0;
  for (int t = 0; t < shape.n_tables(); ++t) {
    u.max_head = std::max(u.max_head, s.cache.live_slots(t));
    full_blocks += (s.n_computed + shape.block_size - 1) / shape.block_size;
  }
  u.blocks = s.cache.held_blocks();
  u.bytes = static_cast<uint64_t>(u.blocks) * block_bytes;
  u.peak_bytes = static_cast<uint64_t>(s.peak_blocks) * block_bytes;
  u.freed_blocks = full_blocks - u.blocks;
  u.blocks_read = s.quest_blocks_read[0];
  u.blocks_full = s.quest_blocks_read[1];
  u.scored_ms = s.scored_s * 1e3;
  if (s.plan->quest_tokens > 0) u.aux_bytes = static_cast<uint64_t>(u.blocks) * bounds_bytes;
  if (!s.compression) return u;
  const CompressionCounts& c = s.compression->counts();
  u.aux_bytes += static_cast<uint64_t>(s.compression->signals().bytes());
  u.compactions = c.compactions;
  u.moved_bytes =
      static_cast<uint64_t>(c.moved_slots) * block_bytes / static_cast<uint64_t>(shape.block_size) +
      static_cast<uint64_t>(c.copied_blocks) * block_bytes;
  return u;
}

}  // namespace

GenerationResult end_of(Sequence& s, FinishReason reason, uint64_t block_bytes,
                        uint64_t bounds_bytes, Clock::time_point now) {
  GenerationResult r;
  r.reason = reason;
  r.prompt_tokens = s.n_prompt;
  for (const KeepSpan& h : s.hidden) r.prompt_tokens -= h.end - h.begin;
  r.completion_tokens = s.n_generated();
  r.cached_tokens = s.cached_tokens;
  r.queued_s = seconds_between(s.submitted, s.admitted.value_or(now));
  if (s.admitted) r.prefill_s = seconds_between(*s.admitted, s.first_token.value_or(now));
  if (s.first_token) r.decode_s = seconds_between(*s.first_token, now);
  r.prompt_logprobs = std::move(s.prompt_logprobs);
  r.kv_slots = s.cache.held_slots();
  r.kv_blocks = s.cache.held_blocks();
  r.kv_bytes = static_cast<uint64_t>(r.kv_blocks) * block_bytes;
  r.kv_peak_bytes = static_cast<uint64_t>(s.peak_blocks) * block_bytes;
  r.kv = usage_of(s, block_bytes, bounds_bytes);
  return r;
}

void count_end(const Sequence& s, const GenerationResult& r, Clock::time_point now,
               EngineMetrics& counters) {
  switch (r.reason) {
    case FinishReason::stop:
      ++counters.finished_stop;
      break;
    case FinishReason::length:
      ++counters.finished_length;
      break;
    case FinishReason::error:
      ++counters.finished_error;
      break;
    default:
      ++counters.finished_abort;
      break;
  }
  counters.queue_s.observe(r.queued_s);
  if (!s.first_token) return;  // nothing was answered
  counters.prefill_s.observe(r.prefill_s);
  counters.decode_s.observe(r.decode_s);
  counters.e2e_s.observe(seconds_between(s.submitted, now));
  counters.request_prompt_tokens.observe(static_cast<double>(r.prompt_tokens));
  counters.request_generation_tokens.observe(static_cast<double>(r.completion_tokens));
}

}  // namespace pagefold
