// Weight matrices as the kernels read them: tiles of 16 output rows, so that one 512-bit register
// holds one input column of 16 outputs and no horizontal add is ever needed (docs/performance.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pagefold::kernels {

constexpr int kTileRows = 16;

enum class PackKind : uint8_t {
  f32,   // [k][16] float
  f16,   // [k][16] half
  bf16,  // [k/2][16][2] bfloat16: pairs for vdpbf16ps; odd n_in is padded with zero
  w8,    // quantised, int8 values
  w4,    // quantised, 4-bit values 0..15
  t4,    // 4-bit indices into PackedMatrix::table
  fp8,   // e4m3 codes
};

// value = x * scale[group] + min[group], or (x - zero[group]) * scale[group]; x = q, table[q] or
// the decoded fp8 number. t4 and fp8 have neither min nor zero. Scales and mins are stored as
// float16 when every one of them is exactly representable (Q4_0, Q4_1, Q5_x, Q8_0), else float32
// (K-quants: products of two numbers); zero points, integers -128..255, are stored in the same
// type.
struct PackedShape {
  PackKind kind = PackKind::f32;
  int n_out = 0;   // rows of the matrix = outputs
  int n_in = 0;    // columns = inputs; of quantised kinds a multiple of 32
  int group = 32;  // inputs a scale: 16, or a multiple of 32 that divides n_in
  bool has_min = false;
  bool has_zero = false;  // not with has_min
  bool scale_f16 = true;

  __attribute__((always_inline)) int tiles() const {
    return (n_out + kTileRows - 1) / kTileRows;
  }                           // the last tile is padded with zero rows
  size_t tile_bytes() const;  // a multiple of 64
  size_t bytes() const { return tile_bytes() * static_cast<size_t>(tiles()); }
};

// Whether a matmul by such weights can take int8 inputs: w4, w8, and t4 whose table holds integers
// -128..127 only. table: [16], read for t4.
bool takes_int8(PackKind kind, const float* table);

// Not owning; data is 64-byte aligned, PackedShape::bytes() long.
struct PackedMatrix {
  PackedShape shape;
  const std::byte* data = nullptr;
  const float* table = nullptr;  // t4: [16]
};

// One output row of quantised source weights, unpacked: q[n_in], scale[n_in/group], min[n_in/group]
// (or null).
struct QuantRow {
  const int8_t* q;
  const float* scale;
  const float* min;  // or the zero points
};

// Writes output row `row` into its tile. The caller zeroes the buffer first (padding rows must read
// as zero). Different rows of one tile may not be written at the same time by two threads;
// different tiles may.
void pack_row_f32(const PackedShape& shape, int row, const float* values,
                  std::byte* data);  // f32, f16, bf16 kinds (rounds to nearest even)
void pack_row_quant(const PackedShape& shape, int row, const QuantRow& values,
                    std::byte* data);  // quantised kinds (lossless; of fp8, -0 becomes 0)
// The inverse, exact for quantised kinds: row `row` as floats, each rounded once. Used by the
// embedding look-up and by tests.
void unpack_row(const PackedMatrix& matrix, int row, float* values);

}  // namespace pagefold::kernels
