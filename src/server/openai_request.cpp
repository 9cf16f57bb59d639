#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "server/field_reader.h"

namespace pagefold {
namespace {

constexpr size_t kMaxFields = 256;

void take_end(const ApiModel& model, const CompletionRequest& request, Prompt& p) {
  if (!request.truncate) return;
  std::vector<KeepSpan> none;
  truncate_prompt(*request.truncate, p, none);
  if (p.dropped > 0) p.text = model.tokenizer->decode(p.tokens, false);
}

// A prompt as text, encoded as the model wants the beginning of a text. Special tokens written in
// it become their ids: a raw prompt is under the client's control anyway (it could send ids).
void add_text_prompt(FieldReader& fields, const ApiModel& model, bool add_special,
                     const std::string& text, CompletionRequest& out) {
  const size_t limit = out.truncate ? SIZE_MAX : model.prompt_limit();
  Prompt p{.tokens = model.tokenizer->encode_up_to(text, add_special, true, limit), .text = text};
  take_end(model, out, p);
  if (p.tokens.empty()) {
    return fields.fail("prompt", "an empty prompt has no token to start from; give some text");
  }
  out.prompts.push_back(std::move(p));
}

void add_token_prompt(FieldReader& fields, const ApiModel& model, const Json& ids,
                      CompletionRequest& out) {
  Prompt p;
  if (ids.empty()) return fields.fail("prompt", "a list of token ids must not be empty");
  read_token_ids(fields, "prompt", ids, model, p.tokens);
  if (!fields.ok()) return;
  take_end(model, out, p);
  if (out.echo) p.text = model.tokenizer->decode(p.tokens, out.sampling.skip_special_tokens);
  out.prompts.push_back(std::move(p));
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
void read_prompts(FieldReader& fields, const ApiModel& model, bool add_special,
                  CompletionRequest& out) {
  const Json* v = fields.find("prompt");
  if (!fields.ok()) return;
  if (v == nullptr) return fields.fail("prompt", "is missing");
  if (v->is_string()) {
    return add_text_prompt(fields, model, add_special, v->get_ref<const std::string&>(), out);
  }
  if (!v->is_array()) {
    return fields.fail("prompt",
                       fmt::format("expected a string or an array, got {}", json_kind(*v)));
  }
  if (v->empty()) return fields.fail("prompt", "must not be empty");
  if (v->front().is_number()) return add_token_prompt(fields, model, *v, out);
  if (static_cast<int64_t>(v->size()) * out.n > kMaxChoices) {
    return fields.fail("prompt",
                       fmt::format("prompts x n is {}, at most {} choices are made for one request",
                                   static_cast<int64_t>(v->size()) * out.n, kMaxChoices));
  }
  const auto kind = v->front().type();
  for (const Json& item : *v) {
    if (!fields.ok()) return;
    if (item.type() != kind || !(item.is_string() || item.is_array())) {
      return fields.fail(
          "prompt", "an array holds strings, token ids, or arrays of token ids, all of one kind");
    }
    if (item.is_string()) {
      add_text_prompt(fields, model, add_special, item.get_ref<const std::string&>(), out);
    } else {
      add_token_prompt(fields, model, item, out);
    }
  }
}

void log_unknown(const FieldReader& fields) {
  if (!log::enabled(log::Level::debug)) return;
  for (const auto name : fields.unknown()) {
    std::string quoted;
    append_json_string(quoted, name.substr(0, 64));
    log::debug("ignoring the unknown request field {}", quoted);
  }
}

Request::Thinking thinking_tokens(const Tokenizer& tokenizer) {
  Request::Thinking t;
  t.open = tokenizer.find_piece("<think>");
  t.close = tokenizer.find_piece("</think>");
  for (const char* blank : {"\n", "\n\n", " ", "\n\n\n"}) {
    const auto ids = tokenizer.encode(blank, false, false);
    if (ids.size() == 1) t.blanks.push_back(ids[0]);
  }
  return t;
}

}  // namespace

ApiModel make_api_model(const LoadedModel& model, int64_t max_model_len,
                        std::vector<std::string> served_names) {
  ApiModel m;
  m.tokenizer = model.tokenizer.get();
  m.chat_template = model.chat_template ? &*model.chat_template : nullptr;
  m.special = SpecialPieces(*model.tokenizer);
  m.names = std::move(served_names);
  if (m.names.empty()) m.names = {model.name};
  m.eos_token_ids = model.eos_token_ids;
  m.defaults = model.defaults;
  m.max_model_len = max_model_len;
  m.grammars = std::make_shared<GrammarStore>(*model.tokenizer, model.network->shape().vocab_size,
                                              model.eos_token_ids);
  m.tools = tool_dialect_of(model.chat_template_source);
  m.tools_in_template = model.chat_template_source.find("tools") != std::string::npos;
  m.reasoning = reasoning_dialect_of(model.chat_template_source);
  m.path = model.path;
  if (m.reasoning != ReasoningDialect::none) m.thinking = thinking_tokens(*model.tokenizer);
  return m;
}

void truncate_prompt(int64_t most, Prompt& prompt, std::vector<KeepSpan>& keep) {
  const auto n = static_cast<int64_t>(prompt.tokens.size());
  if (n <= most) return;
  prompt.dropped = n - most;
  prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + prompt.dropped);
  prompt.suffix_begin = std::max<int64_t>(0, prompt.suffix_begin - prompt.dropped);
  for (KeepSpan& span : keep) {
    span.begin = std::max<int64_t>(0, span.begin - prompt.dropped);
    span.end -= prompt.dropped;
  }
  std::erase_if(keep, [](const KeepSpan& span) { return span.end <= 0; });
}

std::optional<ApiError> parse_body(std::string_view text, Json& out) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return ApiError{
        .status = 400, .message = "The request body is empty; send a JSON object.", .param = {}};
  }
  auto parsed = parse_json(text);
  if (!parsed.ok()) {
    return ApiError{.status = 400,
                    .message = "The request body is not usable: " + message_of(parsed.status()),
                    .param = {}};
  }
  if (!parsed->is_object()) {
    return ApiError{.status = 400,
                    .message = fmt::format("The request body must be a JSON object, got {}.",
                                           json_kind(*parsed)),
                    .param = {}};
  }
  if (parsed->size() > kMaxFields) {
    return ApiError{.status = 400,
                    .message = fmt::format("The request body has more than {} fields.", kMaxFields),
                    .param = {}};
  }
  out = *std::move(parsed);
  return std::nullopt;
}

