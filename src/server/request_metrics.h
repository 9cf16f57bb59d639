// Figures of requests that the engine cannot know, since it sees choices: what was asked for, and
// times of an answer. Under vLLM's names.
#pragma once

#include <mutex>

#include "engine/metrics.h"
#include "engine/request.h"

namespace pagefold {

struct RequestFigures {
  RequestFigures();
  Histogram n, max_tokens, most_generated;  // of a request: choices, max_tokens, its longest answer
  Histogram inference_s, token_s;           // of a choice: admission to end, seconds a token
};

// Thread-safe.
class RequestMetrics {
 public:
  void asked(double n, double max_tokens);
  void choice_ended(const GenerationResult& result);
  void ended(double most_generated);
  RequestFigures figures() const;

 private:
  mutable std::mutex mutex_;
  RequestFigures figures_;
};

}  // namespace pagefold
