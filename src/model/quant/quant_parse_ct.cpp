// compressed-tensors: config_groups name the modules (targets) and how each group is stored.
#include "model/json_fields.h"
#include "model/quant/quant_parse.h"

namespace pagefold {
namespace {

Result<WeightLayout> layout_of(const std::string& format, const std::string& type, bool inputs,
                               std::string_view where) {
  const bool floats = type == "float";
  if (format == "dense") return WeightLayout::plain;
  if (format == "pack-quantized" && !floats) return WeightLayout::ct_packed;
  if (format == "int-quantized" && !floats) return WeightLayout::int8;
  if (format == "float-quantized" && floats) return WeightLayout::fp8;
  if (format == "naive-quantized") return floats ? WeightLayout::fp8 : WeightLayout::int8;
  if (format.empty() || format == "mixed-precision") {
    if (floats) return WeightLayout::fp8;
    return inputs ? WeightLayout::int8 : WeightLayout::ct_packed;
  }
  return unsupported(
      "{}: format '{}' with weights of type '{}' is not supported; known: pack-quantized, "
      "int-quantized, float-quantized, naive-quantized",
      where, format, type);
}

Status read_strategy(const JsonFields& w, const Json& weights, std::string_view where,
                     WeightScheme& s) {
  PF_ASSIGN(const int64_t group, w.integer("group_size", -1));
  if (group != -1 && (group < 1 || group > (1 << 24)))
    return bad_data("{}: group_size is {}, expected a positive number", where, group);
  PF_ASSIGN(const std::string strategy, w.text("strategy", group > 0 ? "group" : "tensor"));
  if (strategy == "group") {
    if (group < 1) return bad_data("{}: strategy 'group' needs a group_size", where);
    s.group = group;
  } else if (strategy == "block") {
    const auto it = weights.find("block_structure");
    const bool pair = it != weights.end() && it->is_array() && it->size() == 2 &&
                      (*it)[0].is_number_integer() && (*it)[1].is_number_integer();
    if (!pair)
      return bad_data("{}: strategy 'block' needs a block_structure of two numbers", where);
    s.block_out = (*it)[0].get<int64_t>();
    s.block_in = (*it)[1].get<int64_t>();
    if (s.block_out < 1 || s.block_in < 1 || s.block_out > (1 << 24) || s.block_in > (1 << 24))
      return bad_data("{}: block_structure is {} x {}", where, s.block_out, s.block_in);
    if (s.layout != WeightLayout::fp8)
      return unsupported("{}: strategy 'block' is supported for fp8 weights only", where);
  } else if (strategy != "tensor" && strategy != "channel") {
    return unsupported("{}: strategy '{}' is not supported; known: tensor, channel, group, block",
                       where, strategy);
  }
  return ok_status();
}

// Whether g_idx says which group an input is in. true and false are old spellings of group and
// null.
Result<bool> act_order(const JsonFields& w, std::string_view where) {
  const Json* order = w.get("actorder");
  if (!order || order->is_boolean()) return order && order->get<bool>();
  PF_ASSIGN(const std::string word, w.text("actorder", ""));
  if (word == "group" || word == "dynamic") return true;
  if (word == "weight" || word == "static") return false;
  return unsupported("{}: actorder '{}' is not supported; known: group, weight, dynamic, static",
                     where, word);
}

Result<WeightScheme> read_scheme(const Json& group, const std::string& outer,
                                 std::string_view where) {
  const JsonFields g(group, where);
  PF_ASSIGN(const std::string format, g.text("format", outer));
  const Json* weights = g.get("weights");
  WeightScheme s;
  if (!weights) return s;
  if (!weights->is_object()) return g.wrong("weights", "an object", *weights);
  const JsonFields w(*weights, where);
  PF_ASSIGN(const std::string type, w.text("type", "int"));
  PF_ASSIGN(const Json* inputs, g.object("input_activations"));
  PF_ASSIGN(s.layout, layout_of(format, type, inputs != nullptr, where));
  PF_ASSIGN(const int64_t bits, w.integer("num_bits", 8));
  const bool four = bits == 4 && s.layout == WeightLayout::ct_packed;
  if (s.layout != WeightLayout::plain && bits != 8 && !four) {
    return unsupported("{}: {} bit weights of type '{}' are not supported; known: 4 (packed), 8",
                       where, bits, type);
  }
  s.bits = static_cast<int>(bits);
  PF_ASSIGN(s.symmetric, w.boolean("symmetric", true));
  PF_TRY(read_strategy(w, *weights, where, s));
  PF_ASSIGN(s.act_order, act_order(w, where));
  s.int8_inputs = s.layout == WeightLayout::int8 && inputs != nullptr;
  return s;
}

// Class names stand for all linear layers; anything else names modules.
Status read_targets(const Json& group, std::string_view where,
                    const std::shared_ptr<PatternWork>& work, QuantConfig::Rule& rule) {
  const JsonFields g(group, where);
  const Json* targets = g.get("targets");
  if (!targets || !targets->is_array())
    return bad_data("{}: 'targets' must be a list of names", where);
  for (const Json& t : *targets) {
    if (t.is_string() && t.get<std::string>() == "Linear") rule.all_linear = true;
  }
  PF_ASSIGN(rule.targets, parse_modules(group, "targets", where, work));
  return ok_status();
}

Status refuse_transforms(const JsonFields& f, std::string_view where) {
  PF_ASSIGN(const Json* sparsity, f.object("sparsity_config"));
  if (sparsity) {
    PF_ASSIGN(const std::string format, JsonFields(*sparsity, where).text("format", "dense"));
    if (format != "dense")
      return unsupported("{}: sparse weights (format '{}') are not supported", where, format);
  }
  PF_ASSIGN(const Json* transform, f.object("transform_config"));
  if (transform && transform->contains("config_groups") && !(*transform)["config_groups"].empty())
    return unsupported("{}: transforms (transform_config) are not supported", where);
  return ok_status();
}

}  // namespace

Result<QuantConfig> parse_compressed_tensors_config(const Json& object, std::string_view where) {
  const JsonFields f(object, where);
  QuantConfig c;
  PF_ASSIGN(const std::string format, f.text("format", ""));
  PF_TRY(refuse_transforms(f, where));
  PF_ASSIGN(c.skipped, parse_modules(object, "ignore", where, c.work));
  const Json* groups = f.get("config_groups");
  if (!groups) return c;
  if (!groups->is_object() || groups->size() > 4096)
    return bad_data("{}: 'config_groups' must be an object of groups", where);
  // Names win over classes, so rules for classes go last.
  std::vector<QuantConfig::Rule> classes;
  for (const auto& [name, group] : groups->items()) {
    const std::string place = fmt::format("{}: config_groups.{}", where, name);
    if (!group.is_object()) return bad_data("{}: expected an object", place);
    QuantConfig::Rule rule;
    PF_TRY(read_targets(group, place, c.work, rule));
    PF_ASSIGN(rule.scheme, read_scheme(group, format, place));
    (rule.all_linear ? classes : c.rules).push_back(std::move(rule));
  }
  for (QuantConfig::Rule& rule : classes) c.rules.push_back(std::move(rule));
  return c;
}

}  // namespace pagefold
