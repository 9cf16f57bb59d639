#include "model/quant/grouped_source.h"

#include <absl/strings/str_join.h>

#include <cmath>
#include <numeric>

#include "formats/quant/fp8.h"

namespace pagefold {

Result<const TensorInfo*> LayerTensors::required(std::string_view part) const {
  const TensorInfo* t = optional(part);
  if (t) return t;
  if (scheme.layout == WeightLayout::plain || where.empty())
    return bad_data("tensor '{}' is missing", name(part));
  return bad_data("tensor '{}' is missing; {} says that '{}' is quantised", name(part), where,
                  module);
}

Status expect_shape(const TensorInfo& t, const Shape& shape) {
  if (t.shape == shape) return ok_status();
  return bad_data("{}: tensor '{}' has shape [{}], expected [{}]", t.file, t.name,
                  absl::StrJoin(t.shape, ", "), absl::StrJoin(shape, ", "));
}

Status expect_type(const TensorInfo& t, std::initializer_list<TensorType> types) {
  std::string known;
  for (const TensorType type : types) {
    if (t.type == type) return ok_status();
    known += fmt::format("{}{}", known.empty() ? "" : ", ", tensor_type_info(type).name);
  }
  return bad_data("{}: tensor '{}' has type {}, expected {}", t.file, t.name,
                  tensor_type_info(t.type).name, known);
}

Status tensor_error(const TensorInfo& t, const Status& what) {
  return with_context(what, fmt::format("{}: tensor '{}'", t.file, t.name));
}

Result<ScaleFacts> check_scales(const TensorInfo& t) {
  PF_TRY(expect_type(t, {TensorType::F16, TensorType::BF16, TensorType::F32}));
  const ScaleFacts facts = scale_facts(t.type, t.data.data(), t.elements());
  if (facts.first_bad < 0) return facts;
  const float bad = plain_value(t.type, t.data.data(), facts.first_bad);
  return tensor_error(t, bad_data("number {} is {}, expected a finite one of at most {}",
                                  facts.first_bad, bad, kMostScale));
}

Status check_positive(const TensorInfo& t) {
  PF_TRY(check_scales(t).status());
  for (int64_t i = 0; i < t.elements(); ++i) {
    const float v = plain_value(t.type, t.data.data(), i);
    if (!(v > 0)) return tensor_error(t, bad_data("a scale is {}, expected a positive number", v));
  }
  return ok_status();
}

Result<int> packed_group(const LayerTensors& l, int64_t group) {
  const int64_t shared = group < 0 ? l.n_in : std::gcd(group, l.n_in);
  if (shared % 32 == 0) return static_cast<int>(shared);
  if (shared % 16 == 0) return 16;
  return unsupported(
      "'{}': groups of {} weights in rows of {} are not supported; known: multiples of 16",
      l.module, group, l.n_in);
}

void GroupedSource::row_f32(int64_t row, float* out) const {
  const auto n = static_cast<size_t>(n_in_), group = static_cast<size_t>(quant_.group);
  std::vector<int8_t> q(n);
  std::vector<float> scale(groups()), zero(groups(), 0.0f);
  row_quant(row, q.data(), scale.data(), zero.data());
  for (size_t i = 0; i < n; ++i) {
    float x = static_cast<float>(q[i]);
    if (quant_.values == QuantValues::table) x = quant_.table[static_cast<size_t>(q[i])];
    if (quant_.values == QuantValues::fp8) x = fp8_e4m3_value(static_cast<uint8_t>(q[i]));
    out[i] = (x - zero[i / group]) * scale[i / group];
  }
}

}  // namespace pagefold
