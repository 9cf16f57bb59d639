#include "quantize/awq.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace pagefold {
namespace {

constexpr IntRule kRule{.bits = 4};
constexpr int kMaxQ = 15;
constexpr float kClips[] = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.65f, 0.6f, 0.55f};

// Evenly spaced outputs stand for all of them.
Matrix sample_rows(const Matrix& w, int64_t most) {
  const int64_t n = std::min(w.rows, most);
  Matrix out{n, w.cols, std::vector<float>(static_cast<size_t>(n * w.cols))};
  for (int64_t i = 0; i < n; ++i) std::copy_n(w.row(i * w.rows / n), w.cols, out.row(i));
  return out;
}

void round_group(float* values, int64_t n) {
  const GroupScale g = group_scale({values, static_cast<size_t>(n)}, kRule);
  for (int64_t i = 0; i < n; ++i) values[i] = int_value(quantize_int(values[i], g, kMaxQ), g);
}

// Sum over outputs and calibration rows of (x . (w - w'))^2, w' the rounded w under scales s:
// with d = w - w', d (sum x^T x) d^T for each output.
double loss_of(const Matrix& w, std::span<const float> s, const LinearInputs& inputs,
               const AwqOptions& options, const LinearAlgebra& math) {
  const int64_t k = w.cols;
  Matrix d = w;
  math.pool().run([&](int thread, int threads) {
    const Range mine = share_of(w.rows, thread, threads);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      float* row = d.row(r);
      for (int64_t i = 0; i < k; ++i) row[i] *= s[static_cast<size_t>(i)];
      for (int64_t at = 0; at < k; at += options.group) round_group(row + at, options.group);
      for (int64_t i = 0; i < k; ++i) row[i] = w.row(r)[i] - row[i] / s[static_cast<size_t>(i)];
    }
  });
  std::vector<float> e(d.values.size(), 0.0f);
  math.add_product(w.rows, k, k, 1.0f, d.values.data(), k, inputs.products.data(), k, e.data(), k);
  double loss = 0;
  for (size_t i = 0; i < e.size(); ++i) loss += double{e[i]} * double{d.values[i]};
  return loss;
}

// Mean over outputs of |w| relative to the largest of its group: [k].
std::vector<float> weight_magnitude(std::span<const Matrix> linears, int64_t group) {
  std::vector<float> out(static_cast<size_t>(linears[0].cols), 0.0f);
  int64_t rows = 0;
  for (const Matrix& w : linears) {
    rows += w.rows;
    for (int64_t r = 0; r < w.rows; ++r) {
      for (int64_t at = 0; at < w.cols; at += group) {
        float most = 1e-20f;
        for (int64_t i = at; i < at + group; ++i) most = std::max(most, std::abs(w.row(r)[i]));
        for (int64_t i = at; i < at + group; ++i)
          out[static_cast<size_t>(i)] += std::abs(w.row(r)[i]) / most;
      }
    }
  }
  for (float& v : out) v /= static_cast<float>(rows);
  return out;
}

// Inputs that must share a scale share the mean of what it is made of.
void join_tied(std::vector<float>& v, std::span<const int32_t> tied) {
  if (tied.empty()) return;
  std::vector<double> sum(v.size()), n(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    sum[static_cast<size_t>(tied[i])] += double{v[i]};
    n[static_cast<size_t>(tied[i])] += 1;
  }
  for (size_t i = 0; i < v.size(); ++i) {
    const auto t = static_cast<size_t>(tied[i]);
    v[i] = static_cast<float>(sum[t] / n[t]);
  }
}

// x^a / w^b, with the extremes at equal distances from 1, so that float16 holds all products.
std::vector<float> make_scales(const std::vector<float>& x, const std::vector<float>& w, double a,
                               double b) {
  std::vector<float> s(x.size());
  for (size_t i = 0; i < s.size(); ++i) {
    s[i] = static_cast<float>(std::pow(std::max(double{x[i]}, 1e-4), a) /
                              (std::pow(double{w[i]}, b) + 1e-4));
    s[i] = std::max(s[i], 1e-4f);
  }
  const auto [low, high] = std::minmax_element(s.begin(), s.end());
  const float middle = std::sqrt(*low * *high);
  for (float& v : s) v /= middle;
  return s;
}

void scale_columns(Matrix& w, std::span<const float> s) {
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t i = 0; i < w.cols; ++i) w.row(r)[i] *= s[static_cast<size_t>(i)];
  }
}
void divide_rows(Matrix& w, std::span<const float> s) {
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t i = 0; i < w.cols; ++i) w.row(r)[i] /= s[static_cast<size_t>(r)];
  }
}
void divide(std::vector<float>& v, std::span<const float> s) {
  for (size_t i = 0; i < v.size(); ++i) v[i] /= s[i];
}

}  // namespace

