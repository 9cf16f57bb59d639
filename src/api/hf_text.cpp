#include "api/hf_text.h"

#include <cmath>
#include <type_traits>

#include "base/file.h"

namespace pagefold {
namespace {

constexpr size_t kMaxConfig = 8 << 20, kMaxTokenizer = 256 << 20;

// An absent optional file is "".
Result<std::string> optional_file(const std::filesystem::path& path, size_t limit) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return std::string{};
  return read_file(path, limit);
}

Result<Json> object_in(const std::string& text, const std::filesystem::path& path) {
  if (text.empty()) return Json::object();
  auto json = parse_json(text);
  if (!json.ok()) return with_context(json.status(), path.string());
  if (!json->is_object())
    return bad_data("{}: expected an object, not {}", path.string(), json_kind(*json));
  return json;
}

Status end_tokens(const Json& config, const std::filesystem::path& path,
                  std::vector<int32_t>& ids) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return ok_status();
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return bad_data("{}: 'eos_token_id' must hold token ids", path.string());
    }
    ids.push_back(id.get<int32_t>());
  }
  return ok_status();
}

template <class T>
Status number(const Json& config, const std::filesystem::path& path, const char* key,
              std::optional<T>& out) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return ok_status();
  constexpr bool kWhole = std::is_integral_v<T>;
  if (kWhole ? !it->is_number_integer() : !it->is_number()) {
    return bad_data("{}: '{}' must be {}, not {}", path.string(), key,
                    kWhole ? "an integer" : "a number", json_kind(*it));
  }
  const double v = it->get<double>();
  if (std::abs(v) > 1e9)  // no setting is as large; a cast might not hold it
    return bad_data("{}: '{}' is out of range", path.string(), key);
  out = static_cast<T>(v);
  return ok_status();
}

Status generation_defaults(const Json& config, const std::filesystem::path& path,
                           GenerationDefaults& d) {
  PF_TRY(number(config, path, "temperature", d.temperature));
  PF_TRY(number(config, path, "top_p", d.top_p));
  PF_TRY(number(config, path, "min_p", d.min_p));
  PF_TRY(number(config, path, "repetition_penalty", d.repetition_penalty));
  PF_TRY(number(config, path, "top_k", d.top_k));
  return number(config, path, "max_new_tokens", d.max_new_tokens);
}

// A string, or a list of {name, template} of which "default" is for chat.
std::string template_of(const Json& config) {
  const auto it = config.find("chat_template");
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return "";
  for (const Json& t : *it) {
    if (t.is_object() && t.value("name", Json()) == "default" && t.contains("template") &&
        t["template"].is_string()) {
      return t["template"].get<std::string>();
    }
  }
  return "";
}

}  // namespace

Result<HfText> read_hf_text(const std::filesystem::path& folder) {
  HfText t;
  PF_ASSIGN(t.tokenizer_json, read_file(folder / "tokenizer.json", kMaxTokenizer));
  const auto tokenizer_config = folder / "tokenizer_config.json";
  PF_ASSIGN(t.tokenizer_config, optional_file(tokenizer_config, kMaxConfig));
  PF_ASSIGN(const Json config, object_in(t.tokenizer_config, tokenizer_config));
  PF_ASSIGN(t.chat_template, optional_file(folder / "chat_template.jinja", kMaxConfig));
  if (t.chat_template.empty()) t.chat_template = template_of(config);

  const auto generation_path = folder / "generation_config.json";
  PF_ASSIGN(const std::string generation_text, optional_file(generation_path, kMaxConfig));
  PF_ASSIGN(const Json generation, object_in(generation_text, generation_path));
  PF_TRY(end_tokens(generation, generation_path, t.eos_token_ids));
  PF_TRY(generation_defaults(generation, generation_path, t.defaults));
  if (t.eos_token_ids.empty()) {
    const auto model_path = folder / "config.json";
    PF_ASSIGN(const std::string model_text, read_file(model_path, kMaxConfig));
    PF_ASSIGN(const Json model, object_in(model_text, model_path));
    PF_TRY(end_tokens(model, model_path, t.eos_token_ids));
  }
  return t;
}

}  // namespace pagefold
