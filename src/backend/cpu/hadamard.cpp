#include "backend/cpu/hadamard.h"

#include <cmath>

namespace pagefold::cpu {
namespace {

// (a, b) -> (a + b, a - b) over n floats each.
void butterflies(float* a, float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float sum = a[i] + b[i], difference = a[i] - b[i];
    a[i] = sum;
    b[i] = difference;
  }
}

// Short runs side by side: the compiler turns the constant count into vector code.
template <int kRun>
void stage(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * kRun) butterflies(x + i, x + i + kRun, kRun);
}

}  // namespace

void rotate_hadamard(float* x, int dim, int stride) {
  const int size = dim & -dim;
  const int64_t n = int64_t{dim} * stride;
  for (int64_t half = stride; half < int64_t{size} * stride; half *= 2) {
    switch (half) {
      case 1:
        stage<1>(x, n);
        break;
      case 2:
        stage<2>(x, n);
        break;
      case 4:
        stage<4>(x, n);
        break;
      default:
        for (int64_t i = 0; i < n; i += 2 * half) butterflies(x + i, x + i + half, half);
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace pagefold::cpu
