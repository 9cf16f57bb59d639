// What an answer must look like: response_format, guided_*, structured_outputs, tool_choice; and
// how its text is taken apart.
#include <fmt/format.h>

#include <array>

#include "grammar/json_schema.h"
#include "server/field_reader.h"
#include "server/openai_request.h"

namespace pagefold {
namespace {

using grammar::ExprId;
using grammar::Grammar;

constexpr size_t kMaxChoiceTexts = 10'000;
constexpr size_t kMaxTools = 512;

struct Wanted {
  std::string field;  // at fault when it cannot be followed
  AnswerShape shape;
};

// A schema: an object or a boolean, or (vLLM) its text.
std::optional<Json> read_schema(FieldReader& fields, std::string_view name, const Json& value) {
  if (!value.is_string()) {
    if (value.is_object() || value.is_boolean()) return value;
    fields.fail(name, fmt::format("expected a JSON schema, got {}", json_kind(value)));
    return std::nullopt;
  }
  auto parsed = parse_json(value.get_ref<const std::string&>());
  if (parsed.ok()) return *std::move(parsed);
  fields.fail(name, "expected a JSON schema; the text is no JSON");
  return std::nullopt;
}

std::optional<AnswerShape> read_choice(FieldReader& fields, std::string_view name,
                                       const Json& value) {
  std::vector<std::string> texts;
  const bool list = value.is_array() && !value.empty() && value.size() <= kMaxChoiceTexts;
  for (size_t i = 0; list && i < value.size(); ++i) {
    if (!value[i].is_string() || value[i].get_ref<const std::string&>().empty()) break;
    texts.push_back(value[i].get<std::string>());
  }
  if (!list || texts.size() < value.size()) {
    fields.fail(name, fmt::format("expected 1 to {} strings, none empty", kMaxChoiceTexts));
    return std::nullopt;
  }
  return choice_shape(std::move(texts));
}

// kind: "json", "regex", "choice", "grammar", "json_object".
std::optional<AnswerShape> read_shape(FieldReader& fields, std::string_view name,
                                      std::string_view kind, const Json& value) {
  if (kind == "json") {
    auto schema = read_schema(fields, name, value);
    if (!schema) return std::nullopt;
    return json_schema_shape(*std::move(schema));
  }
  if (kind == "choice") return read_choice(fields, name, value);
  if (kind == "json_object") {
    if (value == Json(true)) return json_object_shape();
    if (value != Json(false)) fields.fail(name, "expected true or false");
    return std::nullopt;
  }
  if (!value.is_string()) {
    fields.fail(name, fmt::format("expected a string, got {}", json_kind(value)));
    return std::nullopt;
  }
  return kind == "regex" ? regex_shape(value.get<std::string>())
                         : rules_shape(value.get<std::string>());
}

// The schema of a response_format, wherever other servers and clients have it: OpenAI inside
// "json_schema", llama.cpp as "schema", text-generation-inference (and the client of the Hugging
// Face hub) as "value". A member that would be passed over is refused: the client counts on it.
const Json* find_schema(FieldReader& fields, std::string_view name, const Json& format) {
  const Json* schema = nullptr;
  for (const auto& [key, value] : format.items()) {
    if (key == "type" || value.is_null()) continue;
    const bool holder = key == "json_schema";
    if (!holder && key != "schema" && key != "value") {
      fields.fail(name, "members are \"type\" and \"json_schema\" alone");
      return nullptr;
    }
    if (schema != nullptr || (holder && (!value.is_object() || !value.contains("schema")))) {
      fields.fail(name, schema != nullptr
                            ? "one schema is enough"
                            : "\"json_schema\" must be an object with \"schema\" in it");
      return nullptr;
    }
    schema = holder ? &value["schema"] : &value;
  }
  return schema;
}

void read_response_format(FieldReader& fields, std::vector<Wanted>& out) {
  constexpr std::string_view kName = "response_format";
  const Json* format = fields.find_object(kName);
  if (format == nullptr) return;
  const auto type = format->find("type");
  if (type != format->end() && *type == Json("text")) return;
  const bool any = type != format->end() && *type == Json("json_object");
  if (type == format->end() || (!any && *type != Json("json_schema"))) {
    return fields.fail(kName, "\"type\" must be \"text\", \"json_object\" or \"json_schema\"");
  }
  const Json* given = find_schema(fields, kName, *format);
  if (!fields.ok()) return;
  if (given == nullptr && !any) {
    return fields.fail(kName, "\"json_schema\" must be an object with \"schema\" in it");
  }
  if (given == nullptr) {
    out.push_back({std::string(kName), json_object_shape()});
  } else if (auto schema = read_schema(fields, kName, *given)) {
    out.push_back({std::string(kName), json_schema_shape(*std::move(schema))});
  }
}

void read_structured_outputs(FieldReader& fields, std::vector<Wanted>& out) {
  constexpr std::string_view kName = "structured_outputs";
  const Json* object = fields.find_object(kName);
  if (object == nullptr) return;
  for (const auto& [key, value] : object->items()) {
    if (value.is_null() || value == Json(false)) continue;
    if (key == "json" || key == "regex" || key == "choice" || key == "grammar" ||
        key == "json_object") {
      if (auto shape = read_shape(fields, kName, key, value)) {
        out.push_back({std::string(kName), *std::move(shape)});
      }
    } else if (key == "structural_tag" || key == "whitespace_pattern") {
      return fields.fail(kName, fmt::format("\"{}\" is not supported", key));
    } else if (!key.starts_with("disable_") && !key.starts_with("_")) {  // vLLM: of its back ends
      return fields.fail(kName,
                         "members are \"json\", \"regex\", \"choice\", \"grammar\" and "
                         "\"json_object\"");
    }
  }
}

std::vector<Wanted> read_wanted(FieldReader& fields) {
  std::vector<Wanted> out;
  read_response_format(fields, out);
  for (const std::string_view kind : {"json", "regex", "choice", "grammar"}) {
    const std::string name = fmt::format("guided_{}", kind);
    const Json* value = fields.find(name);
    if (value == nullptr || !fields.ok()) continue;
    if (auto shape = read_shape(fields, name, kind, *value)) {
      out.push_back({name, *std::move(shape)});
    }
  }
  read_structured_outputs(fields, out);
  fields.refuse({"guided_whitespace_pattern"});
  fields.ignore({"guided_decoding_backend"});
  return out;
}

// One call of a function as the model's family writes it.
Result<ExprId> call_expr(Grammar& g, ToolDialect dialect, const Json& function) {
  std::string name = "\"name\": ";
  append_json_string(name, function["name"].get<std::string>());
  const bool llama = dialect == ToolDialect::llama3_json;
  const Json open = {{"type", "object"}};
  const Json& parameters = function.contains("parameters") && !function["parameters"].is_null()
                               ? function["parameters"]
                               : open;
  PF_ASSIGN(const ExprId arguments, grammar::schema_expr(g, parameters));
  return g.seq({g.literal("{" + name + (llama ? ", \"parameters\": " : ", \"arguments\": ")),
                arguments, g.literal("}")});
}

Result<ExprId> calls_expr(Grammar& g, ToolDialect dialect, const std::vector<Json>& functions,
                          bool several) {
  std::vector<ExprId> one;
  for (const Json& function : functions) {
    PF_ASSIGN(const ExprId call, call_expr(g, dialect, function));
    one.push_back(call);
  }
  ExprId call = g.alt(std::move(one));
  if (dialect == ToolDialect::hermes) {
    call = g.seq({g.literal("<tool_call>\n"), call, g.literal("\n</tool_call>")});
  }
  call = g.call_of(call);
  const std::string_view between = dialect == ToolDialect::hermes        ? "\n"
                                   : dialect == ToolDialect::llama3_json ? "; "
                                                                         : ", ";
  if (several) {
    call = g.seq({call, g.repeat(g.seq({g.literal(between), call}), 0, 31)});
  }
  if (dialect != ToolDialect::mistral) return call;
  return g.seq({g.literal("[TOOL_CALLS]["), call, g.literal("]")});
}

struct ToolChoice {
  enum class Kind : char { none, automatic, required } kind = Kind::none;
  std::vector<Json> functions;  // that may be called
};

ToolChoice read_tool_choice(FieldReader& fields) {
  ToolChoice out;
  const Json* tools = fields.find_array("tools");
  const Json* choice = fields.find("tool_choice");
  if (!fields.ok() || tools == nullptr || (choice != nullptr && *choice == Json("none")))
    return out;
  if (tools->size() > kMaxTools) {
    fields.fail("tools", fmt::format("at most {} are accepted", kMaxTools));
    return out;
  }
  std::string wanted;
  if (choice != nullptr && choice->is_object()) {
    const auto function = choice->find("function");
    if (function != choice->end() && function->is_object() && function->contains("name") &&
        (*function)["name"].is_string()) {
      wanted = (*function)["name"].get<std::string>();
    }
  }
  for (const Json& tool : *tools) {
    const Json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string() ||
        function["name"].get_ref<const std::string&>().empty()) {
      fields.fail("tools", "each function needs a \"name\"");
      return out;
    }
    if (wanted.empty() || function["name"] == Json(wanted)) out.functions.push_back(function);
  }
  const bool named = choice != nullptr && choice->is_object();
  if (named && (wanted.empty() || out.functions.empty())) {
    fields.fail("tool_choice", "must name one of the functions in \"tools\"");
    return out;
  }
  out.kind = named || (choice != nullptr && *choice == Json("required"))
                 ? ToolChoice::Kind::required
                 : ToolChoice::Kind::automatic;
  return out;
}

// Reasoning comes first, then what is wanted.
AnswerShape after_reasoning(AnswerShape shape, bool open) {
  shape.key = (open ? "think-open " : "think ") + shape.key;
  shape.build = [inner = std::move(shape.build), open](Grammar& g) -> Result<ExprId> {
    PF_ASSIGN(const ExprId rest, inner(g));
    grammar::ByteSet space;
    space.set(' ').set('\n');
    const ExprId gap = g.repeat(g.bytes(space), 0, 4);
    const ExprId thought = g.seq({g.until("</think>"), gap});
    const ExprId before = open ? thought : g.optional(g.seq({g.literal("<think>"), thought}));
    return g.seq({before, rest});
  };
  return shape;
}

// How the end of the prompt leaves the reasoning.
void set_reasoning(const ApiModel& model, CompletionRequest& out) {
  // An answer that continues a message is behind its reasoning.
  if (model.reasoning == ReasoningDialect::none || !out.at_text_start) return;
  const auto& tokens = out.prompts.front().tokens;
  const size_t n = std::min<size_t>(tokens.size(), 24);
  std::string tail = model.tokenizer->decode(std::span(tokens).last(n), false);
  tail.resize(tail.find_last_not_of(" \r\n\t") + 1);
  if (tail.ends_with("</think>")) return;
  out.format.reasoning = true;
  out.format.reasoning_open =
      tail.ends_with("<think>") || model.reasoning == ReasoningDialect::deepseek_r1;
}

}  // namespace

