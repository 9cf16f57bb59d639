// A random matmul: source weights as a loader would hand them over, their packed form, inputs, and
// a float64 reference with a bound on what float32 rounding may do to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "matmul_config.h"

namespace pagefold::kernels::test {

// Cheap numbers in [-1, 1) that differ between streams; philox would take most of the tests' time.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float value() { return static_cast<float>(static_cast<int32_t>(bits())) * 0x1p-31f; }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint32_t>(n)); }

 private:
  uint64_t state_;
};

struct Aligned {
  explicit Aligned(size_t n)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64))), bytes(n) {
    std::fill(data, data + (n + 63) / 64 * 64, std::byte{0});
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
  size_t bytes;
};

class Case {
 public:
  Case(const Config& c, int outputs, int inputs, int input_rows, uint64_t seed = 1)
      : config(c), n_out(outputs), n_in(inputs), rows(input_rows) {
    shape = c.shape(n_out, n_in);
    packed = std::make_unique<Aligned>(shape.bytes());
    matrix = {shape, packed->data, c.table()};
    make_weights(Numbers(seed));
    make_inputs(Numbers(seed + 1000));
  }

  // Arguments for rows [row0, row0 + n) of the inputs.
  MatmulArgs args(int row0, int n, float* y, int64_t ldy) const {
    MatmulArgs a;
    a.weights = &matrix;
    a.input = config.input;
    a.ldx = ldx;
    if (config.input == InputKind::f32) a.x = x.data() + row0 * ldx;
    if (config.input == InputKind::bf16) a.x = x16.data() + row0 * ldx;
    if (const int64_t per_row = config.int8_rows(); per_row > 0) {
      const int64_t first = row0 * per_row;
      a.xq = {const_cast<int8_t*>(xq.data()) + first * n_in,
              const_cast<float*>(xscale.data()) + first * (n_in / 32),
              const_cast<int32_t*>(xsums.data()) + first * (n_in / 16)};
    }
    a.rows = n;
    a.y = y;
    a.ldy = ldy;
    a.tile_begin = 0;
    a.tile_end = shape.tiles();
    return a;
  }

  struct Expected {
    double value, bound;
  };
  // Float32 products and sums: every one of the n terms of an output passes at most n + 4 roundings
  // of 2^-24 (its product, the dequantised weight, the sums), whatever their order.
  Expected expected(int row, int out) const {
    constexpr double u = 0x1p-24;
    double sum = 0, magnitude = 0;
    if (const int per_row = config.int8_rows(); per_row > 0) {
      for (int part = 0; part < per_row; ++part)
        add_steps(row * per_row + part, out, sum, magnitude);
      return {sum, (2.0 * n_in / std::min(config.group, 32) + 4) * u * magnitude};
    }
    for (int k = 0; k < n_in; ++k) {
      const double v = x_value[static_cast<size_t>(row) * n_in + k];
      double w, abs_w;
      if (config.quantised()) {
        const double a = config.value(q[static_cast<size_t>(out) * n_in + k]) *
                         double{scale_at(out, k / config.group)};
        const double b = offset_at(out, k / config.group);
        w = a + b;
        abs_w = std::abs(a) + std::abs(b);
      } else {
        w = weights[static_cast<size_t>(out) * n_in + k];
        abs_w = std::abs(w);
      }
      sum += w * v;
      magnitude += abs_w * std::abs(v);
    }
    // vdpbf16ps flushes subnormal products and sums to zero: at most one smallest normal a term.
    return {sum, (n_in + 4.0) * u * magnitude + n_in * 0x1p-126};
  }
  float scale_at(int out, int g) const {
    return scale[static_cast<size_t>(out) * (n_in / config.group) + g];
  }
  float min_at(int out, int g) const {
    return min[static_cast<size_t>(out) * (n_in / config.group) + g];
  }
  // What every weight of a group has beside value * scale.
  double offset_at(int out, int g) const {
    if (config.has_zero) return -double{min_at(out, g)} * scale_at(out, g);
    return config.has_min ? min_at(out, g) : 0;
  }
  // The weight as a float, rounded once.
  float weight_at(int out, int k) const {
    const int8_t code = q[static_cast<size_t>(out) * n_in + k];
    const float s = scale_at(out, k / config.group);
    const auto v = static_cast<float>(config.value(code));
    if (config.has_zero) return (v - min_at(out, k / config.group)) * s;
    return config.has_min ? std::fma(v, s, min_at(out, k / config.group)) : v * s;
  }
  // Writes q, scale and min into the packed matrix.
  void pack() {
    std::memset(packed->data, 0, packed->bytes);
    const size_t groups = static_cast<size_t>(n_in / config.group);
    for (int r = 0; r < n_out; ++r) {
      const size_t at = static_cast<size_t>(r) * groups;
      pack_row_quant(shape, r,
                     {q.data() + static_cast<size_t>(r) * n_in, scale.data() + at,
                      min.empty() ? nullptr : min.data() + at},
                     packed->data);
    }
  }

  Config config;
  int n_out, n_in, rows;
  int64_t ldx = 0;
  PackedShape shape;
  std::unique_ptr<Aligned> packed;
  PackedMatrix matrix;
  std::vector<float> weights;  // [n_out][n_in], after rounding to the kind
  std::vector<int8_t> q;
  std::vector<float> scale, min;  // min: or zero points
  std::vector<float> x, x_value;
  std::vector<uint16_t> x16;
  std::vector<int8_t> xq;
  std::vector<float> xscale;
  std::vector<int32_t> xsums;

