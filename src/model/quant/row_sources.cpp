// compressed-tensors (packed) and plain int8 or fp8 matrices with scales: [n_out][n_in].
#include <atomic>
#include <numeric>

#include "formats/quant/compressed_tensors.h"
#include "formats/quant/fp8.h"
#include "formats/quant/gptq.h"
#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

// Scales of one number for each block of rows x inputs.
struct ScaleGrid {
  const TensorInfo* scales = nullptr;
  const TensorInfo* zeros = nullptr;  // int8, in the same shape
  int64_t block_out = 1, block_in = 1;
  int64_t columns = 1;  // blocks side by side

  int64_t at(int64_t row, int64_t input) const {
    return row / block_out * columns + input / block_in;
  }
  float scale(int64_t i) const { return plain_value(scales->type, scales->data.data(), i); }
  float zero(int64_t i) const {
    return static_cast<float>(std::to_integer<uint8_t>(zeros->data[static_cast<size_t>(i)]) ^ 128) -
           128.0f;
  }
};

// What the shape of the scales says: one number, one a row, or a grid.
Result<ScaleGrid> scale_grid(const LayerTensors& l, const TensorInfo& t) {
  ScaleGrid g{.scales = &t, .block_out = l.n_out, .block_in = l.n_in};
  const WeightScheme& s = l.scheme;
  if (t.elements() == 1 && t.shape.size() <= 2 && s.block_out == 0 && s.group < 0) return g;
  if (s.block_out > 0) {
    g.block_out = s.block_out;
    g.block_in = s.block_in;
    g.columns = (l.n_in + s.block_in - 1) / s.block_in;
    PF_TRY(expect_shape(t, {(l.n_out + s.block_out - 1) / s.block_out, g.columns}));
    return g;
  }
  g.block_out = 1;
  if (t.shape == Shape{l.n_out}) return g;
  g.columns = t.shape.size() == 2 ? t.shape[1] : 0;
  if (s.group > 0) {
    if (l.n_in % s.group != 0) {
      return bad_data("{}: the group size {} does not divide the {} inputs of '{}'", l.where,
                      s.group, l.n_in, l.module);
    }
    PF_TRY(expect_shape(t, {l.n_out, l.n_in / s.group}));
  }
  const bool fits =
      t.shape.size() == 2 && t.shape[0] == l.n_out && g.columns > 0 && l.n_in % g.columns == 0;
  if (!fits) return expect_shape(t, {l.n_out, 1});
  g.block_in = l.n_in / g.columns;
  return g;
}

class ScaledSource final : public GroupedSource {
 public:
  ScaledSource(const TensorInfo& weight, const ScaleGrid& grid, int64_t n_out, int64_t n_in,
               const QuantSource& quant)
      : GroupedSource(n_out, n_in), weight_(&weight), grid_(grid) {
    quant_ = quant;
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float* zero) const override {
    const auto* from = reinterpret_cast<const int8_t*>(weight_->data.data()) + row * n_in_;
    std::copy_n(from, n_in_, q);
    if (quant_.values == QuantValues::fp8 && std::any_of(from, from + n_in_, [](int8_t c) {
          return fp8_e4m3_is_nan(static_cast<uint8_t>(c));
        }))
      bad_row_.store(row);
    for (size_t g = 0; g < groups(); ++g) {
      const int64_t at = grid_.at(row, static_cast<int64_t>(g) * quant_.group);
      scale[g] = grid_.scale(at);
      if (quant_.has_zero) zero[g] = grid_.zero(at);
    }
  }
  Status after_read() const override {
    const int64_t row = bad_row_.load();
    if (row < 0) return ok_status();
    return tensor_error(*weight_, bad_data("row {} has a weight that is not a number", row));
  }

 private:
  const TensorInfo* weight_;
  ScaleGrid grid_;
  mutable std::atomic<int64_t> bad_row_ = -1;
};

