// Tensors as files hold them: a type, a shape and bytes. Readers check every number before anything
// is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

// On-disk element types. GGUF block types keep their names.
enum class TensorType : uint8_t {
  F32,
  F16,
  BF16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  MXFP4,
  // read but not computed with (safetensors side data)
  I8,
  U8,
  I32,
  I64,
  F8_E4M3,
  F8_E5M2,
};

struct TensorTypeInfo {
  std::string_view name;  // "Q4_1"
  int block_elements;     // elements a block, 1 for plain types
  int block_bytes;
};
const TensorTypeInfo& tensor_type_info(TensorType type);

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::F32;
  std::vector<int64_t>
      shape;  // outermost first: [n_out, n_in] for matrices (GGUF's order reversed)
  std::span<const std::byte> data;  // exactly the tensor's bytes, in the mapped file
  std::string file;                 // for messages

  int64_t elements() const;
};

}  // namespace pagefold
