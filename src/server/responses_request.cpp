#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "server/field_reader.h"
#include "server/responses.h"

namespace pagefold {
namespace {

// What a chat request has under another name, or not at all.
constexpr std::array<std::string_view, 6> kTaken = {"input", "instructions", "max_output_tokens",
                                                    "text",  "tools",        "tool_choice"};
constexpr std::array<std::string_view, 6> kFramework = {
    "metadata", "store", "include", "stream_options", "truncation", "reasoning"};

// text.format has the members of response_format, a schema's beside the type.
Json chat_format(FieldReader& fields, const Json& text) {
  const auto format = text.find("format");
  if (format == text.end() || format->is_null()) return nullptr;
  if (!format->is_object()) {
    fields.fail("text.format", "expected an object");
    return nullptr;
  }
  if (!format->contains("type") || (*format)["type"] != Json("json_schema")) return *format;
  Json schema = *format;
  schema.erase("type");
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

void refuse_the_rest(FieldReader& fields, const Json& body) {
  const auto given = [&](const char* name) {
    const auto at = body.find(name);
    return at != body.end() && !at->is_null() ? &*at : nullptr;
  };
  if (given("previous_response_id")) {
    fields.fail("previous_response_id",
                "answers are not stored here; send the whole conversation as \"input\" (with "
                "kv.session it is not read again)");
  }
  if (const Json* store = given("store"); store && *store != Json(false)) {
    fields.fail("store", "answers are not stored here; leave it out or send false");
  }
  fields.refuse({"conversation", "background", "prompt", "n", "messages", "max_tokens",
                 "max_completion_tokens", "response_format", "top_logprobs", "logprobs",
                 "prompt_logprobs", "return_token_ids", "echo"});
  if (const Json* include = given("include"); include && *include != Json::array()) {
    fields.fail("include", "nothing can be included");
  }
  if (const Json* t = given("truncation"); t && *t != Json("disabled")) {
    fields.fail("truncation", "must be \"disabled\": nothing is cut");
  }
}

// Faults are found in the chat form; the client knows the other names.
void rename_fault(const ChatForm& form, ApiError& error) {
  const std::string old = error.param;
  const auto renamed = [&](std::string param) {
    error.param = std::move(param);
    if (error.message.starts_with(old)) error.message.replace(0, old.size(), error.param);
  };
  constexpr std::string_view kMessage = "messages[";
  if (old.starts_with(kMessage)) {
    const char* end = old.data() + old.size();
    size_t index = 0;
    const auto number = std::from_chars(old.data() + kMessage.size(), end, index);
    if (number.ec != std::errc() || index >= form.sources.size()) return renamed("input");
    const int64_t source = form.sources[index];
    const std::string rest(number.ptr + 1, end);
    return renamed(source < 0 ? "instructions" : fmt::format("input[{}]{}", source, rest));
  }
  const std::pair<std::string_view, std::string_view> names[] = {
      {"messages", "input"},
      {"max_tokens", "max_output_tokens"},
      {"response_format", "text.format"}};
  for (const auto& [chat, ours] : names) {
    if (old.starts_with(chat)) return renamed(std::string(ours) + old.substr(chat.size()));
  }
}

Json echo_of(const Json& body, const Json& format) {
  const auto value = [&](const char* name, Json otherwise) {
    const auto at = body.find(name);
    return at != body.end() && !at->is_null() ? *at : otherwise;
  };
  return {{"instructions", value("instructions", nullptr)},
          {"max_output_tokens", value("max_output_tokens", nullptr)},
          {"metadata", value("metadata", Json::object())},
          {"parallel_tool_calls", value("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", value("temperature", nullptr)},
          {"text", {{"format", format.is_null() ? Json{{"type", "text"}} : format}}},
          {"tool_choice", value("tool_choice", "auto")},
          {"tools", value("tools", Json::array())},
          {"top_p", value("top_p", nullptr)},
          {"truncation", "disabled"},
          {"user", value("user", nullptr)}};
}

}  // namespace

std::optional<ApiError> parse_responses(const Json& body, const ApiModel& model,
                                        ResponsesRequest& out) {
  std::optional<ApiError> error;
  FieldReader fields(body, "", error);
  refuse_the_rest(fields, body);
  Json chat = Json::object();
  for (const auto& [key, value] : body.items()) {
    const auto is = [&key = key](std::string_view name) { return name == key; };
    if (std::none_of(kTaken.begin(), kTaken.end(), is) &&
        std::none_of(kFramework.begin(), kFramework.end(), is)) {
      chat[key] = value;
    }
  }
  ChatForm form;
  read_input(fields, form);
  read_response_tools(fields, form);
  chat["messages"] = form.messages;
  if (!form.tools.is_null()) chat["tools"] = form.tools;
  if (!form.tool_choice.is_null()) chat["tool_choice"] = form.tool_choice;
  if (const Json* most = fields.find("max_output_tokens")) chat["max_tokens"] = *most;
  Json format;
  if (const Json* text = fields.find_object("text")) {
    const auto given = text->find("format");
    if (given != text->end()) format = *given;
    if (Json wanted = chat_format(fields, *text); !wanted.is_null()) {
      chat["response_format"] = std::move(wanted);
    }
  }
  if (const Json* metadata = fields.find_object("metadata"); metadata && metadata->size() > 16) {
    fields.fail("metadata", "at most 16 are accepted");
  }
  bool stream = false;
  fields.read("stream", stream);
  if (stream) chat["stream_options"] = {{"include_usage", true}};
  if (error) return error;
  error = parse_chat(chat, model, out.chat);
  if (error) {
    rename_fault(form, *error);
    return error;
  }
  out.echo = echo_of(body, format);
  return std::nullopt;
}

}  // namespace pagefold
