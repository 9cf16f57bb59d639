// One answer, streamed and counted: shared by generate and chat.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/interrupt.h"
#include "pagefold/pagefold.h"

namespace pagefold {

struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::string finish_reason;  // "stop", "length", "abort", "error"
  Usage usage;
  double wall_s = 0;
};

// Reads a stream to its end. Each piece goes to `show` (may be empty). Meanwhile SIGINT cancels the
// answer; afterwards it does nothing until the caller sets something.
Answer read_answer(TextStream& stream, InterruptWatcher& interrupts,
                   const std::function<void(std::string_view)>& show);

// prompt_tokens per second of prefill; the first token comes out of the prefill, so the decode rate
// counts the ones after it. 0 where nothing was measured.
double prefill_rate(const Usage& usage);
double decode_rate(const Usage& usage);

// {"prompt_tokens", "completion_tokens", "total_tokens", "kv": {...}}
Json usage_json(const Usage& usage);
// {"load_ms", "queued_ms", "prefill_ms", "decode_ms", "total_ms", "prefill_tokens_per_s",
// "decode_tokens_per_s"}
Json timings_json(const Answer& answer, double load_s);
// Lines for people.
std::string stats_text(const Answer& answer, double load_s);

}  // namespace pagefold
