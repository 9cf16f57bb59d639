#include "backend/cpu/inputs.h"

#include <algorithm>

namespace pagefold::cpu {

using kernels::InputKind;

Status Inputs::reserve(int64_t rows, int64_t columns, int64_t arrangements) {
  plane_ = (rows * columns + 1023) / 1024 * 1024;
  const auto n = static_cast<size_t>(plane_ * arrangements);
  PF_TRY(f32_.ensure(n));
  PF_TRY(bf16_.ensure(n / 2));
  // Pages that no form needs are never touched.
  PF_TRY(q_.ensure(3 * n / 4));
  PF_TRY(scale_.ensure(3 * n / 32));
  PF_TRY(sums_.ensure(3 * n / 16));
  return ok_status();
}

// Of an arrangement: a plane of rows for i8, then two for i8x2.
kernels::QuantizedRows Inputs::quantized(int64_t plane, bool two, int64_t at) const {
  const int64_t first = (3 * plane + (two ? 1 : 0)) * plane_ + at;
  return {reinterpret_cast<int8_t*>(q_.data()) + first, scale_.data() + first / 32,
          reinterpret_cast<int32_t*>(sums_.data()) + first / 16};
}

void Inputs::quantize_twice(int64_t plane, int64_t n_in, int64_t r, const float* row) const {
  constexpr int64_t kPiece = 512;
  float rest[kPiece];
  for (int64_t i = 0; i < n_in; i += kPiece) {
    const auto n = static_cast<int>(std::min(kPiece, n_in - i));
    k_.quantize_rows(row + i, n, 1, n, quantized(plane, true, 2 * r * n_in + i), rest);
    k_.quantize_rows(rest, n, 1, n, quantized(plane, true, (2 * r + 1) * n_in + i), nullptr);
  }
}

// The values of `row` may be rounded in place; it may be where the float32 form goes.
void Inputs::set_forms(const Arrangement& forms, int64_t plane, int64_t n_in, int64_t r,
                       float* row) {
  const auto n = static_cast<int>(n_in);
  if (forms.i8) k_.quantize_rows(row, n_in, 1, n, quantized(plane, false, r * n_in), nullptr);
  if (forms.i8x2) quantize_twice(plane, n_in, r, row);
  if (forms.bf16) k_.to_bf16(row, n_in, bf16(plane) + r * n_in);
  if (forms.f32) {
    k_.round_to(dtype_, row, n_in);
    float* out = f32(plane) + r * n_in;
    if (out != row) std::copy(row, row + n_in, out);
  }
}

void Inputs::set_row(const Matrix& m, int64_t r, float* row) {
  for (size_t p = 1; p < m.arrangements.size(); ++p) {
    const Arrangement& forms = m.arrangements[p];
    const auto plane = static_cast<int64_t>(p);
    float* ordered = f32(plane) + r * m.n_in;
    for (int64_t j = 0; j < m.n_in; ++j) ordered[j] = row[forms.order[static_cast<size_t>(j)]];
    set_forms(forms, plane, m.n_in, r, ordered);
  }
  // Last, because it may round the row.
  set_forms(m.arrangements[0], 0, m.n_in, r, row);
}

void Inputs::fill(kernels::MatmulArgs& args, const Segment& s, int64_t n_in) const {
  args.input = s.input;
  args.ldx = n_in;
  if (s.input == InputKind::i8) args.xq = quantized(s.arrangement, false, 0);
  if (s.input == InputKind::i8x2) args.xq = quantized(s.arrangement, true, 0);
  if (s.input == InputKind::bf16) args.x = bf16(s.arrangement);
  if (s.input == InputKind::f32) args.x = f32(s.arrangement);
}

}  // namespace pagefold::cpu
