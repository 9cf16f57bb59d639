#include "base/kv_format.h"

#include <algorithm>

namespace pagefold {
namespace {

Result<DType> kv_word(const std::string& word, DType automatic, std::string_view option) {
  if (word == "auto") return automatic;
  auto parsed = parse_kv_dtype(word);
  if (!parsed.ok()) return with_context(parsed.status(), option);
  return *parsed;
}

bool all_one(const std::vector<float>& scales) {
  return std::all_of(scales.begin(), scales.end(), [](float s) { return s == 1.0f; });
}

}  // namespace

std::string KvFormat::name() const {
  std::string out(dtype_name(k));
  if (v != k) out = fmt::format("k {}, v {}", dtype_name(k), dtype_name(v));
  if (group != 0) out += fmt::format(", groups of {}", group);
  return out;
}

Result<KvFormat> resolve_kv_format(const KvTypeWords& words, DType automatic,
                                   const KvRecipe& recipe) {
  KvFormat f;
  PF_ASSIGN(f.k, kv_word(words.k, recipe.dtype.value_or(automatic), "--kv-cache-dtype"));
  PF_ASSIGN(f.v, kv_word(words.v, f.k, "--kv-cache-dtype-v"));
  const int group = kv_group_of(words.group, f.k);
  if (group != 0 && group != 32) {
    return bad_input("--kv-cache-group: must be auto, 0 (a scale a token and head) or 32, got {}",
                     group);
  }
  if (group != 0 && !dtype_has_scales(f.k) && !dtype_has_scales(f.v)) {
    return bad_input(
        "--kv-cache-group {}: only int8 and int4 caches have scales, this one is {}; leave it out, "
        "or use --kv-cache-dtype int8",
        group, f.name());
  }
  f = KvFormat(f.k, f.v, group);
  if (dtype_is_fp8(f.k)) f.k_scale = recipe.k_scale;
  if (dtype_is_fp8(f.v)) f.v_scale = recipe.v_scale;
  return f;
}

std::string kv_format_warning(const KvFormat& f) {
  if (f.k == DType::int4 && f.group == 0) {
    return "keys in int4 with one scale a head are too little for some small models: long answers "
           "may repeat themselves; --kv-cache-group 32 (what auto means for int4), or "
           "--kv-cache-dtype int8 with --kv-cache-dtype-v int4, loses less (docs/precision.md)";
  }
  const bool k = f.k == DType::fp8_e4m3 && all_one(f.k_scale);
  const bool v = f.v == DType::fp8_e4m3 && all_one(f.v_scale);
  if (!k && !v) return {};
  return fmt::format(
      "the {} cache is fp8_e4m3 with a scale of 1.0, as the checkpoint has no {}: values beyond "
      "448 are cut off, which may cost accuracy",
      k && v ? "KV"
      : k    ? "key"
             : "value",
      k && v ? "k_scale and v_scale"
      : k    ? "k_scale"
             : "v_scale");
}

}  // namespace pagefold
