#include "quantize/kld_meter.h"

#include <algorithm>
#include <cmath>

#include "base/kld.h"
#include "base/percentile.h"
#include "quantize/tensor_output.h"

namespace pagefold {
namespace {

constexpr int64_t kSlice = 2048;

void normalise(std::vector<float>& x, const std::vector<float>& gamma, double eps) {
  const size_t n = gamma.size();
  for (size_t at = 0; at < x.size(); at += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{x[at + i]} * double{x[at + i]};
    const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i)
      x[at + i] = static_cast<float>(double{x[at + i]} * scale * double{gamma[i]});
  }
}

}  // namespace

KldReport measure_kld(const SourceModel& source, DType dtype, std::vector<float> reference,
                      std::vector<float> ours, const LinearAlgebra& math) {
  const int64_t hidden = source.config().shape.hidden, vocab = source.config().shape.vocab_size;
  const auto rows = static_cast<int64_t>(reference.size()) / hidden;
  std::vector<float> gamma = source.read(source.final_norm()).values;
  normalise(reference, gamma, source.config().rms_eps);
  round_to(dtype, gamma.data(), hidden);
  normalise(ours, gamma, source.config().rms_eps);
  const SourceTensor& head = source.head() ? *source.head() : source.embedding();
  std::vector<KldRow> sums(static_cast<size_t>(rows));
  for (int64_t first = 0; first < vocab; first += kSlice) {
    const int64_t n = std::min(kSlice, vocab - first);
    std::vector<float> w(static_cast<size_t>(n * hidden)), columns(w.size());
    std::vector<float> a(static_cast<size_t>(rows * n)), b(a.size());
    source.read_rows(head, first, n, w.data());
    const auto logits = [&](const std::vector<float>& x, std::vector<float>& out) {
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t i = 0; i < hidden; ++i)
          columns[static_cast<size_t>(i * n + r)] = w[static_cast<size_t>(r * hidden + i)];
      }
      math.add_product(rows, n, hidden, 1.0f, x.data(), hidden, columns.data(), n, out.data(), n);
    };
    logits(reference, a);
    round_to(dtype, w.data(), n * hidden);
    logits(ours, b);
    math.pool().run([&](int thread, int threads) {
      const Range mine = share_of(rows, thread, threads);
      for (int64_t r = mine.begin; r < mine.end; ++r)
        sums[static_cast<size_t>(r)].add(a.data() + r * n, b.data() + r * n, n, first);
    });
  }
  source.release(head);
  KldReport out;
  out.tokens = rows;
  std::vector<double> all;
  for (const KldRow& row : sums) {
    all.push_back(std::max(0.0, row.kld()));  // rounding may leave a hair less than nothing
    out.mean += all.back() / static_cast<double>(rows);
    out.top1 += static_cast<double>(row.same_top()) / static_cast<double>(rows);
  }
  if (!all.empty()) out.p99 = percentile(all, 0.99);
  return out;
}

}  // namespace pagefold