class CtPackedSource final : public GroupedSource {
 public:
  struct Parts {
    const TensorInfo *packed, *zeros;  // zeros: null, packed int32 or plain int8
    ScaleGrid grid;
    int bits;
  };
  CtPackedSource(const Parts& p, int64_t n_out, int64_t n_in, const QuantSource& quant,
                 std::vector<int32_t> order)
      : GroupedSource(n_out, n_in), p_(p), order_(std::move(order)) {
    quant_ = quant;
    quant_.order = order_;
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float* zero) const override {
    if (order_.empty()) {
      ct_unpack_row(p_.packed->data.data(), row, n_in_, p_.bits, q);
    } else {
      std::vector<int8_t> plain(static_cast<size_t>(n_in_));
      ct_unpack_row(p_.packed->data.data(), row, n_in_, p_.bits, plain.data());
      for (size_t j = 0; j < order_.size(); ++j) q[j] = plain[static_cast<size_t>(order_[j])];
    }
    const int64_t times = p_.grid.block_in / quant_.group;
    for (size_t g = 0; g < groups(); ++g)
      scale[g] = p_.grid.scale(p_.grid.at(row, static_cast<int64_t>(g) * quant_.group));
    if (quant_.has_zero) zero_points(row, times, zero);
  }

 private:
  void zero_points(int64_t row, int64_t times, float* zero) const {
    const float middle = p_.bits == 4 ? 8.0f : 0.0f;
    if (!p_.zeros) {
      std::fill_n(zero, groups(), middle);
      return;
    }
    std::vector<float> file(static_cast<size_t>(p_.grid.columns));
    if (p_.zeros->type == TensorType::I32) {
      ct_zero_points(p_.zeros->data.data(), row / p_.grid.block_out, p_.grid.columns, p_.bits,
                     file.data());
    } else {
      for (size_t g = 0; g < file.size(); ++g)
        file[g] =
            middle + p_.grid.zero(p_.grid.at(row, static_cast<int64_t>(g) * p_.grid.block_in));
    }
    for (size_t g = 0; g < groups(); ++g) zero[g] = file[g / static_cast<size_t>(times)];
  }
  Parts p_;
  std::vector<int32_t> order_;
};

Status check_weight_shape(const LayerTensors& l) {
  const TensorInfo* t = l.optional("weight_shape");
  if (!t) return ok_status();
  PF_TRY(expect_type(*t, {TensorType::I64, TensorType::I32}));
  PF_TRY(expect_shape(*t, {2}));
  for (size_t i = 0; i < 2; ++i) {
    const size_t size = t->type == TensorType::I64 ? 8 : 4;
    int64_t value = 0;  // little-endian, and no side is negative
    std::memcpy(&value, t->data.data() + i * size, size);
    if (value != (i == 0 ? l.n_out : l.n_in))
      return tensor_error(*t,
                          bad_data("dim {} is {}, expected {} x {}", i, value, l.n_out, l.n_in));
  }
  return ok_status();
}

Result<std::vector<int32_t>> ct_order(const LayerTensors& l, int64_t group) {
  const TensorInfo* t = l.optional("weight_g_idx");
  if (!t) {
    if (l.scheme.act_order && group != l.n_in) return l.required("weight_g_idx").status();
    return std::vector<int32_t>();
  }
  PF_TRY(expect_type(*t, {TensorType::I32}));
  PF_TRY(expect_shape(*t, {l.n_in}));
  // -1 everywhere: made, but not used.
  const auto all = [&](std::byte b) {
    return std::all_of(t->data.begin(), t->data.end(), [b](std::byte x) { return x == b; });
  };
  if (!l.scheme.act_order && (all(std::byte{0}) || all(std::byte{255})))
    return std::vector<int32_t>();
  auto order = group_order(t->data.data(), l.n_in, group);
  if (!order.ok()) return tensor_error(*t, order.status());
  return order;
}

