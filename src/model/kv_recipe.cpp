#include "model/kv_recipe.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "formats/quant/plain_values.h"

namespace pagefold {
namespace {

constexpr std::string_view kPrefix = "model.layers.";
constexpr std::string_view kModule = ".self_attn.";

// Which scales of a layer a tensor gives.
struct ScaleName {
  int64_t layer = 0;
  bool k = false, v = false;
};

std::optional<ScaleName> scale_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  ScaleName s;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), s.layer);
  if (error != std::errc()) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (!name.starts_with(kModule)) return std::nullopt;
  name.remove_prefix(kModule.size() - 1);  // ".k_scale", ".attn.k_scale", ".k_proj.output_scale"
  const bool both = name.ends_with(".kv_scale");
  s.k = both || name.ends_with(".k_scale") || name == ".k_proj.output_scale";
  s.v = both || name.ends_with(".v_scale") || name == ".v_proj.output_scale";
  return s.k || s.v ? std::optional(s) : std::nullopt;
}

Result<float> scalar(const TensorInfo& t) {
  if (t.elements() != 1) {
    return unsupported("{}: tensor '{}' has {} numbers; only one KV scale a layer is supported",
                       t.file, t.name, t.elements());
  }
  float value = NAN;
  uint16_t bits = 0;
  switch (t.type) {
    case TensorType::F32:
      std::memcpy(&value, t.data.data(), sizeof value);
      break;
    case TensorType::F16:
      std::memcpy(&bits, t.data.data(), sizeof bits);
      value = f16_to_f32(bits);
      break;
    case TensorType::BF16:
      std::memcpy(&bits, t.data.data(), sizeof bits);
      value = bf16_to_f32(bits);
      break;
    default:
      return bad_data("{}: KV scale '{}' is {}, expected F32, F16 or BF16", t.file, t.name,
                      tensor_type_info(t.type).name);
  }
  // Outside of float16's numbers every key would be cut off, or stored as 0: damaged bytes. 0 and
  // below are placeholders.
  constexpr float kLeastScale = 0x1p-24f;
  if (!(std::abs(value) <= kMostScale) || (value > 0 && value < kLeastScale)) {
    return bad_data("{}: KV scale '{}' is {}, expected {:.1e} to {}", t.file, t.name, value,
                    kLeastScale, kMostScale);
  }
  return value;
}

bool is_fp8_scheme(const Json& scheme) {
  if (!scheme.is_object()) return false;
  const auto bits = scheme.find("num_bits"), type = scheme.find("type");
  return bits != scheme.end() && *bits == 8 && type != scheme.end() && *type == "float";
}

}  // namespace

Status read_kv_scheme(const Json& config, std::string_view where, KvRecipe& recipe) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    const auto object = config.find(name);
    if (object == config.end() || !object->is_object()) continue;
    const auto scheme = object->find("kv_cache_scheme");
    if (scheme == object->end() || scheme->is_null()) continue;
    // AutoFP8 writes "static": that there are scales, which are read from the tensors.
    if (*scheme == "static") continue;
    if (!is_fp8_scheme(*scheme)) {
      return unsupported(
          "{}: kv_cache_scheme must have num_bits 8 and type float, others are not supported; "
          "remove it from the file to choose with --kv-cache-dtype",
          where);
    }
    recipe.dtype = DType::fp8_e4m3;
  }
  return ok_status();
}

Status read_kv_scales(std::span<const TensorInfo> tensors, int n_layers, KvRecipe& recipe) {
  const auto n = static_cast<size_t>(n_layers);
  std::vector<float> k(n, -1.0f), v(n, -1.0f);
  bool any = false;
  for (const TensorInfo& t : tensors) {
    const auto name = scale_name(t.name);
    if (!name || name->layer < 0 || name->layer >= n_layers) continue;
    PF_ASSIGN(const float value, scalar(t));
    const auto layer = static_cast<size_t>(name->layer);
    if (!(value > 0)) continue;  // a placeholder
    any = true;
    if (name->k) k[layer] = value;
    if (name->v) v[layer] = value;
  }
  if (!any) return ok_status();
  for (size_t i = 0; i < n; ++i) {
    const float known = k[i] > 0 ? k[i] : v[i] > 0 ? v[i] : 1.0f;
    if (!(k[i] > 0)) k[i] = known;
    if (!(v[i] > 0)) v[i] = known;
  }
  recipe.k_scale = std::move(k);
  recipe.v_scale = std::move(v);
  return ok_status();
}

bool is_attention_scale(std::string_view name) {
  if (scale_name(name)) return true;
  return name.starts_with(kPrefix) && name.find(kModule) != std::string_view::npos &&
         (name.ends_with(".q_scale") || name.ends_with(".prob_scale") ||
          name.ends_with(".q_proj.output_scale"));
}

}  // namespace pagefold
