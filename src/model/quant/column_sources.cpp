// AWQ and GPTQ: matrices of [n_in][n_out], with a zero point and a scale a group and output.
#include <numeric>

#include "formats/quant/awq.h"
#include "formats/quant/gptq.h"
#include "model/quant/grouped_source.h"

namespace pagefold {
namespace {

// The group size of the config, made whole; both must divide.
Result<int64_t> whole_group(const LayerTensors& l) {
  const int64_t group = l.scheme.group < 0 ? l.n_in : l.scheme.group;
  if (l.n_in % group == 0) return group;
  return bad_data("{}: the group size {} does not divide the {} inputs of '{}'", l.where, group,
                  l.n_in, l.module);
}

// Each group of the file becomes `times` groups of the backend, in place, from the back.
void repeat(float* values, int64_t groups, int64_t times) {
  if (times == 1) return;
  for (int64_t g = groups * times - 1; g >= 0; --g) values[g] = values[g / times];
}

class AwqSource final : public GroupedSource {
 public:
  AwqSource(const AwqMatrix& m, int group, bool scale_f16)
      : GroupedSource(m.n_out, m.n_in), m_(m), panels_(m.n_out, m.n_in, 64) {
    quant_ = {
        .bits = 4, .group = group, .has_zero = true, .scale_f16 = scale_f16, .wants_16bit = true};
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float* zero) const override {
    const int8_t* from = panels_.row(
        row, [&](int64_t first, int64_t n, int8_t* out) { awq_columns(m_, first, n, out); });
    std::copy_n(from, n_in_, q);
    awq_scales(m_, row, scale, zero);
    const int64_t times = m_.group / quant_.group;
    repeat(scale, m_.n_in / m_.group, times);
    repeat(zero, m_.n_in / m_.group, times);
  }

 private:
  AwqMatrix m_;
  mutable PanelCache panels_;
};

class GptqSource final : public GroupedSource {
 public:
  GptqSource(const GptqMatrix& m, int group, bool scale_f16, bool has_zero,
             std::vector<int32_t> order)
      : GroupedSource(m.n_out, m.n_in),
        m_(m),
        order_(std::move(order)),
        panels_(m.n_out, m.n_in, 16) {
    quant_ = {.bits = m.bits == 8 ? 8 : 4,
              .group = group,
              .has_zero = has_zero,
              .scale_f16 = scale_f16,
              .wants_16bit = true};
    quant_.order = order_;
  }
  void row_quant(int64_t row, int8_t* q, float* scale, float* zero) const override {
    const int8_t* from = panels_.row(
        row, [&](int64_t first, int64_t n, int8_t* out) { gptq_columns(m_, first, n, out); });
    if (order_.empty()) {
      std::copy_n(from, n_in_, q);
    } else {
      for (size_t j = 0; j < order_.size(); ++j) q[j] = from[order_[j]];
    }
    // Where all zero points are 0 the caller has no room for them.
    std::vector<float> unused;
    if (!quant_.has_zero) {
      unused.resize(static_cast<size_t>(m_.groups));
      zero = unused.data();
    }
    gptq_scales(m_, row, scale, zero);
    const int64_t times = m_.n_in / m_.groups / quant_.group;
    repeat(scale, m_.groups, times);
    if (quant_.has_zero) repeat(zero, m_.groups, times);
  }

