// A plain matrix that is quantised row by row while it loads: fp8 with one scale a tensor, or nf4
// with one a 64 weights (32 where 64 do not divide a row).
#include <atomic>
#include <cmath>

#include "formats/quant/bitsandbytes.h"
#include "formats/quant/fp8.h"
#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

class ToFp8Source final : public GroupedSource {
 public:
  ToFp8Source(const TensorSource& source, float scale)
      : GroupedSource(source.n_out(), source.n_in()), source_(source), scale_(scale) {
    quant_ = {.bits = 8,
              .group = static_cast<int>(n_in_),
              .scale_f16 = false,
              .values = QuantValues::fp8,
              .wants_16bit = true};
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float*) const override {
    std::vector<float> x(static_cast<size_t>(n_in_));
    source_.row_f32(row, x.data());
    for (const float v : x) *q++ = static_cast<int8_t>(fp8_e4m3_code(v / scale_));
    *scale = scale_;
  }

 private:
  TensorSource source_;
  float scale_;
};

class ToNf4Source final : public GroupedSource {
 public:
  ToNf4Source(const TensorSource& source, const TensorInfo& tensor)
      : GroupedSource(source.n_out(), source.n_in()), source_(source), tensor_(&tensor) {
    quant_ = {.bits = 4,
              .group = n_in_ % 64 == 0 ? 64 : 32,
              .scale_f16 = false,
              .values = QuantValues::table,
              .table = nf4_table(),
              .wants_16bit = true};
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float*) const override {
    std::vector<float> x(static_cast<size_t>(n_in_));
    source_.row_f32(row, x.data());
    const auto size = static_cast<size_t>(quant_.group);
    for (size_t g = 0; g < groups(); ++g) {
      float most = 0;
      for (size_t i = g * size; i < (g + 1) * size; ++i) {
        if (!std::isfinite(x[i])) bad_row_.store(row);
        most = std::max(most, std::abs(x[i]));
      }
      scale[g] = most;
      const float inverse = most > 0 ? 1 / most : 0;
      for (size_t i = g * size; i < (g + 1) * size; ++i)
        q[i] = static_cast<int8_t>(nf4_code(x[i] * inverse));
    }
  }
  Status after_read() const override {
    const int64_t row = bad_row_.load();
    if (row < 0) return ok_status();
    return tensor_error(*tensor_, bad_data("row {} has a weight that is not finite", row));
  }

 private:
  TensorSource source_;
  const TensorInfo* tensor_;
  mutable std::atomic<int64_t> bad_row_ = -1;
};

// The largest magnitude of the whole matrix.
Result<float> largest(const TensorSource& source, const TensorInfo& tensor) {
  std::vector<float> x(static_cast<size_t>(source.n_in()));
  float most = 0;
  for (int64_t row = 0; row < source.n_out(); ++row) {
    source.row_f32(row, x.data());
    for (const float v : x) {
      if (!std::isfinite(v))
        return tensor_error(tensor, bad_data("row {} has a weight that is not finite", row));
      most = std::max(most, std::abs(v));
    }
  }
  return most;
}

}  // namespace

LinearResult make_quantising_source(const LayerTensors& l) {
  PF_ASSIGN(const TensorInfo* weight, l.required("weight"));
  PF_ASSIGN(const TensorSource source, TensorSource::make(*weight, l.n_out, l.n_in));
  if (source.quant()) return std::make_unique<TensorSource>(source);
  if (l.scheme.layout == WeightLayout::to_nf4)
    return std::make_unique<ToNf4Source>(source, *weight);
  PF_ASSIGN(const float most, largest(source, *weight));
  return std::make_unique<ToFp8Source>(source, most > 0 ? most / kFp8Max : 1.0f);
}

}  // namespace pagefold
