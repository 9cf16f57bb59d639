// Element types of activations, unquantised weights and cached keys and values.
#pragma once

#include <string_view>

#include "base/dtype_bits.h"
#include "base/result.h"

namespace pagefold {

// "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "int8", "int4".
std::string_view dtype_name(DType t);
// Accepts vLLM's spellings: float32 = float, float16 = half, bfloat16. Anything else lists them.
Result<DType> parse_dtype(std::string_view word);
// The types of a cached element: those of parse_dtype and fp8 = fp8_e4m3, fp8_e5m2, int8, int4.
Result<DType> parse_kv_dtype(std::string_view word);

}  // namespace pagefold
