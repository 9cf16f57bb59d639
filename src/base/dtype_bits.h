// The enum alone, without the standard library: what the files of one instruction set may include.
// Always inlined, so that no copy compiled with wider instructions can serve the rest of the
// program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefold {

enum class DType : uint8_t { f32, f16, bf16 };

__attribute__((always_inline)) constexpr size_t dtype_bytes(DType t) {
  return t == DType::f32 ? 4 : 2;
}

}  // namespace pagefold