std::vector<float> awq_scales(std::span<const Matrix* const> linears, const LinearInputs& inputs,
                              std::span<const int32_t> tied, const AwqOptions& options,
                              const LinearAlgebra& math) {
  const auto k = static_cast<size_t>(inputs.width);
  std::vector<Matrix> samples;
  for (const Matrix* w : linears) samples.push_back(sample_rows(*w, options.most_rows));
  std::vector<float> x = inputs.mean_magnitude(), w = weight_magnitude(samples, options.group);
  join_tied(x, tied);
  join_tied(w, tied);
  std::vector<float> best(k, 1.0f);
  double least = INFINITY;
  const auto attempt = [&](std::vector<float> s) {
    double loss = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      // A sample stands for all rows of its matrix.
      loss += loss_of(samples[i], s, inputs, options, math) *
              static_cast<double>(linears[i]->rows) / static_cast<double>(samples[i].rows);
    }
    if (!(loss < least)) return;
    least = loss;
    best = std::move(s);
  };
  attempt(best);
  for (int step = 0; step < options.steps; ++step) {
    const double a = static_cast<double>(step) / options.steps;
    if (step > 0) attempt(make_scales(x, w, a, 0));
    attempt(make_scales(x, w, a, 1 - a));
  }
  return best;
}

IntWeights awq_round(const Matrix& w, std::span<const float> scales, const LinearInputs& inputs,
                     bool clip, const AwqOptions& options, const LinearAlgebra& math) {
  if (!clip) return round_to_nearest(w, options.group, kRule);
  const int64_t k = w.cols, n = options.group;
  IntWeights out{4, w.rows, k, n, {}, {}, {}, {}};
  out.q.resize(w.values.size());
  out.zero.resize(static_cast<size_t>(w.rows * out.groups()));
  out.scale.resize(out.zero.size());
  math.pool().run([&](int thread, int threads) {
    const Range mine = share_of(w.rows, thread, threads);
    std::vector<float> d(static_cast<size_t>(n)), e(static_cast<size_t>(n));
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      for (int64_t at = 0; at < k; at += n) {
        const float* values = w.row(r) + at;
        GroupScale best;
        double least = INFINITY;
        for (const float clip_to : kClips) {
          const GroupScale g = group_scale({values, static_cast<size_t>(n)}, kRule, clip_to);
          std::fill(e.begin(), e.end(), 0.0f);
          for (int64_t i = 0; i < n; ++i) {
            const float error = values[i] - int_value(quantize_int(values[i], g, kMaxQ), g);
            d[static_cast<size_t>(i)] = error / scales[static_cast<size_t>(at + i)];
            const float* h = inputs.products.data() + (at + i) * k + at;
            for (int64_t j = 0; j < n; ++j)
              e[static_cast<size_t>(j)] += d[static_cast<size_t>(i)] * h[j];
          }
          double loss = 0;
          for (size_t i = 0; i < d.size(); ++i) loss += double{d[i]} * double{e[i]};
          if (loss < least) {
            least = loss;
            best = g;
          }
        }
        const auto g = static_cast<size_t>(r * out.groups() + at / n);
        out.scale[g] = f32_to_f16(best.scale);
        out.zero[g] = static_cast<uint8_t>(best.zero);
        for (int64_t i = 0; i < n; ++i)
          out.q[static_cast<size_t>(r * k + at + i)] =
              static_cast<uint8_t>(quantize_int(values[i], best, kMaxQ));
      }
    }
  });
  return out;
}

std::array<std::vector<float>, kInputPoints> awq_scale_layer(HostLayer& l, int head_dim,
                                                             const LayerInputs& inputs,
                                                             const AwqOptions& options,
                                                             const LinearAlgebra& math) {
  std::array<std::vector<float>, kInputPoints> out;
  const auto at = [](InputPoint p) { return static_cast<size_t>(p); };
  const auto search = [&](InputPoint point, std::initializer_list<Matrix*> linears,
                          std::span<const int32_t> tied) -> const std::vector<float>& {
    const std::vector<const Matrix*> list(linears.begin(), linears.end());
    out[at(point)] = awq_scales(list, inputs[at(point)], tied, options, math);
    for (Matrix* w : linears) scale_columns(*w, out[at(point)]);
    return out[at(point)];
  };
  divide(l.input_norm, search(InputPoint::attention, {&l.q, &l.k, &l.v}, {}));

  // Input (h, d) of the output projection is dim d of the value head that query head h reads.
  const int64_t groups = l.q.rows / l.v.rows;
  std::vector<int32_t> value_row;
  for (int64_t i = 0; i < l.o.cols; ++i)
    value_row.push_back(static_cast<int32_t>(i / head_dim / groups * head_dim + i % head_dim));
  const std::vector<float>& o = search(InputPoint::attention_out, {&l.o}, value_row);
  std::vector<float> of_rows(static_cast<size_t>(l.v.rows), 1.0f);
  for (size_t i = 0; i < value_row.size(); ++i) of_rows[static_cast<size_t>(value_row[i])] = o[i];
  divide_rows(l.v, of_rows);
  if (!l.v_bias.empty()) divide(l.v_bias, of_rows);

  divide(l.post_norm, search(InputPoint::ffn, {&l.gate, &l.up}, {}));
  divide_rows(l.up, search(InputPoint::down, {&l.down}, {}));
  return out;
}

}  // namespace pagefold
