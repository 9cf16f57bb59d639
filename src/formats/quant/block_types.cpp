#include "formats/quant/block_types.h"

#include <algorithm>

#include "base/check.h"
#include "formats/quant/blocks.h"

namespace pagefold {
namespace {

using Unpack = void (*)(const uint8_t* in, int64_t n, int8_t* q, float* scale, float* min);

struct BlockType {
  BlockTypeTraits traits;
  Unpack unpack;
};

const BlockType* block_type(TensorType type) {
  static constexpr BlockType kQ4_0 = {{4, 32, true, true}, quant::unpack_q4_0};
  static constexpr BlockType kQ4_1 = {{4, 32, true, true}, quant::unpack_q4_1};
  static constexpr BlockType kQ5_0 = {{8, 32, false, true}, quant::unpack_q5_0};
  static constexpr BlockType kQ5_1 = {{8, 32, true, true}, quant::unpack_q5_1};
  static constexpr BlockType kQ8_0 = {{8, 32, false, true}, quant::unpack_q8_0};
  static constexpr BlockType kQ2_K = {{8, 16, true, false}, quant::unpack_q2_k};
  static constexpr BlockType kQ3_K = {{8, 16, false, false}, quant::unpack_q3_k};
  static constexpr BlockType kQ4_K = {{4, 32, true, false}, quant::unpack_q4_k};
  static constexpr BlockType kQ5_K = {{8, 32, true, false}, quant::unpack_q5_k};
  static constexpr BlockType kQ6_K = {{8, 16, false, false}, quant::unpack_q6_k};
  static constexpr BlockType kIQ4_NL = {{4, 32, false, true, &quant::kIq4Values},
                                        quant::unpack_iq4_nl};
  static constexpr BlockType kMXFP4 = {{4, 32, false, false, &quant::kMxfp4Values},
                                       quant::unpack_mxfp4};
  switch (type) {
    case TensorType::Q4_0:
      return &kQ4_0;
    case TensorType::Q4_1:
      return &kQ4_1;
    case TensorType::Q5_0:
      return &kQ5_0;
    case TensorType::Q5_1:
      return &kQ5_1;
    case TensorType::Q8_0:
      return &kQ8_0;
    case TensorType::Q2_K:
      return &kQ2_K;
    case TensorType::Q3_K:
      return &kQ3_K;
    case TensorType::Q4_K:
      return &kQ4_K;
    case TensorType::Q5_K:
      return &kQ5_K;
    case TensorType::Q6_K:
      return &kQ6_K;
    case TensorType::IQ4_NL:
      return &kIQ4_NL;
    case TensorType::MXFP4:
      return &kMXFP4;
    default:
      return nullptr;
  }
}

// One block at a time, on the stack.
void dequantize_blocks(const BlockType& type, const TensorTypeInfo& info, const uint8_t* in,
                       int64_t n, float* out) {
  int8_t q[256];
  float scale[16];
  float min[16] = {};
  const int size = info.block_elements;
  const std::array<float, 16>* table = type.traits.table;
  for (int64_t b = 0; b < n / size; ++b, in += info.block_bytes, out += size) {
    type.unpack(in, size, q, scale, min);
    const int group = type.traits.group;
    for (int g = 0; g < size / group; ++g) {
      for (int i = g * group; i < (g + 1) * group; ++i) {
        const float x = table ? (*table)[static_cast<size_t>(q[i])] : static_cast<float>(q[i]);
        const float value = x * scale[g];
        out[i] = type.traits.has_min ? value + min[g] : value;
      }
    }
  }
}

}  // namespace

const BlockTypeTraits* block_type_traits(TensorType type) {
  const BlockType* found = block_type(type);
  return found ? &found->traits : nullptr;
}

void unpack_blocks(TensorType type, const std::byte* bytes, int64_t n, int8_t* q, float* scale,
                   float* min) {
  const BlockType* found = block_type(type);
  PF_CHECK(found, "not a block type");
  PF_CHECK(n % tensor_type_info(type).block_elements == 0, "not whole blocks");
  found->unpack(reinterpret_cast<const uint8_t*>(bytes), n, q, scale, min);
}

void dequantize(TensorType type, const std::byte* bytes, int64_t n, float* out) {
  const auto* in = reinterpret_cast<const uint8_t*>(bytes);
  const TensorTypeInfo& info = tensor_type_info(type);
  PF_CHECK(n % info.block_elements == 0, "not whole blocks");
  if (const BlockType* found = block_type(type)) {
    return dequantize_blocks(*found, info, in, n, out);
  }
  switch (type) {
    case TensorType::F32:
      if (n > 0) std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case TensorType::F16:
      for (int64_t i = 0; i < n; ++i) out[i] = quant::load_f16(in + 2 * i);
      return;
    case TensorType::BF16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(quant::load_u16(in + 2 * i));
      return;
    default:
      PF_CHECK(false, "not a weight type");
  }
}

}  // namespace pagefold
