// Single numbers of F32, F16 and BF16 tensors (scales), and what a set of scales may be stored as.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/tensor_file.h"

namespace pagefold {

bool is_plain_float(TensorType type);  // F32, F16 or BF16
// Element i of a tensor of such a type; the bytes need not be aligned.
float plain_value(TensorType type, const std::byte* bytes, int64_t i);

// No scale is larger: float16 ends there, the type that most formats keep them in, and no weight
// of a model is near it. What is above comes from damaged bytes.
inline constexpr float kMostScale = 65504;

// What all n numbers have in common.
struct ScaleFacts {
  bool f16 = true;         // each is a float16 number
  int64_t first_bad = -1;  // the first that is not finite, or above kMostScale in magnitude
};
ScaleFacts scale_facts(TensorType type, const std::byte* bytes, int64_t n);

}  // namespace pagefold
