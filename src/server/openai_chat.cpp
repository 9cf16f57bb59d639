// "messages", "tools" and the template switches of a request become a context for the model's
// template; api/chat_prompt.h makes the prompt of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/chat_prompt.h"
#include "base/log.h"
#include "server/field_reader.h"
#include "server/openai_request.h"

namespace pagefold {
namespace {

constexpr std::array<std::string_view, 7> kRoles = {"system", "developer", "user",   "assistant",
                                                    "tool",   "function",  "ipython"};
constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxCalls = 4096;                // over all messages: each is parsed
constexpr const char* kToolsTold = "tools told";  // in a context: the first message names them

// Parts of the kind {"type": "text"} are joined by line ends, as vLLM does.
std::string read_content(FieldReader& message, const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    message.fail("content", fmt::format("expected a string or an array of text parts, got {}",
                                        json_kind(content)));
    return {};
  }
  std::string text;
  bool first = true;
  for (const Json& part : content) {
    if (part.is_string()) {
      if (!first) text += '\n';
      text += part.get_ref<const std::string&>();
    } else {
      const auto type = part.is_object() ? part.find("type") : part.end();
      const auto value = part.is_object() ? part.find("text") : part.end();
      if (!part.is_object() || type == part.end() || *type != Json("text")) {
        message.fail("content", "only parts of the type \"text\" are supported");
        return {};
      }
      if (value == part.end() || !value->is_string()) {
        message.fail("content", "a text part needs a string in \"text\"");
        return {};
      }
      if (!first) text += '\n';
      text += value->get_ref<const std::string&>();
    }
    first = false;
  }
  return text;
}

// Arguments come as JSON text; templates want the object.
Json read_tool_calls(FieldReader& message, const Json& calls) {
  Json out = calls;
  for (Json& call : out) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      message.fail("tool_calls", "each call needs an object in \"function\"");
      return {};
    }
    Json& function = call["function"];
    const auto name = function.find("name");
    if (name != function.end() && !name->is_string()) {
      message.fail("tool_calls", "\"name\" of a function must be a string");
      return {};
    }
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || arguments->is_null() || arguments->is_object()) continue;
    if (!arguments->is_string()) {
      message.fail("tool_calls", "\"arguments\" must be the text of a JSON object");
      return {};
    }
    auto parsed = parse_json(arguments->get_ref<const std::string&>());
    if (!parsed.ok() || !parsed->is_object()) {
      message.fail("tool_calls", "\"arguments\" must be the text of a JSON object");
      return {};
    }
    *arguments = *std::move(parsed);
  }
  return out;
}

Json read_message(const Json& item, size_t index, std::optional<ApiError>& error) {
  FieldReader fields(item, fmt::format("messages[{}]", index), error);
  if (!item.is_object()) {
    fields.fail("", fmt::format("expected an object, got {}", json_kind(item)));
    return {};
  }
  std::string role;
  fields.read("role", role);
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    fields.fail("role", fmt::format("must be one of {}", fmt::join(kRoles, ", ")));
  }
  Json message = {{"role", role}};
  const Json* content = fields.find("content");
  const Json* calls = fields.find_array("tool_calls");
  if (content != nullptr) {
    message["content"] = read_content(fields, *content);
  } else if (role == "assistant" && calls != nullptr) {
    message["content"] = "";
  } else {
    fields.fail("content", "is missing");
  }
  if (calls != nullptr) message["tool_calls"] = read_tool_calls(fields, *calls);
  for (const auto name : {"name", "tool_call_id", "reasoning_content"}) {
    if (const Json* v = fields.find_string(name)) message[name] = *v;
  }
  return message;
}

// For templates that know no tools: earlier calls become text again, as the model wrote them.
void write_calls(Json& messages) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    std::string text = message["content"].get<std::string>();
    for (const Json& call : *calls) {
      const Json& function = call["function"];
      const Json shown = {
          {"name", function.contains("name") ? function["name"] : Json("")},
          {"arguments", function.contains("arguments") ? function["arguments"] : Json::object()}};
      if (!text.empty()) text += '\n';
      text += "<tool_call>\n" + dump_json(shown) + "\n</tool_call>";
    }
    message["content"] = std::move(text);
    message.erase("tool_calls");
  }
}

