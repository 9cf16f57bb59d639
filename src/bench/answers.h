// Whole answers through the engine, all asked for at once: made-up prompts, greedy, no end before
// the last token.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"

namespace pagefold::bench {

struct AnswerSpec {
  int64_t prompt = 512, tokens = 64, batch = 1;
  KvOptions kv;
  uint64_t seed = 1;  // of the prompts
};

// Prefill: from the first step to the last first token; decode: from there to the end.
struct AnswerTimes {
  double prefill_s = 0, decode_s = 0;
  double prefill_cpu_s = 0, decode_cpu_s = 0;  // of all threads
  double scoring = 0, moving = 0;              // shares of decode_s
  uint64_t compactions = 0;                    // while decoding
  GenerationResult first;                      // of the first answer
};

// kDataLoss: an answer ended early.
Result<AnswerTimes> time_answers(EngineCore& core, int64_t vocab, const AnswerSpec& spec);

}  // namespace pagefold::bench
