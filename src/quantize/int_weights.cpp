#include "quantize/int_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace pagefold {
namespace {

constexpr float kLeastScale = 0x1p-24f;  // the smallest positive float16

float to_f16_scale(float scale) {
  return std::clamp(f16_to_f32(f32_to_f16(scale)), kLeastScale, 65504.0f);
}

OutTensor words(std::string suffix, std::vector<int64_t> shape, const std::vector<uint32_t>& w) {
  OutTensor t{std::move(suffix), TensorType::I32, std::move(shape), {}};
  t.bytes.resize(w.size() * 4);
  std::memcpy(t.bytes.data(), w.data(), t.bytes.size());
  return t;
}

// [rows][groups] -> [groups][rows]
OutTensor scales(const IntWeights& w) {
  std::vector<uint16_t> s(w.scale.size());
  const int64_t groups = w.groups();
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g)
      s[static_cast<size_t>(g * w.rows + r)] = w.scale[static_cast<size_t>(r * groups + g)];
  }
  OutTensor t{"scales", TensorType::F16, {groups, w.rows}, {}};
  t.bytes.resize(s.size() * 2);
  std::memcpy(t.bytes.data(), s.data(), t.bytes.size());
  return t;
}

// Puts a value of `bits` bits at place i of a stream that begins at `stream` and goes on every
// `stride` words. A value may straddle two words (3 bits).
void put_bits(uint32_t* stream, int64_t stride, int64_t i, int bits, uint32_t value) {
  const int64_t bit = i * bits, word = bit / 32, shift = bit % 32;
  stream[word * stride] |= value << shift;
  if (shift + bits > 32) stream[(word + 1) * stride] |= value >> (32 - shift);
}

}  // namespace

GroupScale group_scale(std::span<const float> values, const IntRule& rule, float shrink) {
  const int max_q = (1 << rule.bits) - 1;
  float low = 0, high = 0;
  for (const float v : values) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (rule.symmetric) {
    high = std::max(high, -low);
    low = -high;
  }
  low *= shrink;
  high *= shrink;
  GroupScale g;
  g.zero = rule.symmetric ? (max_q + 1) / 2 : rule.least_zero;
  if (high - low <= 0) return g;  // all zero: any scale will do
  g.scale = to_f16_scale((high - low) / static_cast<float>(max_q));
  if (!rule.symmetric) {
    const auto zero = static_cast<int>(std::rint(-low / g.scale));
    g.zero = std::clamp(zero, rule.least_zero, max_q);
  }
  return g;
}

IntWeights round_to_nearest(const Matrix& w, int64_t group, const IntRule& rule) {
  IntWeights out{rule.bits, w.rows, w.cols, group, {}, {}, {}, {}};
  out.q.resize(w.values.size());
  const int max_q = (1 << rule.bits) - 1;
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t at = 0; at < w.cols; at += group) {
      const GroupScale g = group_scale({w.row(r) + at, static_cast<size_t>(group)}, rule);
      out.zero.push_back(static_cast<uint8_t>(g.zero));
      out.scale.push_back(f32_to_f16(g.scale));
      for (int64_t i = at; i < at + group; ++i)
        out.q[static_cast<size_t>(r * w.cols + i)] =
            static_cast<uint8_t>(quantize_int(w.row(r)[i], g, max_q));
    }
  }
  return out;
}

Matrix int_values(const IntWeights& w) {
  Matrix out{w.rows, w.cols, std::vector<float>(w.q.size())};
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t k = 0; k < w.cols; ++k) {
      const int64_t group = w.g_idx.empty() ? k / w.group : w.g_idx[static_cast<size_t>(k)];
      const auto g = static_cast<size_t>(r * w.groups() + group);
      out.row(r)[k] =
          int_value(w.q[static_cast<size_t>(r * w.cols + k)], {f16_to_f32(w.scale[g]), w.zero[g]});
    }
  }
  return out;
}

std::vector<OutTensor> pack_awq(const IntWeights& w) {
  PF_CHECK(w.bits == 4 && w.rows % 8 == 0 && w.g_idx.empty());
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i of a word: row order[i]
  const int64_t n_words = w.rows / 8, groups = w.groups();
  std::vector<uint32_t> q(static_cast<size_t>(w.cols * n_words)),
      zeros(static_cast<size_t>(groups * n_words));
  for (int64_t c = 0; c < n_words; ++c) {
    for (int i = 0; i < 8; ++i) {
      const int64_t r = 8 * c + kOrder[i];
      const uint8_t* row = w.q.data() + r * w.cols;
      for (int64_t k = 0; k < w.cols; ++k)
        q[static_cast<size_t>(k * n_words + c)] |= uint32_t{row[k]} << (4 * i);
      for (int64_t g = 0; g < groups; ++g) {
        zeros[static_cast<size_t>(g * n_words + c)] |=
            uint32_t{w.zero[static_cast<size_t>(r * groups + g)]} << (4 * i);
      }
    }
  }
  return {words("qweight", {w.cols, n_words}, q), words("qzeros", {groups, n_words}, zeros),
          scales(w)};
}

std::vector<OutTensor> pack_gptq(const IntWeights& w, bool v2) {
  PF_CHECK(w.cols * w.bits % 32 == 0 && w.rows * w.bits % 32 == 0);
  const int64_t q_words = w.cols * w.bits / 32, z_words = w.rows * w.bits / 32, groups = w.groups();
  const uint32_t mask = (1u << w.bits) - 1;
  std::vector<uint32_t> q(static_cast<size_t>(q_words * w.rows)),
      zeros(static_cast<size_t>(groups * z_words));
  for (int64_t r = 0; r < w.rows; ++r) {
    const uint8_t* row = w.q.data() + r * w.cols;
    for (int64_t k = 0; k < w.cols; ++k) put_bits(q.data() + r, w.rows, k, w.bits, row[k]);
    for (int64_t g = 0; g < groups; ++g) {
      const uint32_t zero = w.zero[static_cast<size_t>(r * groups + g)];
      put_bits(zeros.data() + g * z_words, 1, r, w.bits, (v2 ? zero : zero - 1) & mask);
    }
  }
  std::vector<int32_t> g_idx = w.g_idx;
  for (int64_t k = 0; w.g_idx.empty() && k < w.cols; ++k)
    g_idx.push_back(static_cast<int32_t>(k / w.group));
  OutTensor index{"g_idx", TensorType::I32, {w.cols}, {}};
  index.bytes.resize(g_idx.size() * 4);
  std::memcpy(index.bytes.data(), g_idx.data(), index.bytes.size());
  return {words("qweight", {q_words, w.rows}, q), words("qzeros", {groups, z_words}, zeros),
          scales(w), std::move(index)};
}

}  // namespace pagefold
