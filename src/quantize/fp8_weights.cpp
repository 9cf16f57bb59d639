#include "quantize/fp8_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace pagefold {
namespace {

constexpr float kLargest = 448.0f;

}  // namespace

uint8_t encode_e4m3(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const float a = std::abs(v);
  if (std::isnan(v)) return sign | 0x7f;
  if (a >= kLargest) return sign | 0x7e;
  if (a < 0x1p-6f)  // subnormal: multiples of 2^-9; 8 of them are the smallest normal number
    return static_cast<uint8_t>(sign | static_cast<int>(std::rint(a * 0x1p9f)));
  // Round the mantissa to 3 bits; a carry goes into the exponent by itself.
  const uint32_t abs_bits = bits & 0x7fffffffu;
  const uint32_t rounded = abs_bits + 0x7ffffu + ((abs_bits >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (uint32_t{127 - 7} << 3)));
}

float decode_e4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  float a = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa),
                       (exponent == 0 ? 1 : exponent) - 10);
  if ((code & 0x7f) == 0x7f) a = std::nanf("");
  return code & 0x80 ? -a : a;
}

Fp8Weights quantize_fp8(const Matrix& w, Fp8Scales scales, int64_t block) {
  Fp8Weights out;
  out.rows = w.rows;
  out.cols = w.cols;
  out.block_rows = scales == Fp8Scales::tensor ? w.rows : scales == Fp8Scales::channel ? 1 : block;
  out.block_cols = scales == Fp8Scales::block ? block : w.cols;
  out.scale_rows = (w.rows + out.block_rows - 1) / out.block_rows;
  out.scale_cols = (w.cols + out.block_cols - 1) / out.block_cols;
  out.codes.resize(w.values.size());
  for (int64_t br = 0; br < out.scale_rows; ++br) {
    for (int64_t bc = 0; bc < out.scale_cols; ++bc) {
      const int64_t r1 = std::min(w.rows, (br + 1) * out.block_rows);
      const int64_t c0 = bc * out.block_cols, c1 = std::min(w.cols, c0 + out.block_cols);
      float most = 0;
      for (int64_t r = br * out.block_rows; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) most = std::max(most, std::abs(w.row(r)[c]));
      }
      const float scale = most > 0 ? std::max(most / kLargest, 0x1p-120f) : 1.0f;
      out.scale.push_back(scale);
      for (int64_t r = br * out.block_rows; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c)
          out.codes[static_cast<size_t>(r * w.cols + c)] = encode_e4m3(w.row(r)[c] / scale);
      }
    }
  }
  return out;
}

Matrix fp8_values(const Fp8Weights& w) {
  Matrix out{w.rows, w.cols, std::vector<float>(w.codes.size())};
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t c = 0; c < w.cols; ++c) {
      const int64_t s = r / w.block_rows * w.scale_cols + c / w.block_cols;
      out.row(r)[c] = decode_e4m3(w.codes[static_cast<size_t>(r * w.cols + c)]) *
                      w.scale[static_cast<size_t>(s)];
    }
  }
  return out;
}

std::vector<OutTensor> pack_fp8(const Fp8Weights& w, Fp8Scales scales) {
  OutTensor codes{"weight", TensorType::F8_E4M3, {w.rows, w.cols}, {}};
  codes.bytes.resize(w.codes.size());
  std::memcpy(codes.bytes.data(), w.codes.data(), w.codes.size());
  OutTensor scale{scales == Fp8Scales::block ? "weight_scale_inv" : "weight_scale",
                  TensorType::F32,
                  {w.scale_rows, w.scale_cols},
                  {}};
  if (scales == Fp8Scales::tensor) scale.shape = {1};
  scale.bytes.resize(w.scale.size() * 4);
  std::memcpy(scale.bytes.data(), w.scale.data(), scale.bytes.size());
  return {std::move(codes), std::move(scale)};
}

}  // namespace pagefold
