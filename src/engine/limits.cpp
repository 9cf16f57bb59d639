#include "engine/limits.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "kv/words.h"

namespace pagefold {
namespace {

constexpr int kMaxLogprobs = 20;
constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxSessionName = 256;

// False for NaN too.
bool within(float x, float low, float high) { return x >= low && x <= high; }

Status check_prompt(const Request& request, const EngineConfig& config, int64_t vocab_size) {
  if (request.tokens.empty()) return bad_input("prompt: it is empty; give at least one token");
  const auto n = static_cast<int64_t>(request.tokens.size());
  if (n >= config.max_model_len) {
    return bad_input(
        "prompt: it has {} tokens, but the context is {} tokens, prompt and answer together; "
        "shorten the prompt or raise --max-model-len",
        n, config.max_model_len);
  }
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = request.tokens[static_cast<size_t>(i)];
    if (id < 0 || id >= vocab_size) {
      return bad_input("prompt: token {} at index {} is outside the vocabulary of {} tokens", id, i,
                       vocab_size);
    }
  }
  return ok_status();
}

Status check_lengths(const Request& request, const EngineConfig& config) {
  const SamplingOptions& o = request.sampling;
  const auto n = static_cast<int64_t>(request.tokens.size());
  if (o.max_tokens && *o.max_tokens < 1) {
    return bad_input("max_tokens: must be at least 1, got {}", *o.max_tokens);
  }
  if (o.max_tokens && *o.max_tokens > config.max_model_len - n) {
    return bad_input(
        "max_tokens: the prompt has {} tokens and max_tokens is {}, but the context is {} tokens, "
        "prompt and answer together; ask for at most {}",
        n, *o.max_tokens, config.max_model_len, config.max_model_len - n);
  }
  const int64_t most = resolved_max_tokens(request, config);
  if (o.min_tokens < 0 || o.min_tokens > most) {
    return bad_input("min_tokens: must be between 0 and max_tokens ({}), got {}", most,
                     o.min_tokens);
  }
  return ok_status();
}

Status check_numbers(const SamplingOptions& o) {
  if (!std::isfinite(o.temperature) || o.temperature < 0) {
    return bad_input("temperature: must be a finite number, 0 or more, got {}", o.temperature);
  }
  if (!(o.top_p > 0) || o.top_p > 1) {
    return bad_input("top_p: must be above 0 and at most 1, got {}", o.top_p);
  }
  if (o.top_k < -1) {
    return bad_input("top_k: must be -1 or 0 (off), or at least 1, got {}", o.top_k);
  }
  if (!within(o.min_p, 0, 1)) return bad_input("min_p: must be between 0 and 1, got {}", o.min_p);
  if (!std::isfinite(o.repetition_penalty) || o.repetition_penalty <= 0) {
    return bad_input("repetition_penalty: must be a finite number above 0, got {}",
                     o.repetition_penalty);
  }
  if (!within(o.presence_penalty, -2, 2)) {
    return bad_input("presence_penalty: must be between -2 and 2, got {}", o.presence_penalty);
  }
  if (!within(o.frequency_penalty, -2, 2)) {
    return bad_input("frequency_penalty: must be between -2 and 2, got {}", o.frequency_penalty);
  }
  if (o.logprobs && (*o.logprobs < 0 || *o.logprobs > kMaxLogprobs)) {
    return bad_input("logprobs: must be between 0 and {}, got {}", kMaxLogprobs, *o.logprobs);
  }
  if (o.prompt_logprobs && (*o.prompt_logprobs < 0 || *o.prompt_logprobs > kMaxLogprobs)) {
    return bad_input("prompt_logprobs: must be between 0 and {}, got {}", kMaxLogprobs,
                     *o.prompt_logprobs);
  }
  return ok_status();
}

Status check_stop_strings(const SamplingOptions& o) {
  if (o.stop.size() > kMaxStopStrings) {
    return bad_input("stop: at most {} strings, got {}", kMaxStopStrings, o.stop.size());
  }
  for (const std::string& s : o.stop) {
    if (s.empty()) return bad_input("stop: a stop string is empty");
  }
  return ok_status();
}

Status check_id(std::string_view field, int32_t id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return ok_status();
  return bad_input("{}: token {} is outside the vocabulary of {} tokens", field, id, vocab_size);
}

Status check_ids(const SamplingOptions& o, int64_t vocab_size) {
  for (const auto& [id, bias] : o.logit_bias) {
    PF_TRY(check_id("logit_bias", id, vocab_size));
    if (std::isnan(bias)) return bad_input("logit_bias: the bias of token {} is not a number", id);
  }
  for (const int32_t id : o.stop_token_ids) PF_TRY(check_id("stop_token_ids", id, vocab_size));
  for (const int32_t id : o.allowed_token_ids) {
    PF_TRY(check_id("allowed_token_ids", id, vocab_size));
  }
  for (const auto& word : o.bad_words) {
    if (word.empty()) return bad_input("bad_words: a word has no token");
    for (const int32_t id : word) PF_TRY(check_id("bad_words", id, vocab_size));
  }
  return ok_status();
}

}  // namespace

Result<SessionWords> take_session_words(KvOptions& kv) {
  SessionWords out;
  if (auto node = kv.extract("session")) {
    out.name = std::move(node.mapped());
    if (out.name.empty()) return bad_input("kv.session: a name must not be empty");
  }
  if (out.name.size() > kMaxSessionName) {
    return bad_input("kv.session: a name has at most {} bytes, got {}", kMaxSessionName,
                     out.name.size());
  }
  if (auto node = kv.extract("drop_thinking")) {
    PF_ASSIGN(out.drop_thinking, parse_switch("kv.drop_thinking", node.mapped()));
  }
  return out;
}

int64_t resolved_max_tokens(const Request& request, const EngineConfig& config) {
  return request.sampling.max_tokens.value_or(config.max_model_len -
                                              static_cast<int64_t>(request.tokens.size()));
}

Status check_request(const Request& request, const EngineConfig& config, int64_t vocab_size) {
  PF_TRY(check_prompt(request, config, vocab_size));
  PF_TRY(check_lengths(request, config));
  PF_TRY(check_numbers(request.sampling));
  PF_TRY(check_stop_strings(request.sampling));
  return check_ids(request.sampling, vocab_size);
}

}  // namespace pagefold