 private:
  // Adds the product of a row of int8: a term is a step, whose dot product is exact.
  void add_steps(int row, int out, double& sum, double& magnitude) const {
    const int step = std::min(config.group, 32);
    for (int at = 0; at < n_in; at += step) {
      double dot = 0, total = 0;
      for (int i = at; i < at + step; ++i) {
        const int a = xq[static_cast<size_t>(row) * n_in + i];
        dot += config.value(q[static_cast<size_t>(out) * n_in + i]) * a;
        total += a;
      }
      const double sa = xscale[static_cast<size_t>(row) * (n_in / 32) + at / 32];
      const int g = at / config.group;
      const double t = dot * sa * scale_at(out, g);
      const double m = total * sa * offset_at(out, g);
      sum += t + m;
      magnitude += std::abs(t) + std::abs(m);
    }
  }
  void make_weights(Numbers numbers) {
    if (!config.quantised()) {
      weights.resize(static_cast<size_t>(n_out) * n_in);
      for (float& w : weights) {
        w = numbers.value();
        if (config.kind == PackKind::f16) w = f16_to_f32(f32_to_f16(w));
        if (config.kind == PackKind::bf16) w = bf16_to_f32(f32_to_bf16(w));
      }
      for (int r = 0; r < n_out; ++r) {
        pack_row_f32(shape, r, weights.data() + static_cast<size_t>(r) * n_in, packed->data);
      }
      return;
    }
    const size_t groups = static_cast<size_t>(n_in / config.group);
    q.resize(static_cast<size_t>(n_out) * n_in);
    scale.resize(static_cast<size_t>(n_out) * groups);
    if (config.has_min || config.has_zero) min.resize(scale.size());
    for (size_t i = 0; i < q.size(); ++i) q[i] = random_q(numbers, i % static_cast<size_t>(n_in));
    for (auto* values : {&scale, &min}) {
      for (float& v : *values) {
        v = numbers.value() * 0.05f;
        if (config.scale_f16) v = f16_to_f32(f32_to_f16(v));
      }
    }
    if (config.has_zero) {
      for (float& z : min) {
        z = static_cast<float>(config.nibbles() ? numbers.below(17) : numbers.below(384) - 128);
      }
    }
    pack();
  }
  // The ends come up often: they are what saturating arithmetic gets wrong.
  int8_t random_q(Numbers& numbers, size_t k) const {
    if (config.kind == PackKind::fp8) {  // every second 32 inputs have no zeros and subnormals
      int code = numbers.below(127) | numbers.below(2) << 7;
      if (k / 32 % 2 == 0 && (code & 0x78) == 0) code |= 0x08 << numbers.below(4);
      return static_cast<int8_t>((code & 0x7f) == 0x7f ? 0x7e : code);
    }
    const bool nibbles = config.nibbles();
    const int ends[2] = {nibbles ? 0 : -128, nibbles ? 15 : 127};
    return static_cast<int8_t>(numbers.below(4) == 0
                                   ? ends[numbers.below(2)]
                                   : (nibbles ? numbers.below(16) : numbers.below(256) - 128));
  }

  void make_inputs(Numbers numbers) {
    const auto n = static_cast<size_t>(n_in);
    auto m = static_cast<size_t>(rows);
    if (config.int8_rows() > 0) {
      ldx = n_in;
      m *= static_cast<size_t>(config.int8_rows());
      xq.resize(m * n);
      xscale.resize(m * n / 32);
      xsums.assign(m * n / 16, 0);
      for (size_t i = 0; i < m * n; ++i) {
        const int a =
            numbers.below(4) == 0 ? (numbers.below(2) == 0 ? -127 : 127) : numbers.below(255) - 127;
        xq[i] = static_cast<int8_t>(a);
        xsums[i / 16] += a;
      }
      for (float& s : xscale) s = std::abs(numbers.value()) * 0.02f;
      return;
    }
    ldx = n_in + 3;
    // The last row ends with the array, so that a sanitizer sees any read past it.
    const size_t total = (m - 1) * static_cast<size_t>(ldx) + n;
    x.resize(total);
    x16.resize(total);
    x_value.resize(m * n);
    for (size_t i = 0; i < total; ++i) {
      x[i] = numbers.value();
      x16[i] = f32_to_bf16(x[i]);
    }
    for (size_t r = 0; r < m; ++r) {
      for (size_t k = 0; k < n; ++k) {
        const size_t at = r * static_cast<size_t>(ldx) + k;
        x_value[r * n + k] = config.input == InputKind::bf16 ? bf16_to_f32(x16[at]) : x[at];
      }
    }
    // What lies between two rows must not matter, not even times a zero weight.
    for (size_t r = 0; r + 1 < m; ++r) {
      for (size_t k = n; k < static_cast<size_t>(ldx); ++k) {
        x[r * static_cast<size_t>(ldx) + k] = NAN;
        x16[r * static_cast<size_t>(ldx) + k] = 0x7fc0;
      }
    }
  }
};

}  // namespace pagefold::kernels::test
