#include "quantize/fp8_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/quant/fp8.h"

namespace pagefold {
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
      const float scale = most > 0 ? std::max(most / kFp8Max, 0x1p-120f) : 1.0f;
      out.scale.push_back(scale);
      for (int64_t r = br * out.block_rows; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c)
          out.codes[static_cast<size_t>(r * w.cols + c)] = fp8_e4m3_code(w.row(r)[c] / scale);
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
      out.row(r)[c] = fp8_e4m3_value(w.codes[static_cast<size_t>(r * w.cols + c)]) *
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
