// Dense float32 matrices for calibration: products, a Cholesky factor, its inverse. Values do not
// depend on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "quantize/panel_product.h"

namespace pagefold {

class LinearAlgebra {
 public:
  // isa: auto, scalar, avx2, avx512, as elsewhere; the best the CPU has that is no wider.
  LinearAlgebra(const std::string& isa, ThreadPool& pool);

  // c [m][n] += a^T b, a: [k][m] with lda, b: [k][n] with ldb. upper_only: tiles wholly below the
  // diagonal are left out (c square and symmetric; see mirror()).
  void add_transposed_product(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                              const float* b, int64_t ldb, float* c, int64_t ldc,
                              bool upper_only = false) const;
  // c [m][n] += alpha a b, a: [m][k].
  void add_product(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float* c, int64_t ldc) const;

  // The upper triangular u with u^T u = the inverse of h (symmetric, [n][n], both triangles): what
  // GPTQ's error compensation reads row by row. Below the diagonal u is 0. Error: h is not
  // positive definite.
  Result<std::vector<float>> inverse_factor(std::vector<float> h, int64_t n) const;

  ThreadPool& pool() const { return pool_; }

 private:
  void product(int64_t m, int64_t n, int64_t k, std::vector<float>& a_panels, const float* b,
               int64_t ldb, float* c, int64_t ldc, bool upper_only) const;
  Status cholesky(std::vector<float>& h, int64_t n) const;
  void invert_lower(std::vector<float>& l, int64_t n) const;

  PanelProduct panel_;
  ThreadPool& pool_;
};

// Copies the upper triangle of [n][n] to the lower one.
void mirror(std::vector<float>& c, int64_t n);

}  // namespace pagefold
