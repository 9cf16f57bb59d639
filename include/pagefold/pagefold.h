// pagefold as a library: load a model, submit requests, read text as it is generated.
//
//   auto engine = pagefold::Engine::open({.model = "model.gguf"});
//   if (!engine.ok()) ... engine.status().message()
//   auto stream = (*engine)->generate("The capital of France is", {.max_tokens = 16});
//   while (auto text = stream->next()) std::fwrite(text->data(), 1, text->size(), stdout);
//
// Everything may be called from any thread. An Engine outlives its streams' generations: destroying
// it cancels them.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pagefold/options.h"
#include "pagefold/usage.h"

namespace pagefold {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// What an answer must look like; at most one field is set. The tokens are chosen so that it does,
// unless the answer ends early ("length").
struct AnswerForm {
  bool json_object = false;         // any JSON object
  std::string json_schema;          // a JSON schema as text: docs/structured_output.md
  std::string regex;                // the whole answer
  std::vector<std::string> choice;  // one of them
  std::string grammar;              // rules in GBNF
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
  int64_t kv_slots = 0, kv_blocks = 0;  // at the finish, over all layers and KV heads
  uint64_t kv_bytes = 0, kv_peak_bytes = 0;
  KvUsage kv;
  double queued_s = 0, prefill_s = 0, decode_s = 0;
};

// One answer in progress. Destroying it cancels the generation.
class TextStream {
 public:
  virtual ~TextStream() = default;
  // The next piece of text, waiting for it; never half a character. nullopt: the answer has ended.
  virtual std::optional<std::string> next() = 0;
  // After the end: "stop", "length", "abort" or "error".
  virtual std::string finish_reason() const = 0;
  virtual Usage usage() const = 0;
  virtual const std::vector<int32_t>& token_ids() const = 0;
  virtual void cancel() = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Loads the model and starts the engine thread.
  static absl::StatusOr<std::unique_ptr<Engine>> open(const EngineOptions& options);

  // Raw text continuation (BOS as the model wants it).
  virtual absl::StatusOr<std::unique_ptr<TextStream>> generate(std::string_view prompt,
                                                               const SamplingOptions& sampling,
                                                               const KvOptions& kv = {},
                                                               const AnswerForm& form = {}) = 0;
  // The model's chat template is applied to the conversation.
  virtual absl::StatusOr<std::unique_ptr<TextStream>> chat(const std::vector<Message>& messages,
                                                           const SamplingOptions& sampling,
                                                           const KvOptions& kv = {},
                                                           const AnswerForm& form = {}) = 0;
  // Neutral options with what the model's generation_config.json suggests (temperature, top_p ...):
  // a start for options of one's own. Its max_new_tokens holds in chat() when max_tokens is absent.
  virtual SamplingOptions default_sampling() const = 0;
  virtual std::vector<int32_t> tokenize(std::string_view text, bool add_special = true) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& tokens) const = 0;
};

}  // namespace pagefold
