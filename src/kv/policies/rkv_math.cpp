#include "kv/policies/rkv_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/float4.h"

namespace pagefold {
namespace {

F4 shown4(const float* x, const float* hidden, int64_t i) {
  return hidden == nullptr ? load4(x + i) : load4(x + i) + load4(hidden + i);
}
float shown(const float* x, const float* hidden, int64_t i) {
  return hidden == nullptr ? x[i] : x[i] + hidden[i];
}

float largest(const float* x, const float* hidden, int64_t n) {
  F4 most = F4{} - std::numeric_limits<float>::infinity();
  const int64_t whole = n / 4 * 4;
  for (int64_t i = 0; i < whole; i += 4) most = max4(most, shown4(x, hidden, i));
  float result = max_of(most);
  for (int64_t i = whole; i < n; ++i) result = std::max(result, shown(x, hidden, i));
  return result;
}

// out[n] = exponentials of x less its maximum. Returns what makes their sum 1.
float softmax_weights(const float* x, const float* hidden, int64_t n, float* out) {
  constexpr int64_t kFold = 256;  // terms of a float32 sum
  const F4 most = F4{} + largest(x, hidden, n);
  double sum = 0;
  int64_t i = 0;
  while (i + 4 <= n) {
    F4 part = {};
    for (const int64_t end = std::min(i + kFold, n / 4 * 4); i < end; i += 4) {
      const F4 p = exp4(shown4(x, hidden, i) - most);
      store4(out + i, p);
      part += p;
    }
    sum += double{sum_of(part)};
  }
  for (; i < n; ++i) {
    out[i] = exp4(F4{} + shown(x, hidden, i) - most)[0];
    sum += double{out[i]};
  }
  return static_cast<float>(1 / sum);
}

}  // namespace

void rkv_similarity(const float* k, int64_t n, int head_dim, float threshold, bool guarded,
                    float* out) {
  std::vector<double> inverse(static_cast<size_t>(n)), row(static_cast<size_t>(n));
  std::vector<double> sums(static_cast<size_t>(n), 0.0);
  const auto dot = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int c = 0; c < head_dim; ++c) {
      sum += static_cast<double>(k[a * head_dim + c]) * static_cast<double>(k[b * head_dim + c]);
    }
    return sum;
  };
  for (int64_t i = 0; i < n; ++i) {
    const double norm = std::sqrt(dot(i, i));
    inverse[static_cast<size_t>(i)] = norm > 0 ? 1.0 / norm : 0.0;
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t cleared = guarded ? -1 : 0;
    for (int64_t j = 0; j < n; ++j) {
      double& cosine = row[static_cast<size_t>(j)];
      cosine = i == j
                   ? 0.0
                   : dot(i, j) * inverse[static_cast<size_t>(i)] * inverse[static_cast<size_t>(j)];
      if (cosine > static_cast<double>(threshold)) cleared = j;
    }
    if (cleared >= 0) row[static_cast<size_t>(cleared)] = 0.0;
    for (size_t j = 0; j < row.size(); ++j) sums[j] += row[j];
  }
  for (int64_t j = 0; j < n; ++j) {
    out[j] = static_cast<float>(sums[static_cast<size_t>(j)] / static_cast<double>(n));
  }
}

void rkv_redundancy(const float* similarity, const float* hidden, int64_t n, float* out) {
  if (n == 0) return;
  const float inverse = softmax_weights(similarity, hidden, n, out);
  for (int64_t i = 0; i < n; ++i) out[i] *= inverse;
}

void rkv_importance(const float* logits, int64_t stride, int rows, const float* hidden, int64_t n,
                    float* importance) {
  std::fill_n(importance, n, 0.0f);
  if (n == 0 || rows == 0) return;
  std::vector<float> p(static_cast<size_t>(n));
  for (int r = 0; r < rows; ++r) {
    const float inverse = softmax_weights(logits + r * stride, hidden, n, p.data());
    for (size_t i = 0; i < p.size(); ++i) importance[i] += p[i] * inverse;
  }
  for (int64_t i = 0; i < n; ++i) importance[i] /= static_cast<float>(rows);
}

}  // namespace pagefold
