// From text to what the engine takes: a prompt or a conversation becomes a Request. It needs the
// tokenizer and the template of a model, not its weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/grammar_store.h"
#include "api/loaded_model.h"
#include "api/special_pieces.h"
#include "base/result.h"
#include "engine/request.h"
#include "pagefold/pagefold.h"

namespace pagefold {

// What one answer is asked for by.
struct AnswerWish {
  std::string_view prompt;  // raw text, where there are no messages
  const std::vector<Message>* messages = nullptr;
  const SamplingOptions& sampling;
  const KvOptions& kv;  // empty: those of the engine
  const AnswerForm& form;
};

// Thread-safe.
class RequestMaker {
 public:
  // model outlives it; its network may still be missing. kv, keep: what holds for requests that
  // say nothing (EngineOptions).
  RequestMaker(const LoadedModel& model, int64_t vocab_size, KvOptions kv, std::string keep);
  // Without an id. max_model_len bounds the answer's length that the model itself suggests. Errors
  // are the caller's input: no template, a keep or a form that cannot be followed.
  Result<Request> make(const AnswerWish& wish, int64_t max_model_len);

 private:
  Result<Request> raw(const AnswerWish& wish, const KvOptions& words);
  Result<Request> chat(const AnswerWish& wish, const KvOptions& words, int64_t max_model_len);

  const LoadedModel& model_;
  SpecialPieces special_;
  GrammarStore grammars_;
  KvOptions kv_;
  std::string keep_;
};

}  // namespace pagefold
