// One layer's attention through the CPU backend, on permuted blocks, with what every step was given
// kept for a dense reference in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/half.h"

namespace pagefold {

struct RigOptions {
  int n_heads = 6, n_kv_heads = 2, head_dim = 64;
  DType dtype = DType::bf16;
  int block_size = 16;
  int threads = 1;
  int64_t window = 0;
  bool bounds = false;
  uint32_t seed = 7;
  int max_slots = 1200;
  std::optional<DType> v_dtype;  // none: as the keys
  int group = 0;
  float k_scale = 1, v_scale = 1;
  std::optional<bool> hadamard;  // none: int4 keys are rotated
  bool centre = false;           // keys are stored without some vector a head
};

inline float through(DType type, float v) {
  if (type == DType::f16) return f16_to_f32(f32_to_f16(v));
  if (type == DType::bf16) return bf16_to_f32(f32_to_bf16(v));
  return v;
}

inline std::vector<float> normal_values(size_t n, uint32_t seed, float width = 1.0f) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng()) * 0x1p-32f - 0.5f;
    v = sum * 1.7320508f * width;
  }
  return out;
}

// One sequence with one layer. Row r of the sequence (from its start) has the q, k and v of
// row_qkv(r), whatever the steps; angles are zero unless set.
class Rig {
 public:
  explicit Rig(const RigOptions& o) : o_(o) {
    CpuBackendOptions b;
    b.threads = o.threads;
    b.dtype = DType::f32;
    const kernels::Kernels* k = kernels::select_kernels("auto").value();
    backend_ = std::make_unique<cpu::CpuBackend>(*k, b);
    const int blocks = (o.max_slots + o.block_size - 1) / o.block_size;
    KvShape kv;
    kv.n_layers = 1;
    kv.n_kv_heads = o.n_kv_heads;
    kv.head_dim = o.head_dim;
    kv.block_size = o.block_size;
    kv.k_dtype = o.dtype;
    kv.v_dtype = o.v_dtype.value_or(o.dtype);
    kv.group = o.group;
    kv.hadamard_keys = o.hadamard.value_or(o.dtype == DType::int4);
    kv.k_scale = {o.k_scale};
    kv.v_scale = {o.v_scale};
    kv.n_blocks = static_cast<uint32_t>(blocks * o.n_kv_heads + 3);
    EXPECT_TRUE(backend_->init_kv(kv).ok());
    if (o.centre) {
      backend_->set_key_centres(
          normal_values(static_cast<size_t>(o.n_kv_heads * o.head_dim), 99, 3.0f));
    }
    StepLimits limits;
    limits.max_rows = o.max_slots;
    limits.max_seqs = 1;
    EXPECT_TRUE(backend_->init_step(limits).ok());
    if (o.bounds) {
      EXPECT_TRUE(backend_->enable_page_bounds().ok());
    }
    qkv_ = backend_->make_buffer(ld()).value();
    out_ = backend_->make_buffer(o.n_heads * o.head_dim).value();
    std::vector<BlockId> ids(kv.n_blocks);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<BlockId>(i);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(o.seed));
    for (int h = 0; h < o.n_kv_heads; ++h)
      blocks_.emplace_back(ids.begin() + h * blocks, ids.begin() + (h + 1) * blocks);
    all_ = normal_values(static_cast<size_t>(o.max_slots * ld()), o.seed, 1.5f);
    cos_.assign(static_cast<size_t>(o.max_slots * o.head_dim / 2), 1.0f);
    sin_.assign(cos_.size(), 0.0f);
    sink_cos_ = cos_;
    sink_sin_ = sin_;
  }

  const RigOptions& options() const { return o_; }
  int64_t ld() const { return int64_t{o_.n_heads + 2 * o_.n_kv_heads} * o_.head_dim; }
  int group() const { return o_.n_heads / o_.n_kv_heads; }
  int64_t len() const { return len_; }
  cpu::CpuBackend& backend() { return *backend_; }
  std::vector<BlockId>& blocks(int head) { return blocks_[static_cast<size_t>(head)]; }
  // The cached keys of a KV head as the backend reads them: [len][head_dim].
  std::vector<float> cached_keys(int head) {
    std::vector<float> keys(static_cast<size_t>(len_ * o_.head_dim));
    backend_->read_keys(0, head, {blocks(head).data(), len_, 0, nullptr}, len_, keys.data());
    return keys;
  }
  // Values that every row gets: [max_slots][ld].
  std::vector<float>& values() { return all_; }
  float* query(int64_t row, int head) { return all_.data() + row * ld() + head * o_.head_dim; }
  float* key(int64_t row, int kv_head) { return query(row, o_.n_heads + kv_head); }
  // Angles of the rows of the next step: [rows][head_dim / 2].
  std::vector<float> cos_, sin_, sink_cos_, sink_sin_;
  bool half_layout = true;
  // Live bits of the slots that the next step finds, for each KV head; none: all are.
  std::vector<std::vector<uint32_t>> live;

  // Runs the sequence's next `rows` rows; returns their outputs.
  std::vector<float> step(int rows, const SeqSignals* signals = nullptr) {
    std::copy_n(all_.data() + len_ * ld(), rows * ld(), backend_->buffer_data(qkv_));
    std::vector<TableView> tables;
    for (const auto& b : blocks_) {
      const uint32_t* mask = live.empty() ? nullptr : live[tables.size()].data();
      tables.push_back({b.data(), len_, 0, mask});
    }
    const SeqRows seq{0, rows, tables.data(), signals};
    AttentionShape shape{o_.n_heads, o_.n_kv_heads, o_.head_dim,
                         1.0f / std::sqrt(static_cast<float>(o_.head_dim)), o_.window};
    RopeShape rope{o_.head_dim, half_layout,      cos_.data(),
                   sin_.data(), sink_cos_.data(), sink_sin_.data()};
    backend_->attention(0, {&seq, 1}, qkv_, shape, rope, {}, {}, 0, out_);
    len_ += rows;
    const float* out = backend_->buffer_data(out_);
    return {out, out + static_cast<size_t>(rows * o_.n_heads * o_.head_dim)};
  }

  // Probabilities of row `row` for query head `head` over slots [0, row], in double. hidden: slots
  // that do not count. q: another query than the row's own for slots below `sinks`.
  std::vector<double> probabilities(int64_t row, int head, const std::vector<bool>& hidden = {}) {
    const int64_t first = o_.window > 0 ? std::max<int64_t>(0, row + 1 - o_.window) : 0;
    std::vector<double> p(static_cast<size_t>(row + 1), 0.0);
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t s = first; s <= row; ++s) {
      const auto at = static_cast<size_t>(s);
      if (at < hidden.size() && hidden[at]) continue;
      p[at] = logit(query(row, head), key(s, head / group()));
      max = std::max(max, p[at]);
    }
    for (int64_t s = first; s <= row; ++s) {
      const auto at = static_cast<size_t>(s);
      if (at < hidden.size() && hidden[at]) continue;
      sum += p[at] = std::exp(p[at] - max);
    }
    for (double& v : p) v /= sum;
    return p;
  }
  double logit(const float* q, const float* k) const {
    const float scale = 1.0f / std::sqrt(static_cast<float>(o_.head_dim));
    double dot = 0;
    for (int d = 0; d < o_.head_dim; ++d) {
      const float scaled = q[d] * scale;
      dot += double{o_.dtype == DType::bf16 ? through(DType::bf16, scaled) : scaled} *
             through(o_.dtype, k[d]);
    }
    return dot;
  }
  // The output that probabilities `p` over slots give, for a KV head.
  std::vector<double> mix(const std::vector<double>& p, int kv_head) {
    std::vector<double> out(static_cast<size_t>(o_.head_dim), 0.0);
    for (size_t s = 0; s < p.size(); ++s) {
      const float* v = query(static_cast<int64_t>(s), o_.n_heads + o_.n_kv_heads + kv_head);
      for (int d = 0; d < o_.head_dim; ++d)
        out[static_cast<size_t>(d)] += p[s] * through(o_.dtype, v[d]);
    }
    return out;
  }

 private:
  RigOptions o_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  BufferId qkv_, out_;
  std::vector<std::vector<BlockId>> blocks_;
  std::vector<float> all_;
  int64_t len_ = 0;
};

