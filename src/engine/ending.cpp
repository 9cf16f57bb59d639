#include "engine/ending.h"

#include <utility>

namespace pagefold {

GenerationResult end_of(Sequence& s, FinishReason reason, uint64_t block_bytes,
                        Clock::time_point now) {
  GenerationResult r;
  r.reason = reason;
  r.prompt_tokens = s.n_prompt;
  r.completion_tokens = s.n_generated();
  r.queued_s = seconds_between(s.submitted, s.admitted.value_or(now));
  if (s.admitted) r.prefill_s = seconds_between(*s.admitted, s.first_token.value_or(now));
  if (s.first_token) r.decode_s = seconds_between(*s.first_token, now);
  r.prompt_logprobs = std::move(s.prompt_logprobs);
  r.kv_slots = s.cache.held_slots();
  r.kv_blocks = s.cache.held_blocks();
  r.kv_bytes = static_cast<uint64_t>(r.kv_blocks) * block_bytes;
  r.kv_peak_bytes = static_cast<uint64_t>(s.peak_blocks) * block_bytes;
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
