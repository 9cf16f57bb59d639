#include "quantize/linear_algebra.h"

#include <algorithm>
#include <cmath>

namespace pagefold {
namespace {

constexpr int64_t kDepth = 512;   // of k in one pass: a pair of panels stays in the cache
constexpr int64_t kColumns = 64;  // columns of a factorisation step

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

PanelProduct pick(const std::string& isa) {
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  const bool mid = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (wide && (isa == "auto" || isa == "avx512")) return panel_product_avx512;
  if (mid && isa != "scalar") return panel_product_avx2;
  return panel_product_scalar;
}

// [k][width of src] -> panels of `panel` columns, [panels][k][panel], zeros beyond m.
void pack(int64_t m, int64_t k, int64_t panel, const float* src, int64_t ld, float* out) {
  for (int64_t p = 0; p < m; p += panel) {
    const int64_t n = std::min(panel, m - p);
    for (int64_t r = 0; r < k; ++r, out += panel) {
      std::copy_n(src + r * ld + p, n, out);
      std::fill(out + n, out + panel, 0.0f);
    }
  }
}

}  // namespace

LinearAlgebra::LinearAlgebra(const std::string& isa, ThreadPool& pool)
    : panel_(pick(isa)), pool_(pool) {}

// a_panels: [ceil(m / 8)][k][8].
void LinearAlgebra::product(int64_t m, int64_t n, int64_t k, std::vector<float>& a_panels,
                            const float* b, int64_t ldb, float* c, int64_t ldc,
                            bool upper_only) const {
  const int64_t panels = (n + kPanelB - 1) / kPanelB;
  pool_.run([&](int thread, int threads) {
    std::vector<float> b_panel(static_cast<size_t>(std::min(k, kDepth) * kPanelB));
    // Dealt out in turn, since panels of a triangle differ in work.
    for (int64_t p = thread; p < panels; p += threads) {
      const int64_t j0 = p * kPanelB, width = std::min<int64_t>(kPanelB, n - j0);
      for (int64_t at = 0; at < k; at += kDepth) {
        const int64_t depth = std::min(kDepth, k - at);
        pack(width, depth, kPanelB, b + at * ldb + j0, ldb, b_panel.data());
        for (int64_t i0 = 0; i0 < m; i0 += kPanelA) {
          if (upper_only && i0 >= j0 + kPanelB) break;
          const float* a = a_panels.data() + (i0 * k + at * kPanelA);
          if (width == kPanelB && i0 + kPanelA <= m) {
            panel_(depth, a, b_panel.data(), c + i0 * ldc + j0, ldc);
            continue;
          }
          float edge[kPanelA * kPanelB] = {};
          panel_(depth, a, b_panel.data(), edge, kPanelB);
          for (int64_t i = 0; i < std::min<int64_t>(kPanelA, m - i0); ++i) {
            for (int64_t j = 0; j < width; ++j) c[(i0 + i) * ldc + j0 + j] += edge[i * kPanelB + j];
          }
        }
      }
    }
  });
}

void LinearAlgebra::add_transposed_product(int64_t m, int64_t n, int64_t k, const float* a,
                                           int64_t lda, const float* b, int64_t ldb, float* c,
                                           int64_t ldc, bool upper_only) const {
  std::vector<float> panels(static_cast<size_t>(round_up(m, kPanelA) * k));
  pack(m, k, kPanelA, a, lda, panels.data());
  product(m, n, k, panels, b, ldb, c, ldc, upper_only);
}

void LinearAlgebra::add_product(int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                                int64_t lda, const float* b, int64_t ldb, float* c,
                                int64_t ldc) const {
  std::vector<float> panels(static_cast<size_t>(round_up(m, kPanelA) * k));
  for (int64_t i = 0; i < m; ++i) {
    float* to = panels.data() + i / kPanelA * kPanelA * k + i % kPanelA;
    for (int64_t r = 0; r < k; ++r) to[r * kPanelA] = alpha * a[i * lda + r];
  }
  product(m, n, k, panels, b, ldb, c, ldc, false);
}

// h becomes its lower factor l, l l^T = h. Left-looking by blocks of columns: what the columns
// before contribute is one product, the rest of a block is done in double.
Status LinearAlgebra::cholesky(std::vector<float>& h, int64_t n) const {
  for (int64_t j0 = 0; j0 < n; j0 += kColumns) {
    const int64_t width = std::min(kColumns, n - j0);
    if (j0 > 0) {
      std::vector<float> top(static_cast<size_t>(j0 * width));  // l[j0 ..][0 .. j0) transposed
      for (int64_t j = 0; j < width; ++j) {
        for (int64_t r = 0; r < j0; ++r)
          top[static_cast<size_t>(r * width + j)] = h[static_cast<size_t>((j0 + j) * n + r)];
      }
      add_product(n - j0, width, j0, -1.0f, h.data() + j0 * n, n, top.data(), width,
                  h.data() + j0 * n + j0, n);
    }
    std::vector<double> diagonal(static_cast<size_t>(width * width));
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = double{h[static_cast<size_t>((j0 + i) * n + j0 + j)]};
        for (int64_t r = 0; r < j; ++r)
          sum -= diagonal[static_cast<size_t>(i * width + r)] *
                 diagonal[static_cast<size_t>(j * width + r)];
        if (i == j && !(sum > 0 && std::isfinite(sum)))
          return bad_data("the matrix of input products is not positive definite at column {}",
                          j0 + i);
        const double pivot = i == j ? 1 : diagonal[static_cast<size_t>(j * width + j)];
        diagonal[static_cast<size_t>(i * width + j)] = i == j ? std::sqrt(sum) : sum / pivot;
        h[static_cast<size_t>((j0 + i) * n + j0 + j)] =
            static_cast<float>(diagonal[static_cast<size_t>(i * width + j)]);
      }
    }
    pool_.run([&](int thread, int threads) {
      const Range mine = share_of(n - j0 - width, thread, threads);
      std::vector<double> x(static_cast<size_t>(width));
      for (int64_t i = j0 + width + mine.begin; i < j0 + width + mine.end; ++i) {
        float* row = h.data() + i * n + j0;
        for (int64_t j = 0; j < width; ++j) {
          const double* d = diagonal.data() + j * width;
          double sum = double{row[j]};
          for (int64_t r = 0; r < j; ++r) sum -= x[static_cast<size_t>(r)] * d[r];
          x[static_cast<size_t>(j)] = sum / d[j];
        }
        for (int64_t j = 0; j < width; ++j) row[j] = static_cast<float>(x[static_cast<size_t>(j)]);
      }
    });
  }
  return ok_status();
}

