#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/integer_range.h"
#include "server/field_reader.h"
#include "server/openai_request.h"

namespace pagefold {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// A seed is any 64-bit number; -1 asks for a random one, as in vLLM.
void read_seed(FieldReader& fields, SamplingOptions& out) {
  const Json* v = fields.find("seed");
  if (v == nullptr) return;
  if (!v->is_number_integer()) {
    return fields.fail("seed", "must be " + integer_range(std::numeric_limits<int64_t>::min(),
                                                          std::numeric_limits<uint64_t>::max()));
  }
  if (v->is_number_unsigned()) {
    out.seed = v->get<uint64_t>();
  } else if (v->get<int64_t>() != -1) {
    out.seed = static_cast<uint64_t>(v->get<int64_t>());
  }
}

void read_stop(FieldReader& fields, SamplingOptions& out) {
  const Json* v = fields.find("stop");
  if (v == nullptr) return;
  if (v->is_string()) {
    out.stop = {v->get<std::string>()};
  } else if (v->is_array()) {
    if (v->size() > kMaxStopStrings) {
      return fields.fail("stop", fmt::format("at most {} strings are accepted", kMaxStopStrings));
    }
    for (const Json& s : *v) {
      if (!s.is_string()) {
        return fields.fail(
            "stop", fmt::format("expected a string or an array of strings, got {} in the array",
                                json_kind(s)));
      }
      out.stop.push_back(s.get<std::string>());
    }
  } else {
    return fields.fail(
        "stop", fmt::format("expected a string or an array of strings, got {}", json_kind(*v)));
  }
  for (const auto& s : out.stop) {
    if (s.empty()) return fields.fail("stop", "a stop string must not be empty");
    if (s.size() > 4096) return fields.fail("stop", "a stop string has at most 4096 bytes");
  }
}

void read_logit_bias(FieldReader& fields, const ApiModel& model, SamplingOptions& out) {
  const Json* v = fields.find_object("logit_bias");
  if (v == nullptr) return;
  const int32_t vocab = model.tokenizer->vocab_size();
  if (v->size() > static_cast<size_t>(vocab)) {
    return fields.fail("logit_bias", "more entries than the vocabulary has tokens");
  }
  for (const auto& [key, bias] : v->items()) {
    int64_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0 ||
        id >= vocab) {
      return fields.fail("logit_bias",
                         fmt::format("keys must be token ids from 0 to {}", vocab - 1));
    }
    if (!bias.is_number()) {
      return fields.fail("logit_bias", fmt::format("the bias of token {} must be a number, got {}",
                                                   id, json_kind(bias)));
    }
    const double value = std::clamp(bias.get<double>(), -100.0, 100.0);
    out.logit_bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(value));
  }
}

void read_id_list(FieldReader& fields, std::string_view name, const ApiModel& model,
                  std::vector<int32_t>& out) {
  const Json* ids = fields.find_array(name);
  if (ids == nullptr) return;
  if (ids->size() > static_cast<size_t>(model.tokenizer->vocab_size())) {
    return fields.fail(name, "more entries than the vocabulary has tokens");
  }
  read_token_ids(fields, name, *ids, model, out);
}

void read_allowed(FieldReader& fields, const ApiModel& model, SamplingOptions& out) {
  read_id_list(fields, "allowed_token_ids", model, out.allowed_token_ids);
  const Json* ids = fields.find("allowed_token_ids");
  if (ids != nullptr && ids->empty()) {
    fields.fail("allowed_token_ids", "must not be empty; leave it out to allow all");
  }
}

// A word is banned as it is written and as it follows a space, whatever tokens the two have.
void read_bad_words(FieldReader& fields, const ApiModel& model, SamplingOptions& out) {
  const Json* words = fields.find_array("bad_words");
  if (words == nullptr) return;
  if (words->size() > kMaxBadWords) {
    return fields.fail("bad_words", fmt::format("at most {} are accepted", kMaxBadWords));
  }
  for (const Json& item : *words) {
    if (!item.is_string()) {
      return fields.fail(
          "bad_words", fmt::format("expected an array of strings, got {} in it", json_kind(item)));
    }
    const auto& word = item.get_ref<const std::string&>();
    if (word.empty() || word.size() > 256) {
      return fields.fail("bad_words", "a word has 1 to 256 bytes");
    }
    const std::string other = word.front() == ' ' ? word.substr(1) : " " + word;
    for (const std::string& text : {word, other}) {
      auto ids = model.tokenizer->encode(text, false, false);
      if (!ids.empty()) out.bad_words.push_back(std::move(ids));
    }
  }
}

