#include "model/quant/linear_source.h"

#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

// What the config leaves out (or, without one, all) must be in floats or GGUF blocks.
Status codes_without_config(const LayerTensors& l, const TensorInfo& t) {
  const bool codes = t.type == TensorType::F8_E4M3 || t.type == TensorType::F8_E5M2 ||
                     t.type == TensorType::I8 || t.type == TensorType::U8;
  if (!codes) return ok_status();
  const std::string says =
      l.where.empty() ? std::string("config.json has no quantization_config that says how")
                      : fmt::format("{} leaves '{}' out of what is quantised", l.where, l.module);
  return bad_data("{}: tensor '{}' is quantised ({}), but {}", t.file, t.name,
                  tensor_type_info(t.type).name, says);
}

LinearResult make_plain(const LayerTensors& l) {
  PF_ASSIGN(const TensorInfo* t, l.required("weight"));
  PF_TRY(codes_without_config(l, *t));
  PF_ASSIGN(TensorSource source, TensorSource::make(*t, l.n_out, l.n_in));
  return std::make_unique<TensorSource>(source);
}

// What a quantised layer has in the place of plain numbers.
struct Sign {
  std::string_view tensor;  // below the module
  std::string_view type;    // of it, where the name alone says nothing
};
Sign sign_of(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::awq:
    case WeightLayout::gptq:
      return {"qweight", ""};
    case WeightLayout::ct_packed:
      return {"weight_packed", ""};
    case WeightLayout::fp8:
      return {"weight", "F8_E4M3"};
    case WeightLayout::bnb4:
      return {"weight", "U8"};
    case WeightLayout::int8:
    case WeightLayout::bnb8:
      return {"weight", "I8"};
    case WeightLayout::plain:
    case WeightLayout::to_fp8:
    case WeightLayout::to_nf4:
      break;
  }
  return {};
}

// X.weight, where the file has the layer in floats: no other tensor can say more. Null: it has not.
const TensorInfo* plain_in_file(const LayerTensors& l) {
  const Sign sign = sign_of(l.scheme.layout);
  if (sign.type.empty() && l.optional(sign.tensor)) return nullptr;
  const TensorInfo* t = l.optional("weight");
  const bool plain = t && is_plain_float(t->type) && t->shape == Shape{l.n_out, l.n_in};
  return plain ? t : nullptr;
}

// The config and the weights do not belong together. Guessing which of the two is right would make
// a model out of weights that were never quantised, or of ones that lost their scales.
Status plain_but_quantised(const LayerTensors& l, const TensorInfo& weight) {
  const Sign sign = sign_of(l.scheme.layout);
  const std::string wanted = sign.type.empty()
                                 ? fmt::format("no '{}' is there", l.name(sign.tensor))
                                 : fmt::format("it should be {}", sign.type);
  return bad_data(
      "'{}' is plain in the file ({}), but {} says that '{}' is quantised: {}; name it among the "
      "modules that are left out there, or remove that object if the weights are not quantised",
      weight.name, tensor_type_info(weight.type).name, l.where, l.module, wanted);
}

Status skipped_but_quantised(const LayerTensors& l) {
  if (l.where.empty() || l.optional("weight")) return ok_status();
  for (const char* part : {"qweight", "weight_packed"}) {
    if (l.optional(part)) {
      return bad_data("'{}' is quantised in the file (it has '{}'), but {} says that it is not",
                      l.module, part, l.where);
    }
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<LinearSource>> make_linear_source(const WeightScheme& scheme,
                                                         std::string_view where,
                                                         const std::string& module, int64_t n_out,
                                                         int64_t n_in, const FindTensor& find) {
  const LayerTensors l{scheme, where, module, n_out, n_in, find};
  const WeightLayout layout = scheme.layout;
  if (layout == WeightLayout::plain) {
    PF_TRY(skipped_but_quantised(l));
    return make_plain(l);
  }
  const bool at_load = layout == WeightLayout::to_fp8 || layout == WeightLayout::to_nf4;
  if (const TensorInfo* weight = at_load ? nullptr : plain_in_file(l)) {
    if (!scheme.maybe_plain) return plain_but_quantised(l, *weight);
    return make_plain(l);
  }
  if (n_in % 32 != 0) {
    return unsupported("'{}' has {} inputs; quantised layers need a multiple of 32", module, n_in);
  }
  switch (layout) {
    case WeightLayout::awq:
      return make_awq_source(l);
    case WeightLayout::gptq:
      return make_gptq_source(l);
    case WeightLayout::ct_packed:
      return make_ct_packed_source(l);
    case WeightLayout::int8:
    case WeightLayout::fp8:
      return make_scaled_source(l);
    case WeightLayout::bnb4:
      return make_bnb4_source(l);
    case WeightLayout::bnb8:
      return make_bnb8_source(l);
    default:
      return make_quantising_source(l);
  }
}

}  // namespace pagefold
