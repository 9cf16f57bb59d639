#include "quantize/tensor_output.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace pagefold {
namespace {

constexpr int64_t kRowsAtOnce = 256;

uint16_t to_16bit(DType dtype, float v) {
  return dtype == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
}

}  // namespace

TensorType tensor_type_of(DType dtype) {
  return dtype == DType::f32   ? TensorType::F32
         : dtype == DType::f16 ? TensorType::F16
                               : TensorType::BF16;
}

std::vector<std::byte> encode_plain(DType dtype, const float* values, int64_t n) {
  std::vector<std::byte> out(static_cast<size_t>(n) * dtype_bytes(dtype));
  if (dtype == DType::f32) {
    std::memcpy(out.data(), values, out.size());
    return out;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = to_16bit(dtype, values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

void round_to(DType dtype, float* values, int64_t n) {
  if (dtype == DType::f32) return;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = to_16bit(dtype, values[i]);
    values[i] = dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

Status copy_tensor(const SourceModel& source, const SourceTensor& t, DType dtype,
                   SafetensorsWriter& out) {
  PF_TRY(out.begin(t.name, tensor_type_of(dtype), t.shape));
  std::vector<float> rows(static_cast<size_t>(std::min(kRowsAtOnce, t.rows()) * t.cols()));
  for (int64_t at = 0; at < t.rows(); at += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, t.rows() - at);
    source.read_rows(t, at, n, rows.data());
    for (int64_t i = 0; dtype == DType::f16 && i < n * t.cols(); ++i) {
      if (std::isfinite(rows[static_cast<size_t>(i)]) &&
          std::abs(rows[static_cast<size_t>(i)]) >= 65520.0f) {
        return bad_input("tensor '{}' has a value of {}, beyond float16; use --dtype bfloat16",
                         t.name, rows[static_cast<size_t>(i)]);
      }
    }
    PF_TRY(out.write(encode_plain(dtype, rows.data(), n * t.cols())));
  }
  return out.end();
}

}  // namespace pagefold
