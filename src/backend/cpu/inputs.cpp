#include "backend/cpu/inputs.h"

namespace pagefold::cpu {

using kernels::InputKind;

Status Inputs::reserve(int64_t rows, int64_t columns) {
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  PF_TRY(f32_.ensure(n));
  PF_TRY(bf16_.ensure(n / 2 + 1));
  PF_TRY(q_.ensure(n / 4 + 1));
  PF_TRY(scale_.ensure(n / 32 + 1));
  PF_TRY(sums_.ensure(n / 16 + 1));
  return ok_status();
}

kernels::QuantizedRows Inputs::quantized(int64_t n_in, int64_t r) const {
  return {reinterpret_cast<int8_t*>(q_.data()) + r * n_in, scale_.data() + r * (n_in / 32),
          reinterpret_cast<int32_t*>(sums_.data()) + r * (n_in / 16)};
}

void Inputs::set_row(const Matrix& m, int64_t r, float* row) {
  if (m.needs(InputKind::i8))
    k_.quantize_rows(row, m.n_in, 1, static_cast<int>(m.n_in), quantized(m.n_in, r));
  if (m.needs(InputKind::bf16))
    k_.to_bf16(row, m.n_in, reinterpret_cast<uint16_t*>(bf16_.data()) + r * m.n_in);
  if (m.needs(InputKind::f32)) {
    k_.round_to(dtype_, row, m.n_in);
    float* out = f32_.data() + r * m.n_in;
    if (out != row) std::copy(row, row + m.n_in, out);
  }
}

void Inputs::fill(kernels::MatmulArgs& args, InputKind kind, int64_t n_in) const {
  args.input = kind;
  args.ldx = n_in;
  if (kind == InputKind::i8) args.xq = quantized(n_in, 0);
  if (kind == InputKind::bf16) args.x = bf16_.data();
  if (kind == InputKind::f32) args.x = f32_.data();
}

}  // namespace pagefold::cpu
