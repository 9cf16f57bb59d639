// The oracle: plain C++ at the baseline instruction set. Sums over inputs ascend, one accumulator
// an output; the int8 path does the very operations of the vector ones and equals them bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/matmul_isa.h"
#include "kernels/packed_fp8.h"
#include "kernels/packed_layout.h"

namespace pagefold::kernels::scalar {
namespace {

constexpr int kPanelRows = 64;

// 32 inputs of a tile of quantised weights.
struct Block {
  float scale[2][kTileRows];  // of each group of the 32 inputs, or of the one they are part of
  float min[2][kTileRows];    // or zero points
  float x[kBlockInputs][kTileRows];
};

void load_meta(const std::byte* from, bool f16, float* to) {
  for (int j = 0; j < kTileRows; ++j) {
    if (f16) {
      uint16_t h;
      std::memcpy(&h, from + j * 2, 2);
      to[j] = f16_to_f32(h);
    } else {
      std::memcpy(to + j, from + j * 4, 4);
    }
  }
}

float value_at(const PackedMatrix& m, const std::byte* v, int i, int j) {
  if (!in_nibbles(m.shape.kind)) {
    const auto byte = std::to_integer<uint8_t>(v[i / 4 * 64 + j * 4 + i % 4]);
    return m.shape.kind == PackKind::w8 ? static_cast<float>(byte - 128)
                                        : e4m3_value(fp8_from_packed(byte));
  }
  const int byte = std::to_integer<int>(v[i % 16 / 4 * 64 + j * 4 + i % 4]);
  const int q = i < 16 ? byte & 15 : byte >> 4;
  return m.shape.kind == PackKind::t4 ? m.table[q] : static_cast<float>(q);
}

void load_block(const PackedMatrix& m, const BlockLayout& l, const std::byte* tile, int b,
                Block& out) {
  const PackedShape& s = m.shape;
  const int section = b / l.section_blocks;
  const std::byte* meta = tile + meta_offset(l, section);
  const int subs = s.group < kBlockInputs ? 2 : 1;
  for (int g = 0; g < subs; ++g) {
    load_meta(meta + static_cast<size_t>(g) * l.scale_bytes, s.scale_f16, out.scale[g]);
    if (s.has_min || s.has_zero) {
      load_meta(meta + static_cast<size_t>(subs + g) * l.scale_bytes, s.scale_f16, out.min[g]);
    }
  }
  const std::byte* v =
      tile + values_offset(l, section) + static_cast<size_t>(b % l.section_blocks) * l.values_bytes;
  for (int i = 0; i < kBlockInputs; ++i) {
    for (int j = 0; j < kTileRows; ++j) out.x[i][j] = value_at(m, v, i, j);
  }
}

// Columns k0 .. k0+n of a tile as floats; n <= 32.
void load_columns(const PackedMatrix& m, const BlockLayout& l, const std::byte* tile, int k0, int n,
                  float (*out)[kTileRows]) {
  const PackedShape& s = m.shape;
  if (is_quantised(s.kind)) {
    Block b;
    load_block(m, l, tile, k0 / kBlockInputs, b);
    for (int i = 0; i < n; ++i) {
      const int g = s.group < kBlockInputs ? i / s.group : 0;
      for (int j = 0; j < kTileRows; ++j) {
        const float x = b.x[i][j];
        out[i][j] = s.has_min    ? std::fma(x, b.scale[g][j], b.min[g][j])
                    : s.has_zero ? (x - b.min[g][j]) * b.scale[g][j]
                                 : x * b.scale[g][j];
      }
    }
    return;
  }
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(k0 + i);
    for (size_t j = 0; j < kTileRows; ++j) {
      uint16_t h;
      if (s.kind == PackKind::f32) {
        std::memcpy(&out[i][j], tile + (k * kTileRows + j) * 4, 4);
      } else if (s.kind == PackKind::f16) {
        std::memcpy(&h, tile + (k * kTileRows + j) * 2, 2);
        out[i][j] = f16_to_f32(h);
      } else {
        std::memcpy(&h, tile + ((k / 2 * kTileRows + j) * 2 + k % 2) * 2, 2);
        out[i][j] = bf16_to_f32(h);
      }
    }
  }
}

float input_at(const MatmulArgs& a, int row, int k) {
  const int64_t at = row * a.ldx + k;
  return a.input == InputKind::bf16 ? bf16_to_f32(static_cast<const uint16_t*>(a.x)[at])
                                    : static_cast<const float*>(a.x)[at];
}

void float_panel(const MatmulArgs& a, const std::byte* tile, int row0, int rows,
                 float (*acc)[kTileRows]) {
  const PackedShape& s = a.weights->shape;
  const BlockLayout l = is_quantised(s.kind) ? block_layout(s) : BlockLayout{};
  float w[kBlockInputs][kTileRows];
  for (int k0 = 0; k0 < s.n_in; k0 += kBlockInputs) {
    const int n = std::min(kBlockInputs, s.n_in - k0);
    load_columns(*a.weights, l, tile, k0, n, w);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < n; ++i) {
        const float x = input_at(a, row0 + r, k0 + i);
        for (int j = 0; j < kTileRows; ++j) acc[r][j] += w[i][j] * x;
      }
    }
  }
}