// For templates that know no tools: they are put into the system message, in the form that
// ToolDialect::hermes reads.
void tell_of_tools(Json& messages, const Json& tools) {
  std::string text =
      "You can call functions. These are available, one JSON object a line:\n<tools>\n";
  for (const Json& tool : tools) text += dump_json(tool) + "\n";
  text +=
      "</tools>\nTo call a function, answer with its name and arguments as JSON between tags:\n"
      "<tool_call>\n{\"name\": NAME, \"arguments\": OBJECT}\n</tool_call>";
  Json& first = messages.front();
  if (first["role"] == Json("system")) {
    first["content"] = first["content"].get<std::string>() + "\n\n" + text;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
}

void read_tools(FieldReader& fields, const ApiModel& model, Json& context) {
  const Json* tools = fields.find_array("tools");
  const Json* choice = fields.find("tool_choice");
  if (tools != nullptr) {
    if (tools->empty()) return fields.fail("tools", "must not be empty; leave the field out");
    for (const Json& tool : *tools) {
      const auto function = tool.is_object() ? tool.find("function") : tool.end();
      if (!tool.is_object() || function == tool.end() || !function->is_object()) {
        return fields.fail("tools", "each tool needs an object in \"function\"");
      }
      const auto name = function->find("name");
      if (name == function->end() || !name->is_string() ||
          name->get_ref<const std::string&>().empty()) {
        return fields.fail("tools", "each function needs a \"name\"");
      }
    }
  }
  const bool word = choice != nullptr && (*choice == Json("auto") || *choice == Json("none") ||
                                          *choice == Json("required"));
  if (choice != nullptr && !word && !choice->is_object()) {
    return fields.fail(
        "tool_choice",
        "must be \"none\", \"auto\", \"required\" or an object that names a function");
  }
  if (choice != nullptr && tools == nullptr && *choice != Json("none")) {
    return fields.fail("tool_choice", "needs \"tools\"");
  }
  if (tools == nullptr || (choice != nullptr && *choice == Json("none"))) return;
  if (model.tools_in_template) {
    context["tools"] = *tools;
  } else {
    tell_of_tools(context["messages"], *tools);
    context[kToolsTold] = true;
  }
}

Json read_context(FieldReader& fields, const ApiModel& model, bool& continues) {
  Json context = {{"messages", Json::array()}};
  const Json* messages = fields.find_array("messages");
  if (!fields.ok()) return context;
  if (messages == nullptr || messages->empty()) {
    fields.fail("messages", messages == nullptr ? "is missing" : "must not be empty");
    return context;
  }
  if (messages->size() > kMaxMessages) {
    fields.fail("messages", fmt::format("at most {} messages are accepted", kMaxMessages));
    return context;
  }
  size_t calls = 0;
  for (const Json& m : *messages) {
    const auto made = m.is_object() ? m.find("tool_calls") : m.end();
    if (m.is_object() && made != m.end() && made->is_array()) calls += made->size();
  }
  if (calls > kMaxCalls) {
    fields.fail("messages", fmt::format("at most {} tool calls are accepted", kMaxCalls));
    return context;
  }
  std::optional<ApiError> error;
  for (size_t i = 0; i < messages->size() && !error; ++i) {
    context["messages"].push_back(read_message((*messages)[i], i, error));
  }
  if (error) {
    fields.fail_with(*std::move(error));
    return context;
  }
  if (!model.tools_in_template) write_calls(context["messages"]);
  read_tools(fields, model, context);
  const bool asked = fields.find("add_generation_prompt") != nullptr;
  bool add_generation_prompt = true;
  fields.read("add_generation_prompt", add_generation_prompt);
  fields.read("continue_final_message", continues);
  if (continues && asked && add_generation_prompt) {
    fields.fail("continue_final_message", "excludes \"add_generation_prompt\": true");
  }
  context["add_generation_prompt"] = add_generation_prompt && !continues;
  return context;
}

// Variables for the template beside the fixed ones, such as enable_thinking.
void read_template_options(FieldReader& fields, Json& context) {
  fields.refuse({"chat_template"});  // templates of clients are not run
  const Json* options = fields.find_object("chat_template_kwargs");
  if (options == nullptr) return;
  if (options->size() > 64) return fields.fail("chat_template_kwargs", "at most 64 are accepted");
  for (const auto& [key, value] : options->items()) {
    if (context.contains(key) || key == "bos_token" || key == "eos_token") {
      return fields.fail("chat_template_kwargs", "must not name what the request sets elsewhere");
    }
    context[key] = value;
  }
}

// What is to be kept: the request's own words, or the server's.
std::optional<KeepWish> read_wish(FieldReader& fields, const ApiModel& model, const KvOptions& kv) {
  const auto words = kv.find("keep");
  const bool own = words != kv.end();
  auto wish = parse_keep(own ? words->second : model.keep);
  if (!wish.ok()) {
    fields.fail_with(api_error(wish.status()));
    return std::nullopt;
  }
  wish->lenient = !own;
  if (!wish->needs_messages() && wish->spans.empty()) return std::nullopt;
  return *std::move(wish);
}

}  // namespace

void read_conversation(FieldReader& fields, const ApiModel& model,
                       const ConversationOptions& wanted, Prompt& out, bool& continues) {
  const KvOptions* kv = wanted.kv;
  bool add_special = false;  // the template writes the beginning of the text itself
  fields.read("add_special_tokens", add_special);
  Json context = read_context(fields, model, continues);
  read_template_options(fields, context);
  if (!fields.ok()) return;
  if (model.chat_template == nullptr) {
    return fields.fail("messages", "this model has no chat template; use /v1/completions");
  }
  std::optional<KeepWish> keep;
  if (kv != nullptr && (model.compresses || fields.find("kv") != nullptr)) {
    keep = read_wish(fields, model, *kv);
    if (!fields.ok()) return;
  }
  const auto n_sent = static_cast<int64_t>(fields.find("messages")->size());
  const bool told = model.tools_in_template ? false : context.contains(kToolsTold);
  context.erase(kToolsTold);
  ChatPromptOptions options{.continues = continues,
                            .add_special = add_special,
                            .find_suffix = model.compresses || fields.find("kv") != nullptr,
                            .limit = wanted.limit};
  if (keep) options.keep = &*keep;
  options.first_index = static_cast<int64_t>(context["messages"].size()) - n_sent;
  if (told) options.tools_index = 0;
  auto prompt = chat_prompt(*model.tokenizer, *model.chat_template, model.special,
                            std::move(context), options);
  if (!prompt.ok()) return fields.fail("messages", message_of(prompt.status()));
  if (!prompt->keep_status.ok()) {
    if (!keep->lenient) return fields.fail_with(api_error(prompt->keep_status));
    log::debug("nothing is kept: {}", message_of(prompt->keep_status));
  }
  out.tokens = std::move(prompt->tokens);
  out.suffix_begin = prompt->suffix_begin;
  if (wanted.truncate) truncate_prompt(*wanted.truncate, out, prompt->keep);
  out.keep = spans_text(prompt->keep);
}

}  // namespace pagefold
