// Everything one model file or folder gives: the network, the tokenizer, the chat template and its
// defaults.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/load.h"
#include "model/model.h"
#include "pagefold/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagefold {

// Defaults from generation_config.json; a request's own values win.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<int64_t> max_new_tokens;
};
// Onto neutral options, before a request's own values are read. max_new_tokens is left to the
// caller: it needs the room in the context.
void apply_defaults(const GenerationDefaults& defaults, SamplingOptions& out);

struct LoadedModel {
  std::string path, name;
  std::unique_ptr<LanguageModel> network;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate>
      chat_template;  // absent: the model has none, chat requests are refused
  std::string chat_template_source;
  std::vector<int32_t> eos_token_ids;  // all ids that end an answer
  GenerationDefaults defaults;
  DType dtype = DType::bf16;
  KvFormat kv;  // of the cache
  double load_seconds = 0;
};

// Called when the headers are read and the types are chosen, before anything that takes time; an
// error ends the loading.
using ModelCheck = std::function<Status(const ModelFiles& files, const LoadedModel& model)>;
// check_text: the same once the tokenizer and the template are there, before weights are read.
Result<LoadedModel> load_model(const EngineOptions& options, const ModelCheck& check = {},
                               const WrapBackend& wrap = {}, const ModelCheck& check_text = {});

}  // namespace pagefold
