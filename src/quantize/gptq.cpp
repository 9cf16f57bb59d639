#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/half.h"

namespace pagefold {
namespace {

constexpr int64_t kBlock = 128;  // columns whose errors reach the others in one product
constexpr float kShrinks[] = {1.0f, 0.96f, 0.92f, 0.88f, 0.84f, 0.8f, 0.76f, 0.72f};

// The scale that loses least, each column weighed by how large its inputs are. Only symmetric codes
// are shrunk: their range is twice the largest magnitude whatever the other end is.
GroupScale best_scale(std::span<const float> values, const float* importance, const IntRule& rule) {
  GroupScale best = group_scale(values, rule);
  if (!rule.symmetric) return best;
  const int max_q = (1 << rule.bits) - 1;
  double least = INFINITY;
  for (const float shrink : kShrinks) {
    const GroupScale g = group_scale(values, rule, shrink);
    double loss = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float d = values[i] - int_value(quantize_int(values[i], g, max_q), g);
      loss += double{d} * double{d} * double{importance[i]};
    }
    if (loss < least) {
      least = loss;
      best = g;
    }
  }
  return best;
}

// A few rows of one matrix, columns in processing order.
class Rows {
 public:
  Rows(IntWeights& out, const GptqInputs& inputs, const GptqOptions& options, int64_t cols)
      : out_(out), inputs_(inputs), options_(options), cols_(cols) {}

  // Rounds columns [from, to) of one row; errors[to - from] of this block, each divided by the
  // factor's diagonal.
  void round_block(int64_t row, float* w, int64_t from, int64_t to, float* errors) {
    const int max_q = (1 << options_.rule.bits) - 1;
    for (int64_t i = from; i < to; ++i) {
      if (i % options_.group == 0) start_group(row, w, i);
      const int q = quantize_int(w[i], scale_, max_q);
      out_.q[static_cast<size_t>(row * cols_ + inputs_.order[static_cast<size_t>(i)])] =
          static_cast<uint8_t>(q);
      const float* u = inputs_.factor.data() + i * cols_;
      const float error = (w[i] - int_value(q, scale_)) / u[i];
      errors[i - from] = error;
      for (int64_t j = i + 1; j < to; ++j) w[j] -= error * u[j];
    }
  }
  // The scale of a group that began in an earlier block.
  void resume(const GroupScale& scale) { scale_ = scale; }
  const GroupScale& scale() const { return scale_; }

 private:
  // Groups never cross a block's end unless they are wider than it: then the columns of later
  // blocks count as they stand now.
  void start_group(int64_t row, const float* w, int64_t at) {
    scale_ = best_scale({w + at, static_cast<size_t>(options_.group)},
                        inputs_.importance.data() + at, options_.rule);
    const auto g = static_cast<size_t>(row * out_.groups() + at / options_.group);
    out_.scale[g] = f32_to_f16(scale_.scale);
    out_.zero[g] = static_cast<uint8_t>(scale_.zero);
  }

  IntWeights& out_;
  const GptqInputs& inputs_;
  const GptqOptions& options_;
  int64_t cols_;
  GroupScale scale_;
};

}  // namespace

Result<GptqInputs> gptq_inputs(std::vector<float> h, int64_t k, const GptqOptions& options,
                               const LinearAlgebra& math) {
  GptqInputs out;
  out.order.resize(static_cast<size_t>(k));
  std::iota(out.order.begin(), out.order.end(), 0);
  const auto diagonal = [&](int64_t i) -> float& { return h[static_cast<size_t>(i * k + i)]; };
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) {
    if (!std::isfinite(diagonal(i)))
      return bad_data("the calibration inputs are not finite (input {})", i);
    mean += double{diagonal(i)} / static_cast<double>(k);
  }
  if (mean <= 0) mean = 1;  // no input at all: plain rounding
  for (int64_t i = 0; i < k; ++i) {
    if (diagonal(i) <= 0) diagonal(i) = static_cast<float>(mean);
  }
  if (options.act_order) {
    std::stable_sort(out.order.begin(), out.order.end(),
                     [&](int32_t a, int32_t b) { return diagonal(a) > diagonal(b); });
    std::vector<float> ordered(h.size());
    for (int64_t i = 0; i < k; ++i) {
      const float* from = h.data() + int64_t{out.order[static_cast<size_t>(i)]} * k;
      for (int64_t j = 0; j < k; ++j)
        ordered[static_cast<size_t>(i * k + j)] = from[out.order[static_cast<size_t>(j)]];
    }
    h = std::move(ordered);
  }
  for (int64_t i = 0; i < k; ++i) out.importance.push_back(diagonal(i));
  // Rounding of the sums may leave the matrix a little indefinite; more damping always helps.
  for (double damp = options.damp; damp <= 1; damp *= 10) {
    std::vector<float> damped = h;
    for (int64_t i = 0; i < k; ++i)
      damped[static_cast<size_t>(i * k + i)] += static_cast<float>(damp * mean);
    auto factor = math.inverse_factor(std::move(damped), k);
    if (factor.ok()) {
      out.factor = *std::move(factor);
      return out;
    }
  }
  return bad_data("the calibration inputs give no usable matrix; use more or another text");
}

IntWeights gptq(const Matrix& w, const GptqInputs& inputs, const GptqOptions& options,
                const LinearAlgebra& math) {
  const int64_t k = w.cols;
  IntWeights out{options.rule.bits, w.rows, k, options.group, {}, {}, {}, {}};
  out.q.resize(w.values.size());
  out.zero.resize(static_cast<size_t>(w.rows * out.groups()));
  out.scale.resize(out.zero.size());
  Matrix rest{w.rows, k, std::vector<float>(w.values.size())};
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t i = 0; i < k; ++i) rest.row(r)[i] = w.row(r)[inputs.order[static_cast<size_t>(i)]];
  }
  std::vector<float> errors(static_cast<size_t>(w.rows * kBlock));
  std::vector<GroupScale> scales(static_cast<size_t>(w.rows));
  for (int64_t at = 0; at < k; at += kBlock) {
    const int64_t end = std::min(k, at + kBlock);
    math.pool().run([&](int thread, int threads) {
      const Range mine = share_of(w.rows, thread, threads);
      Rows rows(out, inputs, options, k);
      for (int64_t r = mine.begin; r < mine.end; ++r) {
        rows.resume(scales[static_cast<size_t>(r)]);
        rows.round_block(r, rest.row(r), at, end, errors.data() + r * kBlock);
        scales[static_cast<size_t>(r)] = rows.scale();
      }
    });
    if (end == k) break;
    math.add_product(w.rows, k - end, end - at, -1.0f, errors.data(), kBlock,
                     inputs.factor.data() + at * k + end, k, rest.values.data() + end, k);
  }
  if (options.act_order) {
    out.g_idx.resize(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i)
      out.g_idx[static_cast<size_t>(inputs.order[static_cast<size_t>(i)])] =
          static_cast<int32_t>(i / options.group);
  }
  return out;
}

}  // namespace pagefold
