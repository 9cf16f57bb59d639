// "input", "instructions" and "tools" of /v1/responses as the messages and tools of a chat.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "server/field_reader.h"
#include "server/responses.h"

namespace pagefold {
namespace {

constexpr size_t kMostItems = 4096;

// Text of a string or of a list of parts of the given types; joined by line ends.
std::string text_of(FieldReader& fields, const std::string& path, const Json& content,
                    std::initializer_list<const char*> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    fields.fail(path,
                fmt::format("expected a string or an array of parts, got {}", json_kind(content)));
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    bool known = part.is_object() && part.contains("text") && part["text"].is_string() &&
                 part.contains("type");
    if (known) {
      known = std::any_of(types.begin(), types.end(),
                          [&](const char* type) { return part["type"] == Json(type); });
    }
    if (!known) {
      fields.fail(fmt::format("{}[{}]", path, i),
                  fmt::format("only parts of the types \"{}\" with a \"text\" are supported",
                              fmt::join(types, "\", \"")));
      return {};
    }
    if (i > 0) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

class InputReader {
 public:
  InputReader(FieldReader& fields, ChatForm& out) : fields_(fields), out_(out) {}

  void read(const Json& items) {
    for (size_t i = 0; i < items.size() && fields_.ok(); ++i) item(i, items[i]);
    if (fields_.ok() && !reasoning_.empty()) add(items.size() - 1, {{"role", "assistant"}});
  }

 private:
  void item(size_t index, const Json& item) {
    path_ = fmt::format("input[{}]", index);
    if (!item.is_object()) {
      return fields_.fail(path_, fmt::format("expected an object, got {}", json_kind(item)));
    }
    const auto type = item.find("type");
    if (type == item.end() || type->is_null() || *type == Json("message")) {
      return message(index, item);
    }
    if (*type == Json("function_call")) return call(index, item);
    if (*type == Json("function_call_output")) return output(index, item);
    if (*type == Json("reasoning")) return reasoning(item);
    fields_.fail(path_ + ".type",
                 "only items of the types \"message\", \"function_call\", \"function_call_output\" "
                 "and \"reasoning\" are supported");
  }

  // What was thought before belongs to the assistant's message that follows.
  void add(size_t index, Json message) {
    if (!reasoning_.empty() && message["role"] == Json("assistant")) {
      message["reasoning_content"] = std::exchange(reasoning_, {});
    }
    if (message["role"] == Json("assistant") && !message.contains("content")) {
      message["content"] = "";
    }
    out_.messages.push_back(std::move(message));
    out_.sources.push_back(static_cast<int64_t>(index));
  }

  void message(size_t index, const Json& item) {
    Json message = Json::object();
    for (const auto* name : {"role", "content", "name"}) {
      if (item.contains(name)) message[name] = item[name];
    }
    const auto content = message.find("content");
    if (content != message.end() && content->is_array()) {
      *content =
          text_of(fields_, path_ + ".content", *content, {"input_text", "output_text", "text"});
    }
    if (!message.contains("role")) message["role"] = nullptr;
    add(index, std::move(message));
  }

  std::string word(const Json& item, const char* name) {
    const auto at = item.find(name);
    if (at != item.end() && at->is_string() && !at->get_ref<const std::string&>().empty()) {
      return at->get<std::string>();
    }
    fields_.fail(path_ + "." + name, "expected a string that is not empty");
    return {};
  }

  // Calls that follow each other, or a text of the assistant, are one message.
  void call(size_t index, const Json& item) {
    const std::string id = word(item, "call_id"), name = word(item, "name"),
                      arguments = word(item, "arguments");
    if (!fields_.ok()) return;
    const auto parsed = parse_json(arguments);
    if (!parsed.ok() || !parsed->is_object()) {
      return fields_.fail(path_ + ".arguments", "must be the text of a JSON object");
    }
    const bool follows = !out_.messages.empty() && reasoning_.empty() &&
                         out_.messages.back()["role"] == Json("assistant");
    if (!follows) add(index, {{"role", "assistant"}});
    out_.messages.back()["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", arguments}}}});
    calls_[id] = name;
  }

  void output(size_t index, const Json& item) {
    const std::string id = word(item, "call_id");
    if (!fields_.ok()) return;
    const auto call = calls_.find(id);
    if (call == calls_.end()) {
      return fields_.fail(path_ + ".call_id", "no function_call of this id comes before it");
    }
    const auto value = item.find("output");
    if (value == item.end()) return fields_.fail(path_ + ".output", "is missing");
    std::string text = text_of(fields_, path_ + ".output", *value, {"input_text"});
    add(index, {{"role", "tool"},
                {"tool_call_id", id},
                {"name", call->second},
                {"content", std::move(text)}});
  }

  void reasoning(const Json& item) {
    const auto content = item.find("content");
    if (content == item.end() || content->is_null()) return;  // a summary alone is no thought
    reasoning_ += text_of(fields_, path_ + ".content", *content, {"reasoning_text"});
  }

  FieldReader& fields_;
  ChatForm& out_;
  std::string path_, reasoning_;
  std::map<std::string, std::string> calls_;  // id -> function
};