// dot[j] of inputs [begin, end) of a block.
void int_dot(const Block& w, const int8_t* q, int begin, int end, int* dot) {
  for (int j = 0; j < kTileRows; ++j) dot[j] = 0;
  for (int i = begin; i < end; ++i) {
    for (int j = 0; j < kTileRows; ++j) dot[j] += static_cast<int>(w.x[i][j]) * q[i];
  }
}

// Groups of 16 or 32 inputs without zero points: one step an input scale.
void int8_panel(const MatmulArgs& a, const std::byte* tile, int row0, int rows,
                float (*acc)[kTileRows]) {
  const PackedShape& s = a.weights->shape;
  const BlockLayout l = block_layout(s);
  const int blocks = s.n_in / kBlockInputs;
  const int subs = kBlockInputs / s.group;
  Block w;
  for (int b = 0; b < blocks; ++b) {
    load_block(*a.weights, l, tile, b, w);
    for (int r = 0; r < rows; ++r) {
      const int64_t block_at = static_cast<int64_t>(row0 + r) * blocks + b;
      const int8_t* q = a.xq.q + block_at * kBlockInputs;
      const float sa = a.xq.scale[block_at];
      const int32_t* sums = a.xq.sums + block_at * 2;
      for (int g = 0; g < subs; ++g) {
        int dot[kTileRows];
        int_dot(w, q, g * s.group, (g + 1) * s.group, dot);
        const float sum = sa * static_cast<float>(s.group == 32 ? sums[0] + sums[1] : sums[g]);
        for (int j = 0; j < kTileRows; ++j) {
          acc[r][j] = std::fma(static_cast<float>(dot[j]), w.scale[g][j] * sa, acc[r][j]);
          if (s.has_min) acc[r][j] = std::fma(w.min[g][j], sum, acc[r][j]);
        }
      }
    }
  }
}

// Larger groups, or zero points: the group's sum first, then its scale. See Int8GroupKernel.
void int8_group_panel(const MatmulArgs& a, const std::byte* tile, int row0, int rows,
                      float (*acc)[kTileRows]) {
  const PackedShape& s = a.weights->shape;
  const BlockLayout l = block_layout(s);
  const int blocks = s.n_in / kBlockInputs;
  const int step = s.group < kBlockInputs ? s.group : kBlockInputs;  // inputs a dot product
  const int steps = s.group / step;                                  // of a group
  Block w;
  float part[kPanelRows][kTileRows] = {};
  float min_sum[kPanelRows] = {};
  for (int k = 0; k < s.n_in; k += step) {
    const int b = k / kBlockInputs, g = k % kBlockInputs / step;
    if (g == 0) load_block(*a.weights, l, tile, b, w);
    const bool last = k / step % steps == steps - 1;
    for (int r = 0; r < rows; ++r) {
      const int64_t block_at = static_cast<int64_t>(row0 + r) * blocks + b;
      const int32_t* sums = a.xq.sums + block_at * 2;
      const float sa = a.xq.scale[block_at];
      const auto sum = static_cast<float>(step == 16 ? sums[g] : sums[0] + sums[1]);
      int dot[kTileRows];
      int_dot(w, a.xq.q + block_at * kBlockInputs, g * step, (g + 1) * step, dot);
      min_sum[r] = std::fma(sum, sa, min_sum[r]);
      for (int j = 0; j < kTileRows; ++j) {
        part[r][j] = std::fma(static_cast<float>(dot[j]), sa, part[r][j]);
        if (!last) continue;
        if (s.has_zero) part[r][j] = std::fma(-w.min[g][j], min_sum[r], part[r][j]);
        acc[r][j] = std::fma(part[r][j], w.scale[g][j], acc[r][j]);
        if (s.has_min) acc[r][j] = std::fma(w.min[g][j], min_sum[r], acc[r][j]);
        part[r][j] = 0;
      }
      if (last) min_sum[r] = 0;
    }
  }
}

