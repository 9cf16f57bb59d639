#include "model/quant/linear_source.h"

#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

LinearResult make_plain(const LayerTensors& l) {
  PF_ASSIGN(const TensorInfo* t, l.required("weight"));
  PF_ASSIGN(TensorSource source, TensorSource::make(*t, l.n_out, l.n_in));
  return std::make_unique<TensorSource>(source);
}

// The tensor that only a quantised layer has, for formats that leave out X.weight.
std::string_view marker_of(WeightLayout layout) {
  if (layout == WeightLayout::awq || layout == WeightLayout::gptq) return "qweight";
  return layout == WeightLayout::ct_packed ? "weight_packed" : "";
}

// The file has the layer in floats: no other tensor can say more.
bool is_plain_in_file(const LayerTensors& l) {
  const std::string_view marker = marker_of(l.scheme.layout);
  if (!marker.empty() && l.optional(marker)) return false;
  const TensorInfo* t = l.optional("weight");
  return t && is_plain_float(t->type) && t->shape == Shape{l.n_out, l.n_in};
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
  if (!at_load && is_plain_in_file(l)) return make_plain(l);
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
