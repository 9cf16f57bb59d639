#include "model/dtype_choice.h"

#include <algorithm>
#include <iterator>

namespace pagefold {
namespace {

// Their activations exceed 65504.
constexpr std::string_view kNotInFloat16[] = {"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"};

bool overflows_float16(std::string_view model_type) {
  return std::find(std::begin(kNotInFloat16), std::end(kNotInFloat16), model_type) !=
         std::end(kNotInFloat16);
}

// A word that is no plain type (an fp8 checkpoint may name its own) says nothing here.
std::optional<DType> stored_type(const StoredTypes& stored) {
  if (const auto said = parse_dtype(stored.config); said.ok()) return *said;
  return stored.tensors;
}

DTypeChoice automatic(std::optional<DType> stored, const StoredTypes& s) {
  DTypeChoice c{stored.value_or(DType::bf16), {}, {}};
  if (c.dtype == DType::f32) {
    c.dtype = DType::bf16;
    c.info =
        "--dtype auto: the checkpoint is float32 and runs in bfloat16; --dtype float32 keeps it";
  }
  if (c.dtype == DType::f16 && overflows_float16(s.model_type)) {
    c.dtype = DType::bf16;
    c.warning =
        fmt::format("--dtype auto: {} overflows float16 and runs in bfloat16", s.model_type);
  }
  return c;
}

}  // namespace

Result<DTypeChoice> choose_dtype(const std::string& word, const StoredTypes& s) {
  const std::optional<DType> stored = stored_type(s);
  if (word == "auto") return automatic(stored, s);
  auto parsed = parse_dtype(word);
  if (!parsed.ok()) return with_context(parsed.status(), "--dtype");
  DTypeChoice c{*parsed, {}, {}};
  if (c.dtype == DType::f16 && overflows_float16(s.model_type)) {
    return bad_input("--dtype float16: {} overflows float16; use bfloat16 or float32",
                     s.model_type);
  }
  if (!stored || *stored == c.dtype) return c;
  const std::string what =
      fmt::format("--dtype {}: the checkpoint is {}", dtype_name(c.dtype), dtype_name(*stored));
  if (c.dtype == DType::f32) {
    c.info = what + "; nothing is lost, but it needs more memory";
  } else if (*stored == DType::f32) {
    c.info = what + ", which is rounded";
  } else {
    c.warning = what + ": the two 16-bit types differ in range and precision";
  }
  return c;
}

}  // namespace pagefold
