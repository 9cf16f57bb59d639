#include "bench/made_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace pagefold::bench {
namespace {

using kernels::InputKind;
using kernels::Kernels;
using kernels::PackedMatrix;
using kernels::PackedShape;
using kernels::PackKind;

constexpr MatrixFormat kFormats[] = {
    {"q4_1_i8", "Q4_1, int8 inputs", PackKind::w4, InputKind::i8, 32, true},
    {"q8_0_i8", "Q8_0, int8 inputs", PackKind::w8, InputKind::i8},
    {"q4_1_f32", "Q4_1, float32 inputs", PackKind::w4, InputKind::f32, 32, true},
    {"q8_0_f32", "Q8_0, float32 inputs", PackKind::w8, InputKind::f32},
    {"bf16_bf16", "bfloat16", PackKind::bf16, InputKind::bf16},
    {"bf16_f32", "bfloat16, float32 inputs", PackKind::bf16, InputKind::f32},
    {"f16_f32", "float16, float32 inputs", PackKind::f16, InputKind::f32},
    {"f32_f32", "float32", PackKind::f32, InputKind::f32},
    {"w4a16", "AWQ/GPTQ 4 bits, float32 inputs", PackKind::w4, InputKind::f32, 128, false, true},
    {"w4a16_i8x2", "AWQ/GPTQ 4 bits, 16-bit inputs", PackKind::w4, InputKind::i8x2, 128, false,
     true},
    {"w4a8", "AWQ/GPTQ 4 bits, int8 inputs", PackKind::w4, InputKind::i8, 128, false, true},
    {"w8a16", "8 bits, float32 inputs", PackKind::w8, InputKind::f32, 128},
    {"w8a8", "W8A8", PackKind::w8, InputKind::i8, 0, false, false, false},
    {"nf4", "nf4, float32 inputs", PackKind::t4, InputKind::f32, 64, false, false, false},
    {"iq4_nl_i8", "IQ4_NL, int8 inputs", PackKind::t4, InputKind::i8},
    {"fp8", "fp8, float32 inputs", PackKind::fp8, InputKind::f32, 0, false, false, false}};
constexpr float kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

PackedShape shape_of(const MatrixFormat& f, const MatrixDims& dims) {
  PackedShape s;
  s.kind = f.kind;
  s.n_out = dims.first;
  s.n_in = dims.second;
  s.group = f.group == 0 ? s.n_in : 32;
  for (const int group : {64, f.group}) {
    if (group > 0 && group <= f.group && s.n_in % group == 0) s.group = group;
  }
  s.has_min = f.has_min;
  s.has_zero = f.has_zero;
  s.scale_f16 = f.scale_f16;
  return s;
}

// One tile of real numbers, copied into all tiles of a matrix.
void fill_matrix(const PackedShape& shape, std::byte* data) {
  PackedShape one = shape;
  one.n_out = kernels::kTileRows;
  const size_t size = one.tile_bytes();
  std::memset(data, 0, size);
  std::vector<float> values(static_cast<size_t>(shape.n_in));
  std::vector<int8_t> q(values.size());
  const std::vector<float> scale(values.size() / 16 + 1, 0x1p-7f);
  const std::vector<float> min(values.size() / 16 + 1, shape.has_zero ? 8 : -0x1p-4f);
  for (int row = 0; row < kernels::kTileRows; ++row) {
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = std::sin(static_cast<float>(k) + 0.1f * static_cast<float>(row));
      const bool nibble = shape.kind == PackKind::w4 || shape.kind == PackKind::t4;
      q[k] = static_cast<int8_t>(nibble ? 8 + 7 * values[k] : 120 * values[k]);
      if (shape.kind == PackKind::fp8) q[k] |= 0x20;  // hardly any subnormals, as in real weights
      if ((q[k] & 0x7f) == 0x7f) q[k] = 0x7e;
    }
    if (shape.kind >= PackKind::w8) {
      pack_row_quant(one, row, {q.data(), scale.data(), min.data()}, data);
    } else {
      pack_row_f32(one, row, values.data(), data);
    }
  }
  for (int t = 1; t < shape.tiles(); ++t) {
    std::memcpy(data + static_cast<size_t>(t) * size, data, size);
  }
}

}  // namespace

std::span<const MatrixFormat> matrix_formats() { return kFormats; }

size_t MadeMatrices::bytes_of(const MatrixFormat& format, std::span<const MatrixDims> shapes) {
  size_t sum = 0;
  for (const MatrixDims& dims : shapes) sum += shape_of(format, dims).bytes();
  return sum;
}

MadeMatrices::Bytes MadeMatrices::allocate(size_t n) {
  Bytes out(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64)));
  PF_CHECK(out != nullptr, "out of memory");
  return out;
}

MadeMatrices::MadeMatrices(const MatrixFormat& format, std::span<const MatrixDims> shapes,
                           int copies, int rows, const Kernels& k)
    : input_(format.input), rows_(rows) {
  int widest = 0, most_outputs = 0;
  for (int c = 0; c < copies; ++c) {
    for (const MatrixDims& dims : shapes) {
      const PackedShape shape = shape_of(format, dims);
      matrices_.push_back({shape, nullptr, kTable});
      bytes_ += shape.bytes();
      weights_ += static_cast<double>(dims.first) * dims.second;
      widest = std::max(widest, dims.second);
      most_outputs = std::max(most_outputs, dims.first);
    }
  }
  for (PackedMatrix& m : matrices_) {
    const auto data = memory_.take(m.shape.bytes());
    PF_CHECK(data.ok(), "out of memory");
    fill_matrix(m.shape, *data);
    m.data = *data;
  }
  make_inputs(widest, k);
  y_ = allocate(static_cast<size_t>(rows) * static_cast<size_t>(most_outputs) * 4);
}

// Enough for the widest matrix; narrower ones read the first numbers of it.
void MadeMatrices::make_inputs(int widest, const Kernels& k) {
  const int quantised = input_ == InputKind::i8x2 ? 2 * rows_ : rows_;
  const size_t n = static_cast<size_t>(quantised) * static_cast<size_t>(widest);
  x_.resize(n);
  for (size_t i = 0; i < n; ++i) x_[i] = std::sin(static_cast<float>(i % 1009));
  if (input_ == InputKind::bf16) {
    x16_.resize(n);
    k.to_bf16(x_.data(), static_cast<int64_t>(n), x16_.data());
  }
  if (input_ == InputKind::i8 || input_ == InputKind::i8x2) {
    q_ = allocate(n);
    scale_.resize(n / 32);
    sums_.resize(n / 16);
    k.quantize_rows(x_.data(), widest, quantised, widest, quantized(), nullptr);
  }
}

void MadeMatrices::run(const Kernels& k, ThreadPool& pool) {
  for (const PackedMatrix& m : matrices_) {
    pool.run([&](int thread, int n) {
      const Range tiles = share_of(m.shape.tiles(), thread, n);
      kernels::MatmulArgs a;
      a.weights = &m;
      a.input = input_;
      a.x = input_ == InputKind::bf16 ? static_cast<const void*>(x16_.data()) : x_.data();
      a.ldx = m.shape.n_in;
      a.xq = quantized();
      a.rows = rows_;
      a.y = reinterpret_cast<float*>(y_.get());
      a.ldy = m.shape.n_out;
      a.tile_begin = static_cast<int>(tiles.begin);
      a.tile_end = static_cast<int>(tiles.end);
      k.matmul(a);
    });
  }
}

}  // namespace pagefold::bench
