#include "kv/policies/triattention_math.h"

#include <algorithm>
#include <cmath>
#include <complex>

namespace pagefold {

std::vector<int64_t> triattention_offsets(int64_t most) {
  std::vector<int64_t> offsets;
  for (int64_t d = 1; d <= std::max<int64_t>(1, most); d *= 2) offsets.push_back(d);
  return offsets;
}

void triattention_fold(const QueryStatsView& stats, const KvModel& model,
                       const TriattentionFold& fold, KeyCoefficientBuffer& out) {
  const auto bands = static_cast<size_t>(model.bands());
  const size_t heads = static_cast<size_t>(model.n_layers) * static_cast<size_t>(model.n_heads);
  const size_t sets = fold.max ? fold.offsets.size() : 1;
  std::vector<std::complex<double>> phase(sets * bands, 0.0);
  for (size_t d = 0; d < fold.offsets.size(); ++d) {
    for (size_t f = 0; f < bands; ++f) {
      const double angle = model.inv_freq[f] * static_cast<double>(fold.next_pos + fold.offsets[d]);
      phase[(fold.max ? d : 0) * bands + f] += std::polar(1.0, angle);
    }
  }
  const double scale2 = fold.attention_scaling * fold.attention_scaling;
  const double per_set = fold.max ? 1.0 : static_cast<double>(fold.offsets.size());
  const double unit = scale2 / stats.rows;
  out.sets = static_cast<int>(sets);
  out.w_re.resize(sets * heads * bands);
  out.w_im.resize(sets * heads * bands);
  out.e.resize(heads * bands);
  for (size_t h = 0; h < heads; ++h) {
    for (size_t f = 0; f < bands; ++f) {
      const size_t i = h * bands + f;
      const std::complex<double> centre(stats.re[i], stats.im[i]);
      const double spread = stats.abs[i] - (fold.mlr ? std::abs(centre) : 0.0);
      out.e[i] = static_cast<float>(unit * spread);
      for (size_t s = 0; s < sets; ++s) {
        // Re(c conj(k) z) = Re(c z) Re(k) + Im(c z) Im(k)
        const auto w = fold.trig ? unit / per_set * centre * phase[s * bands + f] : 0.0;
        out.w_re[s * heads * bands + i] = static_cast<float>(w.real());
        out.w_im[s * heads * bands + i] = static_cast<float>(w.imag());
      }
    }
  }
}

void z_scores(const float* logits, const uint8_t* flags, int64_t n, float* z) {
  const auto counts = [&](int64_t i) {
    return flags == nullptr || (flags[i] & (kSlotPinned | kSlotDead)) == 0 ? 1.0f : 0.0f;
  };
  // Eight partial sums: a fixed order of additions that the compiler can keep in registers.
  constexpr int kLanes = 8;
  double sums[kLanes] = {}, used[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float c = counts(i);
    sums[i % kLanes] += static_cast<double>(c * logits[i]);
    used[i % kLanes] += static_cast<double>(c);
  }
  double sum = 0, m = 0;
  for (int j = 0; j < kLanes; ++j) {
    sum += sums[j];
    m += used[j];
  }
  const auto mean = static_cast<float>(m > 0 ? sum / m : 0.0);
  double squares[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float d = counts(i) * (logits[i] - mean);
    squares[i % kLanes] += static_cast<double>(d * d);
  }
  double square = 0;
  for (const double q : squares) square += q;
  const double sigma = m > 0 ? std::sqrt(square / m) : 0.0;
  const auto scale = static_cast<float>(1.0 / std::max(sigma, 1e-6));
  for (int64_t i = 0; i < n; ++i) z[i] = (logits[i] - mean) * scale;
}

}  // namespace pagefold
