#include "model/quant/activation_choice.h"

#include "formats/quant/bitsandbytes.h"
#include "model/tensor_source.h"

namespace pagefold {
namespace {

// As much of a layer's source as the rule looks at; the sources themselves need the tensors.
QuantSource source_of(const WeightScheme& scheme) {
  QuantSource source{.wants_16bit = !scheme.int8_inputs};
  if (scheme.layout == WeightLayout::fp8 || scheme.layout == WeightLayout::to_fp8) {
    source.values = QuantValues::fp8;
  } else if (scheme.layout == WeightLayout::bnb4 || scheme.layout == WeightLayout::to_nf4) {
    source.bits = 4;
    source.values = QuantValues::table;
    source.table = nf4_table();
  }
  return source;
}

}  // namespace

Result<Activations> parse_activations(const std::string& word) {
  if (word == "auto") return Activations::automatic;
  if (word == "int8") return Activations::int8;
  if (word == "16") return Activations::bits16;
  return bad_input("--activations: unknown value '{}': use auto, 16 or int8", word);
}

Result<Activations> choose_activations(const QuantConfig& quant, std::span<const TensorType> types,
                                       Activations wanted) {
  std::vector<QuantSource> sources;
  const auto add = [&](const WeightScheme& scheme) {
    if (scheme.layout != WeightLayout::plain) sources.push_back(source_of(scheme));
  };
  add(quant.scheme);
  for (const QuantConfig::Rule& rule : quant.rules) add(rule.scheme);
  for (const TensorType type : types) {
    if (const auto source = block_source(type)) sources.push_back(*source);
  }
  Activations found = Activations::bits16;
  for (const QuantSource& source : sources) {
    PF_ASSIGN(const Activations a, resolve_activations(source, wanted));
    if (a == Activations::int8) found = a;
  }
  return found;
}

}  // namespace pagefold
