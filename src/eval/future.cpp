#include "eval/future.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pagefold::eval {

Future::Future(const ForcedModel& model, int64_t n, int64_t n_prompt, bool with_outputs)
    : kv_(model.kv()),
      n_(n),
      n_prompt_(n_prompt),
      with_outputs_(with_outputs),
      scale_(1 / std::sqrt(static_cast<double>(kv_.head_dim))) {
  const int64_t windows = (n - 1 - n_prompt + kWindow - 1) / kWindow;
  const auto tables = static_cast<size_t>(kv_.n_tables());
  mass_.assign(static_cast<size_t>(windows), std::vector<std::vector<float>>(tables));
  for (auto& window : mass_) {
    for (size_t t = 0; t < tables; ++t) {
      if (kv_.compressed(static_cast<int>(t) / kv_.n_kv_heads))
        window[t].assign(static_cast<size_t>(n), 0);
    }
  }
  pointers_.resize(tables);
  if (!with_outputs) return;
  queries_.resize(static_cast<size_t>(windows));
  keys_.resize(tables);
  values_.resize(tables);
  ring_.window = static_cast<int>(kWindow);
  ring_store_.resize(static_cast<size_t>(kv_.n_layers * kWindow * kv_.n_heads * kv_.head_dim));
  ring_.data = ring_store_.data();
}

int64_t Future::rows(int64_t window) const { return std::min(kWindow, n_ - 1 - first_row(window)); }

const Observation* Future::observe(int64_t first, int64_t rows) {
  if (first < n_prompt_) return nullptr;
  auto& window = mass_[static_cast<size_t>((first - n_prompt_) / kWindow)];
  for (size_t t = 0; t < window.size(); ++t)
    pointers_[t] = window[t].empty() ? nullptr : window[t].data();
  observation_ = {};
  observation_.form = MassForm::probability;
  observation_.first_row = 0;
  observation_.n_rows = static_cast<int>(rows);
  observation_.first_position = first;
  observation_.mass = pointers_.data();
  if (with_outputs_) observation_.ring = &ring_;
  return &observation_;
}

void Future::attach(ForcedModel& model, ForcedHooks& hooks) {
  hooks.stop_every = kWindow;
  hooks.observe = [this](int64_t first, int64_t rows) { return observe(first, rows); };
  if (!with_outputs_) return;
  hooks.at_stop = [this, &model](const Sequence& s) {
    const int64_t done = s.n_computed - n_prompt_;
    if (done > 0) {  // the window that has just ended
      const int64_t window = (done - 1) / kWindow;
      const int64_t slot = first_row(window) % kWindow;
      const auto row = static_cast<size_t>(kv_.n_heads * kv_.head_dim);
      auto& out = queries_[static_cast<size_t>(window)];
      out.clear();
      for (int l = 0; l < kv_.n_layers; ++l) {
        const float* q = ring_.data + static_cast<size_t>(l * kWindow + slot) * row;
        out.insert(out.end(), q, q + row);
      }
    }
    if (s.n_computed < n_ - 1) return;
    for (int t = 0; t < kv_.n_tables(); ++t) {
      if (!kv_.compressed(t / kv_.n_kv_heads)) continue;
      model.read_cache(s, t, n_ - 1, keys_[static_cast<size_t>(t)],
                       values_[static_cast<size_t>(t)]);
    }
  };
}

void Future::tell(SequenceCompression& c) const {
  const int64_t since = c.state().n_computed - n_prompt_;
  const int64_t from = since <= 0 ? 0 : (since + kWindow - 1) / kWindow;
  SequenceSignals& signals = c.signals();
  for (int t = 0; t < kv_.n_tables(); ++t) {
    float* out = signals.mass(t);
    if (out == nullptr) continue;
    const int32_t* positions = signals.positions(t);
    for (int64_t i = 0; i < signals.slots(t); ++i) {
      double sum = 0;
      for (int64_t w = from; w < windows(); ++w) {
        const auto& m = mass(w, t);
        if (!m.empty()) sum += double{m[static_cast<size_t>(positions[i])]};
      }
      out[i] = static_cast<float>(sum);
    }
  }
}

double Future::output_error(int64_t window, int table, const std::vector<int32_t>& held) const {
  const int layer = table / kv_.n_kv_heads, head = table % kv_.n_kv_heads;
  const int group = kv_.n_heads / kv_.n_kv_heads;
  const auto dim = static_cast<size_t>(kv_.head_dim);
  const int64_t own = first_row(window);
  const auto& keys = keys_[static_cast<size_t>(table)];
  const auto& values = values_[static_cast<size_t>(table)];
  std::vector<bool> there(static_cast<size_t>(own + 1), false);
  for (const int32_t p : held) there[static_cast<size_t>(p)] = true;
  there[static_cast<size_t>(own)] = true;
  double error = 0;
  std::vector<double> weight(static_cast<size_t>(own + 1)), all(dim), kept(dim);
  for (int g = 0; g < group; ++g) {
    const float* q = queries_[static_cast<size_t>(window)].data() +
                     (static_cast<size_t>(layer) * static_cast<size_t>(kv_.n_heads) +
                      static_cast<size_t>(head * group + g)) *
                         dim;
    double most = -INFINITY;
    for (size_t p = 0; p < weight.size(); ++p) {
      double dot = 0;
      for (size_t d = 0; d < dim; ++d) dot += double{q[d]} * double{keys[p * dim + d]};
      weight[p] = dot * scale_;
      most = std::max(most, weight[p]);
    }
    std::fill(all.begin(), all.end(), 0.0);
    std::fill(kept.begin(), kept.end(), 0.0);
    double sum_all = 0, sum_kept = 0;
    for (size_t p = 0; p < weight.size(); ++p) {
      const double w = std::exp(weight[p] - most);
      sum_all += w;
      if (there[p]) sum_kept += w;
      for (size_t d = 0; d < dim; ++d) {
        all[d] += w * double{values[p * dim + d]};
        if (there[p]) kept[d] += w * double{values[p * dim + d]};
      }
    }
    double difference = 0, size = 0;
    for (size_t d = 0; d < dim; ++d) {
      const double o = all[d] / sum_all;
      difference += (o - kept[d] / sum_kept) * (o - kept[d] / sum_kept);
      size += o * o;
    }
    error += size > 0 ? std::sqrt(difference / size) : 0;
  }
  return error / group;
}

}  // namespace pagefold::eval
