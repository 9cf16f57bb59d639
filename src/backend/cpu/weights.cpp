#include "backend/cpu/weights.h"

#include "base/check.h"

namespace pagefold::cpu {
namespace {

using kernels::InputKind;
using kernels::PackedShape;
using kernels::PackKind;

// Unquantised weights are kept in --dtype, except that widening is left to the kernels: it adds
// bytes, not precision.
PackKind plain_kind(DType stored, DType wanted) {
  const DType kept = wanted == DType::f32 ? stored : wanted;
  switch (kept) {
    case DType::f32:
      return PackKind::f32;
    case DType::f16:
      return PackKind::f16;
    case DType::bf16:
      return PackKind::bf16;
  }
  return PackKind::f32;
}

PackedShape shape_of(const MatrixSource& source, const PackOptions& options) {
  PackedShape s;
  s.n_out = static_cast<int>(source.n_out());
  s.n_in = static_cast<int>(source.n_in());
  if (const QuantSource* q = source.quant()) {
    s.kind = q->bits == 4 ? PackKind::w4 : PackKind::w8;
    s.group = q->group;
    s.has_min = q->has_min;
    s.scale_f16 = q->scale_f16;
  } else {
    s.kind = plain_kind(source.stored_dtype(), options.dtype);
  }
  return s;
}

InputKind input_of(const PackedShape& s, const PackOptions& options) {
  if (s.kind == PackKind::w4 || s.kind == PackKind::w8)
    return options.activations_int8 ? InputKind::i8 : InputKind::f32;
  return s.kind == PackKind::bf16 && options.dtype == DType::bf16 ? InputKind::bf16
                                                                  : InputKind::f32;
}

void pack_tiles(const MatrixSource& source, const PackedShape& shape, Range tiles,
                std::byte* data) {
  const size_t n = static_cast<size_t>(shape.n_in);
  std::vector<float> values, scale, min;
  std::vector<int8_t> q;
  if (source.quant()) {
    q.resize(n);
    scale.resize(n / static_cast<size_t>(shape.group));
    min.resize(shape.has_min ? scale.size() : 0);
  } else {
    values.resize(n);
  }
  const int64_t end = std::min<int64_t>(tiles.end * kernels::kTileRows, shape.n_out);
  for (int64_t row = tiles.begin * kernels::kTileRows; row < end; ++row) {
    if (source.quant()) {
      source.row_quant(row, q.data(), scale.data(), shape.has_min ? min.data() : nullptr);
      kernels::pack_row_quant(shape, static_cast<int>(row),
                              {q.data(), scale.data(), shape.has_min ? min.data() : nullptr}, data);
    } else {
      source.row_f32(row, values.data());
      kernels::pack_row_f32(shape, static_cast<int>(row), values.data(), data);
    }
  }
}

}  // namespace

bool Matrix::needs(InputKind kind) const {
  for (const Segment& s : segments) {
    if (s.input == kind) return true;
  }
  return false;
}

uint64_t Matrix::bytes() const {
  uint64_t sum = 0;
  for (const Segment& s : segments) sum += s.packed.shape.bytes();
  return sum;
}

Result<Matrix> pack_matrix(std::span<const MatrixSource* const> parts, const PackOptions& options,
                           ThreadPool& pool) {
  PF_CHECK(!parts.empty());
  Matrix m;
  m.n_in = parts[0]->n_in();
  for (const MatrixSource* source : parts) {
    PF_CHECK(source->n_in() == m.n_in);
    Segment s;
    s.packed.shape = shape_of(*source, options);
    s.input = input_of(s.packed.shape, options);
    s.column = m.n_out;
    PF_ASSIGN(s.memory, Pages::allocate(s.packed.shape.bytes()));
    s.packed.data = s.memory.data();
    pool.run([&](int t, int threads) {
      pack_tiles(*source, s.packed.shape, share_of(s.packed.shape.tiles(), t, threads),
                 s.memory.data());
    });
    m.n_out += source->n_out();
    m.tiles += s.packed.shape.tiles();
    m.segments.push_back(std::move(s));
  }
  return m;
}

}  // namespace pagefold::cpu
