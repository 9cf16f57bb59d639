// What the matmuls of all instruction sets share, compiled for the baseline.
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "kernels/matmul_isa.h"

namespace pagefold::kernels {

void check_matmul_args(const MatmulArgs& a) {
  const PackedShape& s = a.weights->shape;
  const bool quantised = s.kind == PackKind::w8 || s.kind == PackKind::w4;
  PF_CHECK(a.input != InputKind::i8 || quantised, "int8 inputs go with w8 and w4 weights");
  PF_CHECK(a.input != InputKind::bf16 || s.kind == PackKind::bf16,
           "bfloat16 inputs go with bfloat16 weights");
  PF_CHECK(a.tile_begin >= 0 && a.tile_end <= s.tiles());
}

std::byte* thread_scratch(size_t bytes) {
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<std::byte, Free> buffer;
  thread_local size_t size = 0;
  if (size < bytes) {
    size = (bytes + 4095) / 4096 * 4096;
    buffer.reset();
    buffer.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
    PF_CHECK(buffer != nullptr, "out of memory");
  }
  return buffer.get();
}

}  // namespace pagefold::kernels