// Scales of activations are checked and not used: activations are quantised as they come, or not.
Status check_inputs(const LayerTensors& l) {
  if (const TensorInfo* t = l.optional("input_scale")) PF_TRY(check_positive(*t));
  (void)l.optional("input_zero_point");
  (void)l.optional("input_scale_ub");
  return ok_status();
}

}  // namespace

LinearResult make_scaled_source(const LayerTensors& l) {
  const bool fp8 = l.scheme.layout == WeightLayout::fp8;
  PF_ASSIGN(const TensorInfo* weight, l.required("weight"));
  PF_TRY(expect_type(*weight, {fp8 ? TensorType::F8_E4M3 : TensorType::I8}));
  PF_TRY(expect_shape(*weight, {l.n_out, l.n_in}));
  const TensorInfo* scales = l.optional("weight_scale_inv");
  if (!scales) {
    PF_ASSIGN(scales, l.required("weight_scale"));
  }
  PF_ASSIGN(const ScaleFacts facts, check_scales(*scales));
  PF_ASSIGN(ScaleGrid grid, scale_grid(l, *scales));
  PF_TRY(check_inputs(l));
  PF_ASSIGN(const int group, packed_group(l, grid.block_in));
  QuantSource q{.bits = 8,
                .group = group,
                .scale_f16 = facts.f16,
                .values = fp8 ? QuantValues::fp8 : QuantValues::linear,
                .wants_16bit = !l.scheme.int8_inputs};
  if (const TensorInfo* zeros = l.optional("weight_zero_point"); zeros && !l.scheme.symmetric) {
    PF_TRY(expect_type(*zeros, {TensorType::I8}));
    PF_TRY(expect_shape(*zeros, scales->shape));
    grid.zeros = zeros;
    q.has_zero = true;
  } else if (!fp8 && !l.scheme.symmetric) {
    return l.required("weight_zero_point").status();
  }
  return std::make_unique<ScaledSource>(*weight, grid, l.n_out, l.n_in, q);
}

LinearResult make_ct_packed_source(const LayerTensors& l) {
  const int64_t each = 32 / l.scheme.bits;
  PF_ASSIGN(const TensorInfo* packed, l.required("weight_packed"));
  PF_ASSIGN(const TensorInfo* scales, l.required("weight_scale"));
  PF_TRY(expect_type(*packed, {TensorType::I32}));
  PF_TRY(expect_shape(*packed, {l.n_out, (l.n_in + each - 1) / each}));
  PF_TRY(check_weight_shape(l));
  PF_ASSIGN(const ScaleFacts facts, check_scales(*scales));
  PF_ASSIGN(ScaleGrid grid, scale_grid(l, *scales));
  PF_TRY(check_inputs(l));
  PF_ASSIGN(const int group, packed_group(l, grid.block_in));
  PF_ASSIGN(std::vector<int32_t> order, ct_order(l, grid.block_in));
  const TensorInfo* zeros = nullptr;
  if (!l.scheme.symmetric) {
    PF_ASSIGN(zeros, l.required("weight_zero_point"));
    const int64_t rows = grid.block_out == 1 ? l.n_out : 1;
    if (zeros->type == TensorType::I32) {
      PF_TRY(expect_shape(*zeros, {(rows + each - 1) / each, grid.columns}));
    } else {
      PF_TRY(expect_type(*zeros, {TensorType::I32, TensorType::I8}));
      PF_TRY(expect_shape(*zeros, scales->shape));
      grid.zeros = zeros;
    }
  }
  const QuantSource q{.bits = l.scheme.bits,
                      .group = group,
                      .has_zero = l.scheme.bits == 4 || zeros != nullptr,
                      .scale_f16 = facts.f16,
                      .wants_16bit = true};
  return std::make_unique<CtPackedSource>(CtPackedSource::Parts{packed, zeros, grid, l.scheme.bits},
                                          l.n_out, l.n_in, q, std::move(order));
}

}  // namespace pagefold
