// Element types of activations, unquantised weights and cached keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace pagefold {

enum class DType : uint8_t { f32, f16, bf16 };

constexpr size_t dtype_bytes(DType t) { return t == DType::f32 ? 4 : 2; }

// "float32", "float16", "bfloat16".
std::string_view dtype_name(DType t);
// Accepts vLLM's spellings: float32 = float, float16 = half, bfloat16. Anything else lists them.
Result<DType> parse_dtype(std::string_view word);

}  // namespace pagefold
