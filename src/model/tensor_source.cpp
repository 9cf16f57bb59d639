#include "model/tensor_source.h"

#include <absl/strings/str_join.h>

namespace pagefold {
namespace {

bool is_computable(TensorType t) {
  return t == TensorType::F32 || t == TensorType::F16 || t == TensorType::BF16 ||
         block_type_traits(t) != nullptr;
}

Status wrong_shape(const TensorInfo& t, std::string_view expected) {
  return bad_data("{}: tensor '{}' has shape [{}], expected {}", t.file, t.name,
                  absl::StrJoin(t.shape, ", "), expected);
}

bool all_finite(const float* x, int64_t n) {
  float sum = 0;  // of zeros, unless one is not finite
  for (int64_t i = 0; i < n; ++i) sum += x[i] * 0.0f;
  return sum == 0.0f;
}

}  // namespace

std::optional<QuantSource> block_source(TensorType type) {
  const BlockTypeTraits* b = block_type_traits(type);
  if (b == nullptr) return std::nullopt;
  QuantSource q{
      .bits = b->bits, .group = b->group, .has_min = b->has_min, .scale_f16 = b->scale_f16};
  if (b->table != nullptr) {
    q.values = QuantValues::table;
    q.table = *b->table;
  }
  return q;
}

Result<TensorSource> TensorSource::make(const TensorInfo& tensor, int64_t n_out, int64_t n_in) {
  if (tensor.shape != std::vector<int64_t>{n_out, n_in})
    return wrong_shape(tensor, fmt::format("[{}, {}]", n_out, n_in));
  const TensorTypeInfo& type = tensor_type_info(tensor.type);
  if (!is_computable(tensor.type)) {
    return unsupported("{}: tensor '{}' has type {}, which is not supported for weights",
                       tensor.file, tensor.name, type.name);
  }
  TensorSource s;
  s.tensor_ = &tensor;
  s.n_out_ = n_out;
  s.n_in_ = n_in;
  s.row_bytes_ = n_in / type.block_elements * type.block_bytes;
  if (const auto quant = block_source(tensor.type)) {
    s.is_quant_ = true;
    s.quant_ = *quant;
  }
  return s;
}

DType TensorSource::stored_dtype() const {
  if (tensor_->type == TensorType::F16) return DType::f16;
  if (tensor_->type == TensorType::BF16) return DType::bf16;
  return DType::f32;
}

void TensorSource::row_f32(int64_t row, float* out) const {
  dequantize(tensor_->type, row_bytes(row), n_in_, out);
  if (!all_finite(out, n_in_)) bad_.set(row);
}
void TensorSource::row_quant(int64_t row, int8_t* q, float* scale, float* min) const {
  unpack_blocks(tensor_->type, row_bytes(row), n_in_, q, scale, min);
  const int64_t groups = n_in_ / quant_.group;
  if (!all_finite(scale, groups) || (quant_.has_min && !all_finite(min, groups))) bad_.set(row);
}

Status TensorSource::after_read() const {
  if (bad_.get() < 0) return ok_status();
  return bad_data("{}: tensor '{}': row {} has a {} that is not finite", tensor_->file,
                  tensor_->name, bad_.get(), is_quant_ ? "scale" : "weight");
}

Result<std::vector<float>> read_vector(const TensorInfo& tensor, int64_t n) {
  if (tensor.shape != std::vector<int64_t>{n}) return wrong_shape(tensor, fmt::format("[{}]", n));
  if (tensor.type != TensorType::F32 && tensor.type != TensorType::F16 &&
      tensor.type != TensorType::BF16) {
    return unsupported("{}: tensor '{}' has type {}; vectors must be F32, F16 or BF16", tensor.file,
                       tensor.name, tensor_type_info(tensor.type).name);
  }
  std::vector<float> out(static_cast<size_t>(n));
  dequantize(tensor.type, tensor.data.data(), n, out.data());
  if (!all_finite(out.data(), n))
    return bad_data("{}: tensor '{}' has a number that is not finite", tensor.file, tensor.name);
  return out;
}

}  // namespace pagefold
