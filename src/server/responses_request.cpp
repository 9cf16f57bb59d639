#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/field_reader.h"
#include "server/responses.h"

namespace pagefold {
namespace {

// What a chat request has under another name, or not at all.
constexpr std::array<std::string_view, 4> kTaken = {"input", "instructions", "max_output_tokens",
                                                    "text"};
constexpr std::array<std::string_view, 8> kFramework = {
    "metadata",       "store",       "parallel_tool_calls", "include",
    "stream_options", "tool_choice", "truncation",          "reasoning"};

// One part of a message; its kind says who wrote it.
Json chat_part(FieldReader& fields, const std::string& path, const Json& part) {
  if (part.is_object() && part.contains("type") && part.contains("text") &&
      part["text"].is_string()) {
    for (const auto* type : {"input_text", "output_text", "text"}) {
      if (part["type"] == Json(type)) return {{"type", "text"}, {"text", part["text"]}};
    }
  }
  fields.fail(path, "only parts of the types \"input_text\" and \"output_text\" are supported");
  return {};
}

Json chat_message(FieldReader& fields, size_t index, const Json& item) {
  const std::string path = fmt::format("input[{}]", index);
  if (!item.is_object()) {
    fields.fail(path, fmt::format("expected an object, got {}", json_kind(item)));
    return {};
  }
  const auto type = item.find("type");
  if (type != item.end() && !type->is_null() && *type != Json("message")) {
    fields.fail(path + ".type", "only items of the type \"message\" are supported");
    return {};
  }
  Json message = Json::object();
  for (const auto* name : {"role", "content", "name"}) {
    if (item.contains(name)) message[name] = item[name];
  }
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return message;
  Json parts = Json::array();
  for (size_t i = 0; i < content->size() && fields.ok(); ++i) {
    parts.push_back(chat_part(fields, fmt::format("{}.content[{}]", path, i), (*content)[i]));
  }
  *content = std::move(parts);
  return message;
}

Json chat_messages(FieldReader& fields) {
  Json messages = Json::array();
  if (const Json* instructions = fields.find_string("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json* input = fields.find("input");
  if (input == nullptr) {
    fields.fail("input", "is missing");
  } else if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (!input->is_array()) {
    fields.fail("input", fmt::format("expected a string or an array of messages, got {}",
                                     json_kind(*input)));
  } else if (input->empty()) {
    fields.fail("input", "must not be empty");
  } else {
    for (size_t i = 0; i < input->size() && fields.ok(); ++i) {
      messages.push_back(chat_message(fields, i, (*input)[i]));
    }
  }
  return messages;
}

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
  fields.refuse({"previous_response_id", "conversation", "background", "prompt", "n", "messages",
                 "max_tokens", "max_completion_tokens", "response_format", "top_logprobs",
                 "logprobs", "prompt_logprobs", "return_token_ids", "echo"});
  const auto given = [&](const char* name) {
    const auto at = body.find(name);
    return at != body.end() && !at->is_null() ? &*at : nullptr;
  };
  if (const Json* tools = given("tools"); tools && *tools != Json::array()) {
    fields.fail("tools", "not supported here; use /v1/chat/completions");
  }
  if (const Json* include = given("include"); include && *include != Json::array()) {
    fields.fail("include", "nothing can be included");
  }
  if (const Json* t = given("truncation"); t && *t != Json("disabled")) {
    fields.fail("truncation", "must be \"disabled\": nothing is cut");
  }
  if (const Json* c = given("tool_choice"); c && *c != Json("none") && *c != Json("auto")) {
    fields.fail("tool_choice", "needs \"tools\", which are not supported here");
  }
}

// Faults are found in the chat form; the client knows the other names.
void rename_fault(ApiError& error) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"messages", "input"},
      {"max_tokens", "max_output_tokens"},
      {"response_format", "text.format"}};
  for (const auto& [chat, ours] : names) {
    if (!error.param.starts_with(chat)) continue;
    const std::string old = error.param;
    error.param.replace(0, chat.size(), ours);
    if (error.message.starts_with(old)) error.message.replace(0, old.size(), error.param);
    return;
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
          {"parallel_tool_calls", true},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", value("temperature", nullptr)},
          {"text", {{"format", format.is_null() ? Json{{"type", "text"}} : format}}},
          {"tool_choice", value("tool_choice", "auto")},
          {"tools", Json::array()},
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
  chat.erase("tools");
  chat["messages"] = chat_messages(fields);
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
    rename_fault(*error);
    return error;
  }
  out.echo = echo_of(body, format);
  return std::nullopt;
}

}  // namespace pagefold
