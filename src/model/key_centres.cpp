// What all keys of a head share, measured once before the first step (KvShape::centred_keys).
#include <algorithm>
#include <complex>
#include <numeric>

#include "model/forward.h"

namespace pagefold {
namespace {

constexpr int64_t kTokens = 64, kStride = 7919;

// The mean of e^(i f p) over the positions p below n.
std::complex<double> mean_over(double f, double n) {
  const std::complex<double> step = std::polar(1.0, f) - 1.0;
  if (std::abs(step) * n < 1e-6) return 1.0;
  return (std::polar(1.0, f * n) - 1.0) / (step * n);
}

// Over sequences of all lengths up to the model's context, each order of magnitude as likely: what
// suits the whole of a long context alone would leave short sequences nearly uncentred.
std::complex<double> mean_rotation(double f, int64_t context) {
  std::complex<double> sum = 0;
  int n = 0;
  for (double length = 64; length < static_cast<double>(context); length *= 1.25, ++n)
    sum += mean_over(f, length);
  return (sum + mean_over(f, static_cast<double>(context))) / static_cast<double>(n + 1);
}

// Means of keys [..][head_dim] before their rotation -> the best constant for rotated ones.
void rotate_means(const ModelShape& shape, std::vector<float>& means) {
  const size_t dim = static_cast<size_t>(shape.head_dim), bands = shape.inv_freq.size();
  for (size_t f = 0; f < bands; ++f) {
    const std::complex<double> turn =
        shape.rope_magnitude * mean_rotation(shape.inv_freq[f], shape.context_length);
    const size_t a = shape.rope_half_layout ? f : 2 * f;
    const size_t b = shape.rope_half_layout ? f + bands : 2 * f + 1;
    for (size_t head = 0; head < means.size(); head += dim) {
      const std::complex<double> mean{means[head + a], means[head + b]};
      const std::complex<double> centre = mean * turn;
      means[head + a] = static_cast<float>(centre.real());
      means[head + b] = static_cast<float>(centre.imag());
    }
  }
}

}  // namespace

// A few tokens from all over the vocabulary show it well enough. Its rotations are averaged: slow
// bands keep it, fast ones have none.
Status TransformerModel::centre_keys(const KvShape& kv, const StepLimits& limits) {
  const int64_t n_tables = int64_t{kv.n_layers} * kv.n_kv_heads;
  const int64_t blocks =
      std::min<int64_t>((kTokens + kv.block_size - 1) / kv.block_size, kv.n_blocks / n_tables);
  const int64_t tokens = std::min(kTokens, blocks * kv.block_size);
  std::vector<BlockId> ids(static_cast<size_t>(n_tables * blocks));
  std::iota(ids.begin(), ids.end(), BlockId{0});
  PF_TRY(backend_->blocks_taken(ids));
  std::vector<TableView> tables;
  for (int64_t t = 0; t < n_tables; ++t) tables.push_back({ids.data() + t * blocks, 0, 0, nullptr});
  backend_->begin_key_means();
  for (int64_t at = 0; at < tokens;) {
    const int64_t rows = std::min<int64_t>(limits.max_rows, tokens - at);
    std::vector<int32_t> some;
    std::vector<int64_t> positions;
    for (int64_t i = at; i < at + rows; ++i) {
      some.push_back(static_cast<int32_t>(i * kStride % config_.shape.vocab_size));
      positions.push_back(i);
    }
    const SeqRows seq{0, static_cast<int>(rows), tables.data(), nullptr};
    forward({some, positions, {&seq, 1}, {}}, nullptr);
    for (TableView& v : tables) v.len += rows;
    at += rows;
  }
  std::vector<float> means = backend_->take_key_means();
  rotate_means(config_.shape, means);
  backend_->set_key_centres(std::move(means));
  backend_->blocks_freed(ids);
  backend_->release_kv(0, 0);
  return ok_status();
}

}  // namespace pagefold
