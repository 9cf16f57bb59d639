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
    case DType::fp8_e4m3:
      return "fp8_e4m3";
    case DType::fp8_e5m2:
      return "fp8_e5m2";
    case DType::int8:
      return "int8";
    case DType::int4:
      return "int4";
  }
  return "?";
}

Result<DType> parse_dtype(std::string_view word) {
  if (word == "float32" || word == "float") return DType::f32;
  if (word == "float16" || word == "half") return DType::f16;
  if (word == "bfloat16") return DType::bf16;
  return bad_input("unknown dtype '{}': use float16 (half), bfloat16 or float32 (float)", word);
}

Result<DType> parse_kv_dtype(std::string_view word) {
  if (word == "fp8" || word == "fp8_e4m3") return DType::fp8_e4m3;
  if (word == "fp8_e5m2") return DType::fp8_e5m2;
  if (word == "int8") return DType::int8;
  if (word == "int4") return DType::int4;
  if (const auto dtype = parse_dtype(word); dtype.ok()) return dtype;
  return bad_input(
      "unknown KV cache dtype '{}': use auto, float32, float16, bfloat16, fp8 (fp8_e4m3), "
      "fp8_e5m2, "
      "int8 or int4",
      word);
}

}  // namespace pagefold
