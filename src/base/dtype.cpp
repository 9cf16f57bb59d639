#include "base/dtype.h"

namespace pagefold {

std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
  }
  return "?";
}

Result<DType> parse_dtype(std::string_view word) {
  if (word == "float32" || word == "float") return DType::f32;
  if (word == "float16" || word == "half") return DType::f16;
  if (word == "bfloat16") return DType::bf16;
  return bad_input("unknown dtype '{}': use float16 (half), bfloat16 or float32 (float)", word);
}

}  // namespace pagefold
