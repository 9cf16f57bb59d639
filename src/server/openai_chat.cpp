// A conversation becomes one prompt: the model's template writes it, the tokenizer encodes it.
//
// Text of the client must not become control tokens. The template's own text is encoded with
// special tokens recognised. If a string of the conversation contains a special token's text, each
// such piece is put between two private-use characters before rendering; afterwards the rendered
// text is cut there, and the pieces are encoded as ordinary characters. A cut may change how the
// neighbouring characters merge, so it is made only where it is needed: conversations without such
// pieces give exactly the ids of the template's text.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/field_reader.h"
#include "server/openai_request.h"

namespace pagefold {
namespace {

constexpr std::array<std::string_view, 7> kRoles = {"system", "developer", "user",   "assistant",
                                                    "tool",   "function",  "ipython"};
constexpr size_t kMaxMessages = 4096;

// Three private-use characters that occur neither in the conversation nor in the template.
struct Sentinels {
  std::string open, close, end;
};

std::string private_use(uint32_t offset) {  // U+100000 + offset, four bytes of UTF-8
  const uint32_t c = 0x100000 + offset;
  return {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
          static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
}

std::optional<Sentinels> choose_sentinels(std::string_view texts, std::string_view source) {
  std::vector<std::string> free;
  for (uint32_t i = 0; i < 4096 && free.size() < 3; ++i) {
    std::string c = private_use(i);
    if (texts.find(c) == std::string_view::npos && source.find(c) == std::string_view::npos) {
      free.push_back(std::move(c));
    }
  }
  if (free.size() < 3) return std::nullopt;
  return Sentinels{free[0], free[1], free[2]};
}

bool any_string(const Json& value, const SpecialPieces& special) {
  if (value.is_string()) return special.occurs_in(value.get_ref<const std::string&>());
  if (value.is_array()) {
    for (const Json& item : value) {
      if (any_string(item, special)) return true;
    }
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      if (special.occurs_in(key) || any_string(item, special)) return true;
    }
  }
  return false;
}

Json marked(const Json& value, const SpecialPieces& special, const Sentinels& s) {
  if (value.is_string()) return special.mark(value.get_ref<const std::string&>(), s.open, s.close);
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(marked(item, special, s));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [key, item] : value.items()) {
      out[special.mark(key, s.open, s.close)] = marked(item, special, s);
    }
    return out;
  }
  return value;
}