// Completions: "logprobs" is the number. Chat: "logprobs" switches, "top_logprobs" is the number.
void read_logprobs(FieldReader& fields, bool chat, SamplingOptions& out) {
  std::optional<int64_t> top, prompt;
  if (chat) {
    bool on = false;
    fields.read("logprobs", on);
    fields.read("top_logprobs", top, 0, kMaxLogprobs);
    if (top && *top > 0 && !on) {
      return fields.fail("top_logprobs", "needs \"logprobs\": true");
    }
    if (on) out.logprobs = static_cast<int32_t>(top.value_or(0));
  } else {
    fields.read("logprobs", top, 0, kMaxLogprobs);
    if (top) out.logprobs = static_cast<int32_t>(*top);
  }
  fields.read("prompt_logprobs", prompt, 0, kMaxLogprobs);
  if (prompt) out.prompt_logprobs = static_cast<int32_t>(*prompt);
}

void read_max_tokens(FieldReader& fields, CompletionRequest& out) {
  std::optional<int64_t> max_tokens;
  fields.read("max_tokens", max_tokens, out.echo ? 0 : 1, kInt64Max);
  if (out.chat) fields.read("max_completion_tokens", max_tokens, 1, kInt64Max);
  if (max_tokens == 0) {
    out.prompt_only = true;
    max_tokens = 1;
  }
  out.sampling.max_tokens = max_tokens;
  fields.read("min_tokens", out.sampling.min_tokens, 0, kInt64Max);
  if (max_tokens && out.sampling.min_tokens > *max_tokens) {
    fields.fail("min_tokens", "must not be above max_tokens");
  }
}

// -1: what the context leaves beside the answer.
void read_truncation(FieldReader& fields, const ApiModel& model, CompletionRequest& out) {
  std::optional<int64_t> most;
  fields.read("truncate_prompt_tokens", most, -1, model.max_model_len - 1);
  if (!most) return;
  if (*most == 0) return fields.fail("truncate_prompt_tokens", "must be -1 or at least 1");
  const int64_t answer = out.sampling.max_tokens.value_or(kDefaultMaxTokens);
  out.truncate =
      *most > 0 ? *most
                : std::max<int64_t>(1, model.max_model_len - std::min(answer, model.max_model_len));
}

}  // namespace

void read_model_name(FieldReader& fields, const ApiModel& model) {
  const Json* v = fields.find_string("model");
  if (v == nullptr || !fields.ok()) return;
  const auto& name = v->get_ref<const std::string&>();
  if (name.empty() ||
      std::find(model.names.begin(), model.names.end(), name) != model.names.end()) {
    return;
  }
  fields.fail_with(
      ApiError{.status = 404,
               .message = fmt::format("The model does not exist here; this server has {}.",
                                      fmt::join(model.names, ", ")),
               .param = "model"});
}

