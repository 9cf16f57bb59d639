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
  const double per_set = fold.max ? 1.0 : static_cast<double>(fold.offsets.size());
  const double unit = fold.attention_scaling / stats.rows;
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

ZScale z_scale(const float* logits, const float* weights, int64_t n) {
  // One pass around the first value, in lanes of doubles: a fixed order of additions.
  constexpr int kLanes = 8;
  const float shift = n > 0 ? logits[0] : 0.0f;
  double sums[kLanes] = {}, squares[kLanes] = {};
  double sum = 0, square = 0;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float d = (logits[i + j] - shift) * weights[i + j];
      sums[j] += static_cast<double>(d);
      squares[j] += static_cast<double>(d) * static_cast<double>(d);
    }
  }
  for (; i < n; ++i) {
    const double d = static_cast<double>((logits[i] - shift) * weights[i]);
    sum += d;
    square += d * d;
  }
  double count = 0;
  for (int64_t s = 0; s < n; ++s) count += static_cast<double>(weights[s]);
  for (int j = 0; j < kLanes; ++j) {
    sum += sums[j];
    square += squares[j];
  }
  if (count == 0) return {shift, 0.0f};
  const double mean = sum / count;
  const double sigma = std::sqrt(std::max(0.0, square / count - mean * mean));
  return {static_cast<float>(static_cast<double>(shift) + mean),
          static_cast<float>(1.0 / std::max(sigma, 1e-6))};
}

void z_weights(const uint8_t* flags, int64_t n, float* weights) {
  for (int64_t i = 0; i < n; ++i) {
    const bool counts = flags == nullptr || (flags[i] & (kSlotPinned | kSlotDead)) == 0;
    weights[i] = counts ? 1.0f : 0.0f;
  }
}

}  // namespace pagefold