 private:
  GptqMatrix m_;
  std::vector<int32_t> order_;
  mutable PanelCache panels_;
};

// qweight, qzeros, scales of `groups` rows; per_word: values a word of 32 bits (3-bit: 32 in 3).
struct Triple {
  const TensorInfo *qweight, *qzeros, *scales;
  ScaleFacts facts;
};
Result<Triple> take_triple(const LayerTensors& l, const Shape& weight, const Shape& zeros,
                           int64_t groups) {
  Triple t{};
  PF_ASSIGN(t.qweight, l.required("qweight"));
  PF_ASSIGN(t.qzeros, l.required("qzeros"));
  PF_ASSIGN(t.scales, l.required("scales"));
  PF_TRY(expect_type(*t.qweight, {TensorType::I32}));
  PF_TRY(expect_type(*t.qzeros, {TensorType::I32}));
  PF_TRY(expect_shape(*t.qweight, weight));
  PF_TRY(expect_shape(*t.qzeros, zeros));
  PF_TRY(expect_shape(*t.scales, {groups, l.n_out}));
  PF_ASSIGN(t.facts, check_scales(*t.scales));
  return t;
}

bool any_zero_point(const GptqMatrix& m) {
  std::vector<float> scale(static_cast<size_t>(m.groups)), zero(scale.size());
  for (int64_t n = 0; n < m.n_out; ++n) {
    gptq_scales(m, n, scale.data(), zero.data());
    if (std::any_of(zero.begin(), zero.end(), [](float z) { return z != 0; })) return true;
  }
  return false;
}

// Without act-order a g_idx of all zeros is a placeholder.
bool is_placeholder(const TensorInfo& g_idx) {
  return std::all_of(g_idx.data.begin(), g_idx.data.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

Result<std::vector<int32_t>> read_order(const LayerTensors& l, int64_t group) {
  const TensorInfo* t = l.optional("g_idx");
  const bool whole = group == l.n_in;  // one group: any order is the same
  if (!t) {
    if (!l.scheme.act_order || whole) return std::vector<int32_t>();
    return l.required("g_idx").status();
  }
  PF_TRY(expect_type(*t, {TensorType::I32}));
  PF_TRY(expect_shape(*t, {l.n_in}));
  if (!l.scheme.act_order && is_placeholder(*t)) return std::vector<int32_t>();
  auto order = group_order(t->data.data(), l.n_in, group);
  if (!order.ok()) return tensor_error(*t, order.status());
  return order;
}

}  // namespace

LinearResult make_awq_source(const LayerTensors& l) {
  PF_ASSIGN(const int64_t group, whole_group(l));
  PF_ASSIGN(const int packed, packed_group(l, group));
  if (l.n_out % 8 != 0)
    return bad_data("'{}' has {} outputs; AWQ packs them in eights", l.module, l.n_out);
  const int64_t words = l.n_out / 8, groups = l.n_in / group;
  PF_ASSIGN(const Triple t, take_triple(l, {l.n_in, words}, {groups, words}, groups));
  return std::make_unique<AwqSource>(
      AwqMatrix{t.qweight->data.data(), t.qzeros->data.data(), t.scales->data.data(),
                t.scales->type, l.n_in, l.n_out, group},
      packed, t.facts.f16);
}

LinearResult make_gptq_source(const LayerTensors& l) {
  PF_ASSIGN(const int64_t group, whole_group(l));
  PF_ASSIGN(const int packed, packed_group(l, group));
  const int64_t bits = l.scheme.bits, unit = 32 / std::gcd(int64_t{32}, bits);
  if (l.n_out % unit != 0 || l.n_in % unit != 0) {
    return bad_data("'{}' is {} x {}; {}-bit GPTQ packs both sides in {}s", l.module, l.n_out,
                    l.n_in, bits, unit);
  }
  const int64_t groups = l.n_in / group;
  PF_ASSIGN(const Triple t,
            take_triple(l, {l.n_in * bits / 32, l.n_out}, {groups, l.n_out * bits / 32}, groups));
  PF_ASSIGN(std::vector<int32_t> order, read_order(l, group));
  const GptqMatrix m{t.qweight->data.data(),
                     t.qzeros->data.data(),
                     t.scales->data.data(),
                     t.scales->type,
                     static_cast<int>(bits),
                     l.scheme.zeros_minus_one,
                     l.n_in,
                     l.n_out,
                     groups};
  const bool has_zero = bits != 8 || any_zero_point(m);
  return std::make_unique<GptqSource>(m, packed, t.facts.f16, has_zero, std::move(order));
}

}  // namespace pagefold