// nullopt: the template tore a marked piece apart, so it cannot be told from the template's text.
std::optional<std::vector<int32_t>> encode_marked(const Tokenizer& tokenizer, std::string_view text,
                                                  const Sentinels& s, bool add_special) {
  // A template that escapes non-ASCII characters in JSON would hide the marks.
  if (text.find("\\udbc") != std::string_view::npos ||
      text.find("\\uDBC") != std::string_view::npos) {
    return std::nullopt;
  }
  std::vector<int32_t> ids;
  const auto append = [&](std::string_view part, bool trusted) {
    if (part.empty()) return;
    const auto more = tokenizer.encode(part, add_special && ids.empty(), trusted);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  while (!text.empty()) {
    const size_t open = std::min(text.find(s.open), text.size());
    if (text.substr(0, open).find(s.close) != std::string_view::npos) return std::nullopt;
    append(text.substr(0, open), true);
    if (open == text.size()) break;
    text.remove_prefix(open + s.open.size());
    const size_t close = text.find(s.close);
    if (close == std::string_view::npos ||
        text.substr(0, close).find(s.open) != std::string_view::npos) {
      return std::nullopt;
    }
    append(text.substr(0, close), false);
    text.remove_prefix(close + s.close.size());
  }
  return ids;
}

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
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
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

void read_tools(FieldReader& fields, Json& context) {
  const Json* tools = fields.find_array("tools");
  const Json* choice = fields.find("tool_choice");
  if (tools != nullptr) {
    if (tools->empty()) return fields.fail("tools", "must not be empty; leave the field out");
    for (const Json& tool : *tools) {
      const auto function = tool.is_object() ? tool.find("function") : tool.end();
      if (!tool.is_object() || function == tool.end() || !function->is_object()) {
        return fields.fail("tools", "each tool needs an object in \"function\"");
      }
    }
  }
  if (choice != nullptr && *choice != Json("auto") && *choice != Json("none")) {
    return fields.fail("tool_choice", "only \"none\" and \"auto\" are supported yet");
  }
  // The model sees the tools; its calls come back as text.
  if (tools != nullptr && (choice == nullptr || *choice != Json("none"))) context["tools"] = *tools;
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
  std::optional<ApiError> error;
  for (size_t i = 0; i < messages->size() && !error; ++i) {
    context["messages"].push_back(read_message((*messages)[i], i, error));
  }
  if (error) {
    fields.fail_with(*std::move(error));
    return context;
  }
  read_tools(fields, context);
  const bool asked = fields.find("add_generation_prompt") != nullptr;
  bool add_generation_prompt = true;
  fields.read("add_generation_prompt", add_generation_prompt);
  fields.read("continue_final_message", continues);
  if (continues && asked && add_generation_prompt) {
    fields.fail("continue_final_message", "excludes \"add_generation_prompt\": true");
  }
  context["add_generation_prompt"] = add_generation_prompt && !continues;
  const auto piece = [&](int32_t id) {
    return id >= 0 ? model.tokenizer->piece(id) : std::string();
  };
  context["bos_token"] = piece(model.tokenizer->bos());
  context["eos_token"] = piece(model.tokenizer->eos());
  return context;
}

// Variables for the template beside the fixed ones, such as enable_thinking.
void read_template_options(FieldReader& fields, Json& context) {
  fields.refuse({"chat_template"});  // templates of clients are not run
  const Json* options = fields.find_object("chat_template_kwargs");
  if (options == nullptr) return;
  if (options->size() > 64) return fields.fail("chat_template_kwargs", "at most 64 are accepted");
  for (const auto& [key, value] : options->items()) {
    if (context.contains(key)) {
      return fields.fail("chat_template_kwargs", "must not name what the request sets elsewhere");
    }
    context[key] = value;
  }
}

}  // namespace

void read_conversation(FieldReader& fields, const ApiModel& model, Prompt& out, bool& continues) {
  bool add_special = false;  // the template writes the beginning of the text itself
  fields.read("add_special_tokens", add_special);
  Json context = read_context(fields, model, continues);
  read_template_options(fields, context);
  if (!fields.ok()) return;
  if (model.chat_template == nullptr) {
    return fields.fail("messages", "this model has no chat template; use /v1/completions");
  }
  const Json own_bos = context["bos_token"], own_eos = context["eos_token"];
  context.erase("bos_token");
  context.erase("eos_token");
  const bool forged = any_string(context, model.special);
  Sentinels s;
  if (forged || continues) {
    auto chosen = choose_sentinels(dump_json(context), model.chat_template->source());
    if (!chosen) return fields.fail("messages", "too many private-use characters");
    s = *std::move(chosen);
  }
  if (forged) context = marked(context, model.special, s);
  if (continues) {
    Json& last = context["messages"].back()["content"];
    last = last.get<std::string>() + s.end;
  }
  context["bos_token"] = own_bos;
  context["eos_token"] = own_eos;
  auto rendered = model.chat_template->render(context);
  if (!rendered.ok()) {
    return fields.fail("messages",
                       "the model's chat template refuses them: " + message_of(rendered.status()));
  }
  if (continues) {
    const size_t end = rendered->rfind(s.end);
    if (end == std::string::npos) {
      return fields.fail("continue_final_message", "the template does not show the last message");
    }
    rendered->resize(end);
  }
  if (forged) {
    auto ids = encode_marked(*model.tokenizer, *rendered, s, add_special);
    if (!ids)
      return fields.fail("messages",
                         "special tokens in them cannot be kept apart from the template");
    out.tokens = *std::move(ids);
  } else {
    out.tokens = model.tokenizer->encode(*rendered, add_special, true);
  }
  if (out.tokens.empty()) fields.fail("messages", "the template makes an empty prompt of them");
}

}  // namespace pagefold