// {"type": "function", "name": ...} -> {"type": "function", "function": {"name": ...}}.
Json chat_tool(FieldReader& fields, size_t index, const Json& tool) {
  const std::string path = fmt::format("tools[{}]", index);
  if (!tool.is_object()) {
    fields.fail(path, fmt::format("expected an object, got {}", json_kind(tool)));
    return {};
  }
  const auto type = tool.find("type");
  if (type == tool.end() || *type != Json("function")) {
    fields.fail(path + ".type",
                "only tools of the type \"function\" are supported; this server runs no tools");
    return {};
  }
  const auto name = tool.find("name");
  if (name == tool.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    fields.fail(path + ".name", "expected a string that is not empty");
    return {};
  }
  Json function = Json::object();
  for (const auto& [key, value] : tool.items()) {
    if (key != "type" && !value.is_null()) function[key] = value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

void read_input(FieldReader& fields, ChatForm& out) {
  if (const Json* instructions = fields.find_string("instructions")) {
    out.messages.push_back({{"role", "system"}, {"content", *instructions}});
    out.sources.push_back(-1);
  }
  const Json* input = fields.find("input");
  if (input == nullptr) return fields.fail("input", "is missing");
  if (input->is_string()) {
    out.messages.push_back({{"role", "user"}, {"content", *input}});
    out.sources.push_back(0);
    return;
  }
  if (!input->is_array()) {
    return fields.fail(
        "input", fmt::format("expected a string or an array of items, got {}", json_kind(*input)));
  }
  if (input->empty()) return fields.fail("input", "must not be empty");
  if (input->size() > kMostItems) {
    return fields.fail("input", fmt::format("at most {} items are accepted", kMostItems));
  }
  InputReader(fields, out).read(*input);
}

void read_response_tools(FieldReader& fields, ChatForm& out) {
  const Json* tools = fields.find_array("tools");
  if (tools != nullptr && !tools->empty()) {
    out.tools = Json::array();
    for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
      out.tools.push_back(chat_tool(fields, i, (*tools)[i]));
    }
  }
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || !fields.ok()) return;
  if (out.tools.is_null() && (*choice == Json("auto") || *choice == Json("none"))) return;
  out.tool_choice = *choice;
  if (!choice->is_object()) return;
  const bool function = choice->contains("type") && (*choice)["type"] == Json("function") &&
                        choice->contains("name") && (*choice)["name"].is_string();
  if (!function) {
    return fields.fail("tool_choice",
                       "must be \"none\", \"auto\", \"required\" or an object with the type "
                       "\"function\" and a \"name\"");
  }
  out.tool_choice = {{"type", "function"}, {"function", {{"name", (*choice)["name"]}}}};
}

}  // namespace pagefold
