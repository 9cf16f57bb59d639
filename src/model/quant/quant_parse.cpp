#include "model/quant/quant_parse.h"

#include <algorithm>
#include <cctype>

#include "model/json_fields.h"

namespace pagefold {
namespace {

constexpr size_t kMaxModules = 100000;

Result<int64_t> group_field(const JsonFields& f, std::string_view key, std::string_view where,
                            int64_t fallback) {
  PF_ASSIGN(const int64_t group, f.integer(key, fallback));
  if (group == -1 || (group >= 1 && group <= (1 << 24))) return group;
  return bad_data("{}: {} is {}, expected -1 (a whole row) or a positive number", where, key,
                  group);
}

Status one_of(std::string_view where, std::string_view what, int64_t bits,
              std::initializer_list<int> known) {
  if (std::find(known.begin(), known.end(), bits) != known.end()) return ok_status();
  std::string list;
  for (const int k : known) list += fmt::format("{}{}", list.empty() ? "" : ", ", k);
  return unsupported("{}: {} of {} bits is not supported; known: {}", where, what, bits, list);
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

Result<std::vector<ModuleMatcher>> parse_modules(const Json& object, std::string_view key,
                                                 std::string_view where,
                                                 const std::shared_ptr<PatternWork>& work) {
  std::vector<ModuleMatcher> out;
  const JsonFields f(object, where);
  const Json* list = f.get(key);
  if (!list) return out;
  if (!list->is_array()) return f.wrong(key, "a list of names", *list);
  if (list->size() > kMaxModules) return bad_data("{}: '{}' has too many entries", where, key);
  for (const Json& entry : *list) {
    if (!entry.is_string()) return f.wrong(key, "a list of names", entry);
    auto matcher = ModuleMatcher::parse(entry.get<std::string>(), work);
    if (!matcher.ok()) return with_context(matcher.status(), fmt::format("{}: {}", where, key));
    out.push_back(*std::move(matcher));
  }
  return out;
}

Result<QuantConfig> parse_awq_config(const Json& object, std::string_view where) {
  const JsonFields f(object, where);
  QuantConfig c;
  c.scheme.layout = WeightLayout::awq;
  PF_ASSIGN(const int64_t w_bit, f.integer("w_bit", 4));
  PF_ASSIGN(const int64_t bits, f.integer("bits", w_bit));
  PF_TRY(one_of(where, "AWQ", bits, {4}));
  c.scheme.bits = 4;
  PF_ASSIGN(const int64_t old_group, group_field(f, "q_group_size", where, 128));
  PF_ASSIGN(c.scheme.group, group_field(f, "group_size", where, old_group));
  PF_ASSIGN(const std::string version, f.text("version", "gemm"));
  if (lower_case(version) != "gemm")
    return unsupported("{}: AWQ layout '{}' is not supported; known: gemm", where, version);
  PF_ASSIGN(const bool zero_point, f.boolean("zero_point", true));
  if (!zero_point)
    return unsupported("{}: AWQ without zero points (zero_point false) is not supported", where);
  PF_ASSIGN(c.skipped, parse_modules(object, "modules_to_not_convert", where, c.work));
  return c;
}

namespace {

Status gptq_fields(const JsonFields& f, std::string_view where, WeightScheme& s) {
  PF_ASSIGN(const int64_t bits, f.integer("bits", s.bits));
  PF_TRY(one_of(where, "GPTQ", bits, {2, 3, 4, 8}));
  s.bits = static_cast<int>(bits);
  PF_ASSIGN(s.group, group_field(f, "group_size", where, s.group));
  PF_ASSIGN(s.symmetric, f.boolean("sym", s.symmetric));
  PF_ASSIGN(s.act_order, f.boolean("desc_act", s.act_order));
  return ok_status();
}

// Keys are patterns: "-:PATTERN" leaves a module as it is, others override fields.
Status gptq_dynamic(const JsonFields& f, std::string_view where, QuantConfig& c) {
  const Json* dynamic = f.get("dynamic");
  if (!dynamic) return ok_status();
  if (!dynamic->is_object()) return f.wrong("dynamic", "an object", *dynamic);
  if (dynamic->size() > kMaxModules) return bad_data("{}: 'dynamic' has too many entries", where);
  for (const auto& [key, value] : dynamic->items()) {
    const std::string place = fmt::format("{}: dynamic", where);
    std::string_view pattern = key;
    const bool skip = pattern.starts_with("-:");
    if (skip || pattern.starts_with("+:")) pattern.remove_prefix(2);
    QuantConfig::Rule rule;
    auto matcher = ModuleMatcher::parse(fmt::format("re:{}", pattern), c.work);
    if (!matcher.ok()) return with_context(matcher.status(), place);
    rule.targets.push_back(*std::move(matcher));
    if (!skip) {
      if (!value.is_object()) return f.wrong("dynamic", "an object of objects", value);
      rule.scheme = c.scheme;
      PF_TRY(gptq_fields(JsonFields(value, place), place, rule.scheme));
    }
    c.rules.push_back(std::move(rule));
  }
  return ok_status();
}

}  // namespace

Result<QuantConfig> parse_gptq_config(const Json& object, std::string_view where) {
  const JsonFields f(object, where);
  QuantConfig c;
  c.scheme.layout = WeightLayout::gptq;
  PF_ASSIGN(const int64_t bits, f.required("bits"));
  PF_ASSIGN(const int64_t group, f.required("group_size"));
  (void)bits, (void)group;  // read below; here they must be there
  c.scheme.symmetric = true;
  PF_TRY(gptq_fields(f, where, c.scheme));
  PF_ASSIGN(const std::string format, f.text("checkpoint_format", "gptq"));
  PF_ASSIGN(const bool marlin, f.boolean("is_marlin_format", false));
  if (marlin || (format != "gptq" && format != "gptq_v2")) {
    return unsupported("{}: checkpoint_format '{}' is not supported; known: gptq, gptq_v2", where,
                       marlin ? "marlin" : format);
  }
  c.scheme.zeros_minus_one = format == "gptq";
  PF_TRY(gptq_dynamic(f, where, c));
  PF_ASSIGN(const bool head, f.boolean("lm_head", false));
  PF_ASSIGN(c.skipped, parse_modules(object, "modules_to_not_convert", where, c.work));
  if (!head && c.rules.empty()) {
    PF_ASSIGN(ModuleMatcher lm_head, ModuleMatcher::parse("lm_head", c.work));
    c.skipped.push_back(std::move(lm_head));
  }
  return c;
}

Result<QuantConfig> parse_fp8_config(const Json& object, std::string_view where) {
  const JsonFields f(object, where);
  QuantConfig c;
  c.scheme.layout = WeightLayout::fp8;
  PF_ASSIGN(const std::string activations, f.text("activation_scheme", "dynamic"));
  if (activations != "dynamic" && activations != "static") {
    return bad_data("{}: activation_scheme '{}' is unknown; known: dynamic, static", where,
                    activations);
  }
  PF_ASSIGN(const std::string format, f.text("fmt", "e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn")
    return unsupported("{}: fp8 weights of fmt '{}' are not supported; known: e4m3", where, format);
  if (const Json* block = f.get("weight_block_size")) {
    const auto side = [&](size_t i) -> int64_t {
      if (!block->is_array() || block->size() != 2 || !(*block)[i].is_number_integer()) return 0;
      const Json& v = (*block)[i];
      return v >= 1 && v <= (1 << 24) ? v.get<int64_t>() : 0;
    };
    c.scheme.block_out = side(0);
    c.scheme.block_in = side(1);
    if (c.scheme.block_out == 0 || c.scheme.block_in == 0)
      return bad_data("{}: 'weight_block_size' must be two positive numbers", where);
    if (activations != "dynamic")
      return bad_data("{}: fp8 in blocks goes with dynamic activations only", where);
  }
  PF_ASSIGN(c.skipped, parse_modules(object, "ignored_layers", where, c.work));
  PF_ASSIGN(const std::vector<ModuleMatcher> more,
            parse_modules(object, "modules_to_not_convert", where, c.work));
  c.skipped.insert(c.skipped.end(), more.begin(), more.end());
  return c;
}

Result<QuantConfig> parse_bitsandbytes_config(const Json& object, std::string_view where) {
  const JsonFields f(object, where);
  QuantConfig c;
  PF_ASSIGN(const bool old4, f.boolean("_load_in_4bit", false));
  PF_ASSIGN(const bool old8, f.boolean("_load_in_8bit", false));
  PF_ASSIGN(const bool four, f.boolean("load_in_4bit", old4));
  PF_ASSIGN(const bool eight, f.boolean("load_in_8bit", old8));
  if (four == eight)
    return bad_data("{}: one of load_in_4bit and load_in_8bit must be true", where);
  c.scheme.layout = four ? WeightLayout::bnb4 : WeightLayout::bnb8;
  c.scheme.bits = four ? 4 : 8;
  PF_ASSIGN(const std::string type, f.text("bnb_4bit_quant_type", "fp4"));
  if (four && type != "nf4" && type != "fp4") {
    return unsupported("{}: bnb_4bit_quant_type '{}' is not supported; known: nf4, fp4", where,
                       type);
  }
  PF_ASSIGN(c.skipped, parse_modules(object, "llm_int8_skip_modules", where, c.work));
  return c;
}

}  // namespace pagefold
