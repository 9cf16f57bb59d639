#include "model/quant/kv_scales.h"

#include <array>
#include <cmath>

#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

constexpr std::array<std::string_view, 4> kKeyNames = {"k_scale", "attn.k_scale", "k_proj.k_scale",
                                                       "k_proj.output_scale"};
constexpr std::array<std::string_view, 4> kValueNames = {"v_scale", "attn.v_scale",
                                                         "v_proj.v_scale", "v_proj.output_scale"};

// 0: there is none.
Result<float> read_one(const FindTensor& find, const std::string& name) {
  const TensorInfo* t = find(name);
  if (!t) return 0.0f;
  if (t->elements() != 1) {
    return tensor_error(*t, unsupported("{} scales; one a layer is supported", t->elements()));
  }
  PF_TRY(check_scales(*t).status());
  const float value = plain_value(t->type, t->data.data(), 0);
  if (value == 0) return tensor_error(*t, bad_data("a scale of 0"));
  return std::max(value, 0.0f);  // -1: a placeholder
}

Result<float> read_first(const FindTensor& find, const std::string& prefix,
                         std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    PF_ASSIGN(const float value, read_one(find, prefix + std::string(name)));
    if (value > 0) return value;
  }
  return read_one(find, prefix + "kv_scale");
}

}  // namespace

Result<KvScales> read_kv_scales(const FindTensor& find, int n_layers) {
  KvScales s;
  bool any = false;
  for (int i = 0; i < n_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", i);
    PF_ASSIGN(float k, read_first(find, prefix, kKeyNames));
    PF_ASSIGN(float v, read_first(find, prefix, kValueNames));
    any = any || k > 0 || v > 0;
    if (k == 0) k = v;
    if (v == 0) v = k;
    s.k.push_back(k > 0 ? k : 1.0f);
    s.v.push_back(v > 0 ? v : 1.0f);
  }
  return any ? s : KvScales();
}

bool is_cache_scale(std::string_view name) {
  if (name.find(".self_attn.") == std::string_view::npos) return false;
  for (const char* end : {".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".prob_scale",
                          "k_proj.output_scale", "v_proj.output_scale", "q_proj.output_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace pagefold
