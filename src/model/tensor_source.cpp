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
}
void TensorSource::row_quant(int64_t row, int8_t* q, float* scale, float* min) const {
  unpack_blocks(tensor_->type, row_bytes(row), n_in_, q, scale, min);
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
  return out;
}

}  // namespace pagefold