// What a step's signals point to, of one layer: mass, or the history of `window` rows and its
// segment sums.
struct Observed {
  std::vector<std::vector<float>> mass;  // [kv head][slot]; with history: [kv head][segment][slot]
  std::vector<std::vector<uint64_t>> bits;  // [kv head][word][slot]
  std::vector<float*> mass_at;
  std::vector<HistoryArrays> history_at;
  Observation observation;

  explicit Observed(const RigOptions& o, int window = 0, int segments = 1, int segment_rows = 1) {
    const int words = (window + 63) / 64;
    for (int h = 0; h < o.n_kv_heads; ++h) {
      mass.emplace_back(static_cast<size_t>(o.max_slots * segments), 0.0f);
      bits.emplace_back(static_cast<size_t>(o.max_slots * words), 0);
      mass_at.push_back(mass.back().data());
      if (window > 0)
        history_at.push_back({bits.back().data(), mass_at.back(), o.max_slots, window, words,
                              segments, segment_rows});
    }
  }
  // Observes rows [first, first + n) of a step whose row 0 has `position`. Valid until the next
  // call and while this object stays where it is.
  SeqSignals rows(int first, int n, bool squared = false, int64_t position = 0) {
    observation.form = squared ? MassForm::squared : MassForm::probability;
    observation.first_row = first;
    observation.n_rows = n;
    observation.first_position = position;
    if (history_at.empty()) {
      observation.mass = mass_at.data();
    } else {
      observation.history = history_at.data();
    }
    SeqSignals s;
    s.observe = &observation;
    return s;
  }
};

}  // namespace pagefold