void store_panel(const MatmulArgs& a, int tile, int row0, int rows, const float (*acc)[kTileRows]) {
  const int first = tile * kTileRows;
  const int n = std::min(kTileRows, a.weights->shape.n_out - first);
  for (int r = 0; r < rows; ++r) {
    const OutputRow out = output_row(a, row0 + r);
    float* y = out.y + first;
    for (int j = 0; j < n; ++j) {
      const float v = out.bias != nullptr ? acc[r][j] + out.bias[first + j] : acc[r][j];
      y[j] = out.accumulate ? y[j] + v : v;
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& call) {
  check_matmul_args(call);
  const bool integers = call.input == InputKind::i8 || call.input == InputKind::i8x2;
  const MatmulArgs a = call.input == InputKind::i8x2 ? doubled(call) : call;
  const PackedShape& s = a.weights->shape;
  const size_t tile_bytes = s.tile_bytes();
  for (int t = a.tile_begin; t < a.tile_end; ++t) {
    const std::byte* tile = a.weights->data + tile_bytes * static_cast<size_t>(t);
    for (int r = 0; r < a.rows; r += kPanelRows) {
      const int rows = std::min(kPanelRows, a.rows - r);
      float acc[kPanelRows][kTileRows] = {};
      if (integers) {
        (sums_groups(s) ? int8_group_panel : int8_panel)(a, tile, r, rows, acc);
      } else {
        float_panel(a, tile, r, rows, acc);
      }
      store_panel(a, t, r, rows, acc);
    }
  }
}

void quantize_rows(const float* x, int64_t ldx, int rows, int n, const QuantizedRows& out,
                   float* rest) {
  for (int r = 0; r < rows; ++r) {
    for (int b = 0; b < n / kBlockInputs; ++b) {
      const float* v = x + r * ldx + static_cast<int64_t>(b) * kBlockInputs;
      const int64_t at = static_cast<int64_t>(r) * (n / kBlockInputs) + b;
      // Magnitudes compare as integers, and NaN is the largest of all: nothing is lost in a max.
      uint32_t max_bits = 0;
      for (int i = 0; i < kBlockInputs; ++i) {
        max_bits = std::max(max_bits, std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu);
      }
      const float max = std::bit_cast<float>(max_bits);
      const bool finite = max_bits < 0x7f800000u;
      // Below this 127 / max overflows; such a block is zero.
      const bool tiny = max < 0x1p-120f;
      const float inverse = finite && !tiny ? 127.0f / max : 0.0f;
      out.scale[at] = !finite ? std::bit_cast<float>(0x7fc00000u) : tiny ? 0.0f : max / 127.0f;
      int sums[2] = {0, 0};
      for (int i = 0; i < kBlockInputs; ++i) {
        const int q = finite ? static_cast<int>(std::lrintf(v[i] * inverse)) : 0;
        out.q[at * kBlockInputs + i] = static_cast<int8_t>(q);
        sums[i / 16] += q;
        if (rest != nullptr)
          rest[at * kBlockInputs + i] = std::fma(-static_cast<float>(q), out.scale[at], v[i]);
      }
      out.sums[at * 2] = sums[0];
      out.sums[at * 2 + 1] = sums[1];
    }
  }
}

}  // namespace pagefold::kernels::scalar