void read_sampling(FieldReader& fields, const ApiModel& model, CompletionRequest& out) {
  SamplingOptions& s = out.sampling;
  apply_defaults(model.defaults, s);
  fields.read("temperature", s.temperature, 0);
  fields.read("top_p", s.top_p, 0, 1, true);
  fields.read("min_p", s.min_p, 0, 1);
  int64_t top_k = s.top_k;
  fields.read("top_k", top_k, -1, std::numeric_limits<int32_t>::max());
  s.top_k = static_cast<int32_t>(top_k);
  fields.read("repetition_penalty", s.repetition_penalty, 0, std::numeric_limits<float>::max(),
              true);
  fields.read("presence_penalty", s.presence_penalty, -2, 2);
  fields.read("frequency_penalty", s.frequency_penalty, -2, 2);
  read_seed(fields, s);
  read_stop(fields, s);
  read_logit_bias(fields, model, s);
  read_logprobs(fields, out.chat, s);
  read_id_list(fields, "stop_token_ids", model, s.stop_token_ids);
  read_allowed(fields, model, s);
  read_bad_words(fields, model, s);
  fields.read("ignore_eos", s.ignore_eos);
  fields.read("include_stop_str_in_output", s.include_stop_str_in_output);
  fields.read("skip_special_tokens", s.skip_special_tokens);
  fields.read("n", out.n, 1, kMaxChoices);
  fields.read("return_token_ids", out.return_token_ids);
  fields.read("return_tokens_as_token_ids", out.return_tokens_as_token_ids);
  read_max_tokens(fields, out);
  read_truncation(fields, model, out);
  read_kv(fields, out.kv);
  if (const Json* salt = fields.find_string("cache_salt")) {
    out.cache_salt = salt->get_ref<const std::string&>();
    if (out.cache_salt.empty() || out.cache_salt.size() > 256) {
      fields.fail("cache_salt", "must have 1 to 256 bytes");
    }
  }
  int64_t best_of = out.n;
  fields.read("best_of", best_of, 1, kMaxChoices);
  if (best_of != out.n) fields.fail("best_of", "not supported by this server; use n");
  fields.refuse({"logits_processors", "use_beam_search", "prompt_embeds", "lora_request"});
  fields.ignore({"user", "metadata", "store", "service_tier", "priority", "request_id",
                 "spaces_between_special_tokens", "safety_identifier", "prompt_cache_key"});
}

void read_stream_options(FieldReader& fields, CompletionRequest& out) {
  fields.read("stream", out.stream);
  if (const Json* options = fields.find_object("stream_options")) {
    if (!out.stream) return fields.fail("stream_options", "needs \"stream\": true");
    fields.read_inside("stream_options", *options, "include_usage", out.include_usage);
    fields.read_inside("stream_options", *options, "continuous_usage_stats", out.continuous_usage);
  }
  if (out.stream && out.sampling.prompt_logprobs) {
    fields.fail("prompt_logprobs", "is not available with \"stream\": true");
  }
}

void read_token_ids(FieldReader& fields, std::string_view name, const Json& value,
                    const ApiModel& model, std::vector<int32_t>& out) {
  const int32_t vocab = model.tokenizer->vocab_size();
  out.reserve(value.size());
  for (const Json& item : value) {
    const auto id = item.is_number() ? as_integer(item) : std::nullopt;
    if (!id || *id < 0 || *id >= vocab) {
      return fields.fail(
          name, fmt::format("element {} must be a token id from 0 to {}", out.size(), vocab - 1));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
}

void check_lengths(FieldReader& fields, const ApiModel& model, CompletionRequest& request) {
  if (!fields.ok()) return;
  const auto choices = static_cast<int64_t>(request.prompts.size()) * request.n;
  if (choices > 1 && request.kv.count("session") > 0) {
    return fields.fail("kv.session", "a session has one answer a turn; use one prompt and n=1");
  }
  int64_t longest = 0;
  for (const auto& p : request.prompts) {
    longest = std::max(longest, static_cast<int64_t>(p.tokens.size()));
  }
  const int64_t room = model.max_model_len - longest;
  if (room < 1) {
    const auto limit = static_cast<int64_t>(model.prompt_limit());
    const bool uncounted = longest > limit;
    const int64_t counted = std::min(longest, limit);
    return fields.fail_with(ApiError{
        .status = 400,
        .message = fmt::format("The prompt has {}{} tokens, but the context is {} tokens, prompt "
                               "and answer together. Shorten the prompt.",
                               uncounted ? "more than " : "", counted, model.max_model_len),
        .param = "input_tokens"});
  }
  auto& max_tokens = request.sampling.max_tokens;
  if (!max_tokens) {
    // Completions stop after 16 tokens, chat at the model's own wish or the end of the context.
    if (!request.chat) {
      max_tokens = std::min(kDefaultMaxTokens, room);
    } else if (model.defaults.max_new_tokens) {
      max_tokens = std::clamp<int64_t>(*model.defaults.max_new_tokens, 1, room);
    }
  }
  if (max_tokens && *max_tokens > room) {
    return fields.fail_with(ApiError{
        .status = 400,
        .message =
            fmt::format("max_tokens is larger than the room in the context: the prompt has {} "
                        "tokens of {}; ask for at most {}.",
                        longest, model.max_model_len, room),
        .param = "max_tokens"});
  }
}

}  // namespace pagefold