std::optional<ApiError> parse_completion(const Json& body, const ApiModel& model,
                                         CompletionRequest& out) {
  std::optional<ApiError> error;
  FieldReader fields(body, "", error);
  out.chat = false;
  read_model_name(fields, model);
  fields.read("echo", out.echo);
  read_sampling(fields, model, out);
  read_stream_options(fields, out);
  fields.refuse({"suffix"});
  // Scores of the prompt are shown in front of the answer's when both are asked for.
  if (out.echo && out.sampling.logprobs && out.stream) {
    fields.fail("echo", "with \"logprobs\" it is not available with \"stream\": true");
  } else if (out.echo && out.sampling.logprobs && !out.sampling.prompt_logprobs) {
    out.sampling.prompt_logprobs = out.sampling.logprobs;
    out.echo_logprobs = true;
  }
  bool add_special = true;
  fields.read("add_special_tokens", add_special);
  read_prompts(fields, model, add_special, out);
  read_keep(fields, out);
  if (fields.ok()) read_answer_format(fields, model, out);
  check_lengths(fields, model, out);
  log_unknown(fields);
  return error;
}

std::optional<ApiError> parse_chat(const Json& body, const ApiModel& model,
                                   CompletionRequest& out) {
  std::optional<ApiError> error;
  FieldReader fields(body, "", error);
  out.chat = true;
  read_model_name(fields, model);
  read_sampling(fields, model, out);
  read_stream_options(fields, out);
  fields.refuse({"echo", "functions", "function_call", "audio", "web_search_options"});
  fields.ignore({"reasoning_effort", "verbosity"});
  Prompt prompt;
  bool continues = false;
  if (fields.ok()) {
    read_conversation(fields, model,
                      {out.truncate ? SIZE_MAX : model.prompt_limit(), &out.kv, out.truncate},
                      prompt, continues);
  }
  out.kv.erase("keep");  // it is the prompt's now
  out.at_text_start = !continues;
  out.prompts.push_back(std::move(prompt));
  if (fields.ok()) read_answer_format(fields, model, out);
  check_lengths(fields, model, out);
  log_unknown(fields);
  return error;
}

std::optional<ApiError> parse_tokenize(const Json& body, const ApiModel& model,
                                       TokenizeRequest& out) {
  std::optional<ApiError> error;
  FieldReader fields(body, "", error);
  read_model_name(fields, model);
  fields.read("return_token_strs", out.return_token_strs);
  if (fields.find("messages") != nullptr) {
    Prompt prompt;
    bool continues = false;
    read_conversation(fields, model, {}, prompt, continues);
    out.tokens = std::move(prompt.tokens);
  } else {
    bool add_special = true;
    fields.read("add_special_tokens", add_special);
    const Json* text = fields.find_string("prompt");
    if (text == nullptr) {
      fields.fail("prompt", "is missing");
    } else if (fields.ok()) {
      out.tokens = model.tokenizer->encode(text->get_ref<const std::string&>(), add_special, true);
    }
  }
  log_unknown(fields);
  return error;
}

std::optional<ApiError> parse_detokenize(const Json& body, const ApiModel& model,
                                         std::vector<int32_t>& out) {
  std::optional<ApiError> error;
  FieldReader fields(body, "", error);
  read_model_name(fields, model);
  const Json* ids = fields.find_array("tokens");
  if (ids == nullptr) {
    fields.fail("tokens", "is missing");
  } else {
    read_token_ids(fields, "tokens", *ids, model, out);
  }
  log_unknown(fields);
  return error;
}

}  // namespace pagefold
