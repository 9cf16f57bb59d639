#include "kv/policies/rkv_math.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pagefold {

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

// Lanes of four: one chain of maxima or sums would wait for itself.
void rkv_redundancy(const float* similarity, int64_t n, float* out) {
  if (n == 0) return;
  constexpr int64_t kLanes = 4;
  const int64_t whole = n / kLanes * kLanes;
  float most_of[kLanes];
  std::fill_n(most_of, kLanes, similarity[0]);
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l)
      most_of[l] = most_of[l] < similarity[i + l] ? similarity[i + l] : most_of[l];
  }
  float most = *std::max_element(most_of, most_of + kLanes);
  for (int64_t i = whole; i < n; ++i) most = std::max(most, similarity[i]);
  double sums[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) out[i] = std::exp(similarity[i] - most);
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += double{out[i + l]};
  }
  for (int64_t i = whole; i < n; ++i) sums[0] += double{out[i]};
  const double inverse = 1 / ((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(double{out[i]} * inverse);
}

void rkv_importance(const float* logits, int64_t stride, int rows, int64_t n, float* importance) {
  std::fill_n(importance, n, 0.0f);
  if (n == 0 || rows == 0) return;
  std::vector<float> p(static_cast<size_t>(n));
  for (int r = 0; r < rows; ++r) {
    rkv_redundancy(logits + r * stride, n, p.data());  // the same softmax
    for (size_t i = 0; i < p.size(); ++i) importance[i] += p[i];
  }
  for (int64_t i = 0; i < n; ++i) importance[i] /= static_cast<float>(rows);
}

}  // namespace pagefold
