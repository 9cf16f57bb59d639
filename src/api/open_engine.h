// Engine::open for a known first answer: what is wrong with it is said before weights are read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "pagefold/pagefold.h"

namespace pagefold {

struct FirstAnswer {
  std::string prompt;  // raw text, where there are no messages
  std::vector<Message> messages;
  // The answer's options on top of what the model suggests.
  std::function<SamplingOptions(const SamplingOptions& defaults)> sampling;
  KvOptions kv;
  AnswerForm form;
  // The prompt is not known yet: its length and words are not looked at.
  bool open_prompt = false;
};

// Errors: those of Engine::open, and those that generate() or chat() would return for `first`.
Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options, const FirstAnswer& first);

}  // namespace pagefold
