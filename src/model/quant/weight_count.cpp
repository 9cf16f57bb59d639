#include "model/quant/weight_count.h"

#include <array>

#include "model/kv_recipe.h"

namespace pagefold {
namespace {

constexpr std::array<std::string_view, 13> kSideData = {
    ".qzeros",        ".scales",           ".g_idx",
    ".weight_scale",  ".weight_scale_inv", ".weight_zero_point",
    ".weight_shape",  ".weight_g_idx",     ".input_scale",
    ".SCB",           ".weight_format",    ".input_zero_point",
    ".input_scale_ub"};

bool is_side_data(std::string_view name) {
  for (const std::string_view end : kSideData) {
    if (name.ends_with(end)) return true;
  }
  return name.find(".weight.") != std::string_view::npos || is_attention_scale(name);
}

}  // namespace

int64_t weights_in(const TensorInfo& t, const QuantConfig& quant) {
  if (quant.method == QuantMethod::none || quant.method == QuantMethod::gguf) return t.elements();
  if (is_side_data(t.name)) return 0;
  const size_t dot = t.name.rfind('.');
  const std::string_view module = std::string_view(t.name).substr(0, dot == t.name.npos ? 0 : dot);
  const bool packed = t.name.ends_with(".qweight") || t.name.ends_with(".weight_packed");
  const bool halves = quant.scheme.layout == WeightLayout::bnb4 && t.shape.size() == 2 &&
                      t.shape[1] == 1 && t.name.ends_with(".weight");
  if (halves) return static_cast<int64_t>(t.data.size()) * 2;
  if (!packed) return t.elements();
  const auto scheme = quant.scheme_of(module);
  const int bits = scheme.ok() && scheme->bits > 0 ? scheme->bits : 4;
  return static_cast<int64_t>(t.data.size()) * 8 / bits;
}

}  // namespace pagefold