void read_answer_format(FieldReader& fields, const ApiModel& model, CompletionRequest& out) {
  std::vector<Wanted> wanted = read_wanted(fields);
  if (out.chat) {
    bool several = true;
    fields.read("parallel_tool_calls", several);
    const ToolChoice tools = read_tool_choice(fields);
    if (!fields.ok()) return;
    const ToolDialect dialect =
        model.tools == ToolDialect::none ? ToolDialect::hermes : model.tools;
    if (tools.kind == ToolChoice::Kind::required) {
      const bool one = fields.find("tool_choice")->is_object() || !several;
      std::string key = fmt::format("calls {} {}", static_cast<int>(dialect), one);
      for (const Json& f : tools.functions) key += dump_json(f);
      wanted.push_back(
          {"tools", {std::move(key), [dialect, one, functions = tools.functions](Grammar& g) {
                       return calls_expr(g, dialect, functions, !one);
                     }}});
      out.format.tools = dialect;
    } else if (tools.kind == ToolChoice::Kind::automatic && model.auto_tools) {
      out.format.tools = dialect;
    }
    set_reasoning(model, out);
  }
  if (!fields.ok() || wanted.empty()) return;
  if (wanted.size() > 1) {
    return fields.fail(wanted[1].field, "only one form can be asked of an answer");
  }
  if (model.grammars == nullptr) {
    return fields.fail(wanted[0].field, "this server does not constrain answers");
  }
  AnswerShape shape = std::move(wanted[0].shape);
  if (out.format.reasoning) {
    shape = after_reasoning(std::move(shape), out.format.reasoning_open);
  }
  auto made = model.grammars->get(shape);
  if (!made.ok()) return fields.fail(wanted[0].field, message_of(made.status()));
  out.grammar = *std::move(made);
}

}  // namespace pagefold
