// Element types of activations, unquantised weights and cached keys and values.
#pragma once

#include <string_view>

#include "base/dtype_bits.h"
#include "base/result.h"

namespace pagefold {

// "float32", "float16", "bfloat16".
std::string_view dtype_name(DType t);
// Accepts vLLM's spellings: float32 = float, float16 = half, bfloat16. Anything else lists them.
Result<DType> parse_dtype(std::string_view word);

}  // namespace pagefold
