#include "backend/cpu/weights.h"

#include <algorithm>

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
    default:  // types of cached keys and values
      break;
  }
  PF_CHECK(false, "weights are not kept in this type");
  return PackKind::f32;
}

PackKind kind_of(const QuantSource& q) {
  switch (q.values) {
    case QuantValues::table:
      return PackKind::t4;
    case QuantValues::fp8:
      return PackKind::fp8;
    case QuantValues::linear:
      break;
  }
  return q.bits == 4 ? PackKind::w4 : PackKind::w8;
}

PackedShape shape_of(const MatrixSource& source, const PackOptions& options) {
  PackedShape s;
  s.n_out = static_cast<int>(source.n_out());
  s.n_in = static_cast<int>(source.n_in());
  if (const QuantSource* q = source.quant()) {
    s.kind = kind_of(*q);
    s.group = q->group;
    s.has_min = q->has_min;
    s.has_zero = q->has_zero;
    s.scale_f16 = q->scale_f16;
  } else {
    s.kind = plain_kind(source.stored_dtype(), options.dtype);
  }
  return s;
}

Result<InputKind> input_of(const MatrixSource& source, PackKind kind, const PackOptions& options) {
  if (const QuantSource* q = source.quant()) {
    PF_ASSIGN(const Activations a, resolve_activations(*q, options.activations));
    if (a == Activations::int8) return InputKind::i8;
    // 16 bits where the type has no more: integer products are exact and much faster than float32.
    const bool integers = kernels::takes_int8(kind, q->table.data());
    return integers && options.dtype != DType::f32 ? InputKind::i8x2 : InputKind::f32;
  }
  return kind == PackKind::bf16 && options.dtype == DType::bf16 ? InputKind::bf16 : InputKind::f32;
}

// Index of the arrangement with this order, which is added where it is new. Stacked matrices that
// were quantised together (q, k, v) share theirs.
Result<int> arrangement_of(Matrix& m, std::span<const int32_t> order) {
  if (order.empty()) return 0;
  const auto n = static_cast<size_t>(m.n_in);
  std::vector<bool> seen(n);
  for (const int32_t i : order) {
    if (i < 0 || static_cast<size_t>(i) >= n || seen[static_cast<size_t>(i)]) break;
    seen[static_cast<size_t>(i)] = true;
  }
  if (order.size() != n || std::find(seen.begin(), seen.end(), false) != seen.end())
    return bad_data("the order of a weight's inputs (act-order) is not a permutation of {}", n);
  for (size_t i = 1; i < m.arrangements.size(); ++i) {
    if (std::equal(order.begin(), order.end(), m.arrangements[i].order.begin()))
      return static_cast<int>(i);
  }
  m.arrangements.push_back({{order.begin(), order.end()}});
  return static_cast<int>(m.arrangements.size() - 1);
}

void pack_tiles(const MatrixSource& source, const PackedShape& shape, Range tiles,
                std::byte* data) {
  const size_t n = static_cast<size_t>(shape.n_in);
  std::vector<float> values, scale, min;
  std::vector<int8_t> q;
  if (source.quant()) {
    q.resize(n);
    scale.resize(n / static_cast<size_t>(shape.group));
    min.resize(shape.has_min || shape.has_zero ? scale.size() : 0);
  } else {
    values.resize(n);
  }
  const int64_t end = std::min<int64_t>(tiles.end * kernels::kTileRows, shape.n_out);
  for (int64_t row = tiles.begin * kernels::kTileRows; row < end; ++row) {
    if (source.quant()) {
      float* offsets = min.empty() ? nullptr : min.data();
      source.row_quant(row, q.data(), scale.data(), offsets);
      kernels::pack_row_quant(shape, static_cast<int>(row), {q.data(), scale.data(), offsets},
                              data);
    } else {
      source.row_f32(row, values.data());
      kernels::pack_row_f32(shape, static_cast<int>(row), values.data(), data);
    }
  }
}

}  // namespace

uint64_t Matrix::bytes() const {
  uint64_t sum = 0;
  for (const Segment& s : segments) sum += s.packed.shape.bytes();
  return sum;
}

void Matrix::read_row(int64_t row, float* values) const {
  PF_CHECK(segments.size() == 1);
  const Segment& s = segments[0];
  const std::vector<int32_t>& order = arrangements[static_cast<size_t>(s.arrangement)].order;
  if (order.empty()) return kernels::unpack_row(s.packed, static_cast<int>(row), values);
  std::vector<float> packed(order.size());
  kernels::unpack_row(s.packed, static_cast<int>(row), packed.data());
  for (size_t j = 0; j < order.size(); ++j) values[order[j]] = packed[j];
}

Result<Matrix> pack_matrix(std::span<const MatrixSource* const> parts, const PackOptions& options,
                           ThreadPool& pool, LastingMemory& memory) {
  PF_CHECK(!parts.empty());
  Matrix m;
  m.n_in = parts[0]->n_in();
  for (const MatrixSource* source : parts) {
    PF_CHECK(source->n_in() == m.n_in);
    Segment s;
    s.packed.shape = shape_of(*source, options);
    PF_ASSIGN(s.input, input_of(*source, s.packed.shape.kind, options));
    if (const QuantSource* q = source->quant()) {
      PF_ASSIGN(s.arrangement, arrangement_of(m, q->order));
      s.table.assign(q->table.begin(), q->table.end());
      s.packed.table = s.table.data();
    }
    Arrangement& inputs = m.arrangements[static_cast<size_t>(s.arrangement)];
    inputs.f32 |= s.input == InputKind::f32;
    inputs.bf16 |= s.input == InputKind::bf16;
    inputs.i8 |= s.input == InputKind::i8;
    inputs.i8x2 |= s.input == InputKind::i8x2;
    s.column = m.n_out;
    PF_ASSIGN(std::byte* const data, memory.take(s.packed.shape.bytes()));
    s.packed.data = data;
    pool.run([&](int t, int threads) {
      pack_tiles(*source, s.packed.shape, share_of(s.packed.shape.tiles(), t, threads), data);
    });
    m.n_out += source->n_out();
    m.tiles += s.packed.shape.tiles();
    m.segments.push_back(std::move(s));
  }
  return m;
}

}  // namespace pagefold::cpu

namespace pagefold {

Result<Activations> resolve_activations(const QuantSource& source, Activations wanted) {
  const bool possible = kernels::takes_int8(cpu::kind_of(source), source.table.data());
  if (wanted == Activations::automatic)
    return possible && !source.wants_16bit ? Activations::int8 : Activations::bits16;
  if (wanted == Activations::int8 && !possible) {
    return bad_input(
        "--activations int8: {} weights are no integers, so int8 inputs cannot be multiplied with "
        "them; use activations auto or 16",
        source.values == QuantValues::fp8 ? "fp8" : "table-coded (nf4, fp4)");
  }
  return wanted;
}

}  // namespace pagefold