// Block row by block row: x[I] = d^-1 (e[I] - l[I][.. I) x[.. I)), d the diagonal block.
void LinearAlgebra::invert_lower(std::vector<float>& l, int64_t n) const {
  std::vector<float> x(l.size(), 0.0f);
  for (int64_t i0 = 0; i0 < n; i0 += kColumns) {
    const int64_t height = std::min(kColumns, n - i0);
    if (i0 > 0)
      add_product(height, i0, i0, -1.0f, l.data() + i0 * n, n, x.data(), n, x.data() + i0 * n, n);
    for (int64_t i = 0; i < height; ++i) x[static_cast<size_t>((i0 + i) * n + i0 + i)] = 1;
    pool_.run([&](int thread, int threads) {
      const Range mine = share_of(i0 + height, thread, threads);
      std::vector<double> column(static_cast<size_t>(height));
      for (int64_t j = mine.begin; j < mine.end; ++j) {
        for (int64_t i = 0; i < height; ++i) {
          const float* d = l.data() + (i0 + i) * n + i0;
          double sum = double{x[static_cast<size_t>((i0 + i) * n + j)]};
          for (int64_t r = 0; r < i; ++r) sum -= double{d[r]} * column[static_cast<size_t>(r)];
          column[static_cast<size_t>(i)] = sum / double{d[i]};
        }
        for (int64_t i = 0; i < height; ++i)
          x[static_cast<size_t>((i0 + i) * n + j)] =
              static_cast<float>(column[static_cast<size_t>(i)]);
      }
    });
  }
  l = std::move(x);
}

// With the order of rows and columns turned round, h = m m^T where m is upper triangular; then the
// inverse of h is (m^-1)^T m^-1, and m^-1 is the factor: no inverse of h is ever formed.
Result<std::vector<float>> LinearAlgebra::inverse_factor(std::vector<float> h, int64_t n) const {
  std::reverse(h.begin(), h.end());
  PF_TRY(cholesky(h, n));
  invert_lower(h, n);
  std::reverse(h.begin(), h.end());
  for (int64_t i = 0; i < n; ++i) std::fill_n(h.data() + i * n, i, 0.0f);
  return h;
}

void mirror(std::vector<float>& c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j)
      c[static_cast<size_t>(i * n + j)] = c[static_cast<size_t>(j * n + i)];
  }
}

}  // namespace pagefold
