#include "model/quant/quant_config.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "model/json_fields.h"
#include "model/quant/quant_parse.h"

namespace pagefold {
namespace {

struct MethodName {
  std::string_view name;
  QuantMethod method;
};
// The first name of a method is its own.
constexpr std::array<MethodName, 22> kMethods = {{
    {"none", QuantMethod::none},
    {"gguf", QuantMethod::gguf},
    {"awq", QuantMethod::awq},
    {"awq_marlin", QuantMethod::awq},
    {"auto_awq", QuantMethod::awq},
    {"cpu_awq", QuantMethod::awq},
    {"gptq", QuantMethod::gptq},
    {"gptq_marlin", QuantMethod::gptq},
    {"auto_gptq", QuantMethod::gptq},
    {"gptq_v2", QuantMethod::gptq},
    {"gptq_bitblas", QuantMethod::gptq},
    {"marlin", QuantMethod::gptq},
    {"cpu_gptq", QuantMethod::gptq},
    {"compressed-tensors", QuantMethod::compressed_tensors},
    {"compressed_tensors", QuantMethod::compressed_tensors},
    {"fp8", QuantMethod::fp8},
    {"fbgemm_fp8", QuantMethod::fp8},
    {"bitsandbytes", QuantMethod::bitsandbytes},
    {"bnb", QuantMethod::bitsandbytes},
    {"bitsandbytes_4bit", QuantMethod::bitsandbytes},
    {"bitsandbytes_8bit", QuantMethod::bitsandbytes},
    {"auto_bnb", QuantMethod::bitsandbytes},
}};
constexpr std::string_view kKnown = "awq, gptq, compressed-tensors, fp8, bitsandbytes, gguf";

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Old files leave the method out: AWQ's have names of their own.
std::string_view guess_method(const Json& object) {
  const bool awq = object.contains("w_bit") || object.contains("q_group_size") ||
                   (object.contains("zero_point") && object.contains("version"));
  return awq ? "awq" : "";
}

Result<QuantConfig> dispatch(QuantMethod method, const Json& object, std::string_view where) {
  switch (method) {
    case QuantMethod::awq:
      return parse_awq_config(object, where);
    case QuantMethod::gptq:
      return parse_gptq_config(object, where);
    case QuantMethod::compressed_tensors:
      return parse_compressed_tensors_config(object, where);
    case QuantMethod::fp8:
      return parse_fp8_config(object, where);
    case QuantMethod::bitsandbytes:
      return parse_bitsandbytes_config(object, where);
    case QuantMethod::none:
    case QuantMethod::gguf:
      break;
  }
  return unsupported("{}: quant_method '{}' does not belong into a checkpoint folder", where,
                     quant_method_name(method));
}

std::string layout_text(const WeightScheme& s) {
  const std::string groups =
      s.group > 0 ? fmt::format("groups of {}", s.group) : std::string("one scale a row");
  switch (s.layout) {
    case WeightLayout::plain:
      return "unquantised";
    case WeightLayout::awq:
    case WeightLayout::gptq:
    case WeightLayout::ct_packed:
      return fmt::format("{} bit, {}{}", s.bits, groups, s.act_order ? ", act-order" : "");
    case WeightLayout::int8:
      return "int8 weights and activations";
    case WeightLayout::fp8:
      return s.block_out > 0 ? fmt::format("e4m3, blocks of {} x {}", s.block_out, s.block_in)
                             : "e4m3";
    case WeightLayout::bnb4:
      return "4 bit";
    case WeightLayout::bnb8:
      return "int8";
    case WeightLayout::to_fp8:
      return "e4m3, quantised while loading";
    case WeightLayout::to_nf4:
      return "nf4, quantised while loading";
  }
  return "?";
}

QuantConfig at_load(QuantMethod method, std::vector<ModuleMatcher> skipped) {
  QuantConfig c;
  c.method = method;
  c.where = fmt::format("--quantization {}", quant_method_name(method));
  c.scheme.layout = method == QuantMethod::fp8 ? WeightLayout::to_fp8 : WeightLayout::to_nf4;
  c.skipped = std::move(skipped);
  return c;
}

}  // namespace

std::string_view quant_method_name(QuantMethod method) {
  for (const MethodName& m : kMethods) {
    if (m.method == method) return m.name;
  }
  return "?";
}

std::optional<QuantMethod> find_quant_method(std::string_view name) {
  const std::string word = lower(name);
  for (const MethodName& m : kMethods) {
    if (m.name == word) return m.method;
  }
  return std::nullopt;
}

Result<WeightScheme> QuantConfig::scheme_of(std::string_view module) const {
  const auto any_of = [&](const std::vector<ModuleMatcher>& list) -> Result<bool> {
    for (const ModuleMatcher& m : list) {
      const auto found = m.matches(module);
      if (!found.ok()) return with_context(found.status(), where);
      if (*found) return true;
    }
    return false;
  };
  PF_ASSIGN(const bool skip, any_of(skipped));
  if (skip) return WeightScheme();
  for (const Rule& rule : rules) {
    PF_ASSIGN(const bool named, any_of(rule.targets));
    if (named || rule.all_linear) return rule.scheme;
  }
  return scheme;
}

std::string QuantConfig::description() const {
  std::string out(quant_method_name(method));
  if (method == QuantMethod::none || method == QuantMethod::gguf) return out;
  if (scheme.layout != WeightLayout::plain) return out + ", " + layout_text(scheme);
  for (const Rule& rule : rules) {
    if (rule.scheme.layout != WeightLayout::plain) return out + ", " + layout_text(rule.scheme);
  }
  return out;
}

Result<QuantConfig> parse_quant_config(const Json& object, std::string_view where,
                                       std::string_view fallback) {
  if (!object.is_object())
    return bad_data("{}: expected an object, not {}", where, json_kind(object));
  const JsonFields f(object, where);
  std::string_view guess = guess_method(object);
  if (guess.empty()) guess = fallback;
  PF_ASSIGN(const std::string name, f.text("quant_method", std::string(guess)));
  if (name.empty()) return bad_data("{}: field 'quant_method' is missing", where);
  const auto method = find_quant_method(name);
  if (!method) {
    return unsupported("{}: quant_method '{}' is not supported; known: {}", where, name, kKnown);
  }
  PF_ASSIGN(QuantConfig c, dispatch(*method, object, where));
  c.method = *method;
  c.where = where;
  return c;
}

Result<QuantConfig> quant_config_from_hf(const Json& config, std::string_view where) {
  std::vector<std::pair<const Json*, std::string>> places = {{&config, std::string(where)}};
  if (const auto it = config.find("text_config"); it != config.end() && it->is_object())
    places.emplace_back(&*it, fmt::format("{}: text_config", where));
  for (const auto& [object, place] : places) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      const auto it = object->find(key);
      if (it == object->end() || it->is_null()) continue;
      const bool sparse = std::string_view(key) == "compression_config";
      return parse_quant_config(*it, fmt::format("{}: {}", place, key),
                                sparse ? "compressed-tensors" : "");
    }
  }
  return QuantConfig();
}

Result<QuantConfig> choose_quantization(const std::string& word, QuantConfig checkpoint) {
  if (word.empty() || lower(word) == "auto") return checkpoint;
  const auto wanted = find_quant_method(word);
  if (!wanted) {
    return bad_input("--quantization: unknown method '{}'; known: auto, {}, none", word, kKnown);
  }
  if (*wanted == checkpoint.method) return checkpoint;
  if (checkpoint.method == QuantMethod::none) {
    const bool possible = *wanted == QuantMethod::fp8 || *wanted == QuantMethod::bitsandbytes;
    if (possible) return at_load(*wanted, std::move(checkpoint.skipped));
    return bad_input(
        "--quantization {}: the checkpoint is not quantised; leave the option out, or have it "
        "quantised while it loads with fp8 or bitsandbytes",
        word);
  }
  const std::string_view has = quant_method_name(checkpoint.method);
  return bad_input(
      "--quantization {}: the checkpoint's own method is {}, and the two do not agree; leave the "
      "option out or use --quantization {}",
      word, has, has);
}

}  // namespace pagefold
