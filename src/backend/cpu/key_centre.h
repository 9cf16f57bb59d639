// Centred keys. What all keys of a head share is taken off before they are stored: a constant c
// adds q . c to every logit of a row, which a softmax does not see, and few bits hold what is left
// much better (half the energy of trained models' keys is their mean; biases of Qwen2-style models
// are nearly all of it). What reads keys for a policy adds c again.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace pagefold::cpu {

class KeyCentre {
 public:
  void init(const KvShape& shape);
  // From now on keys are summed up, before their rotation, except those of the first slots of a
  // sequence (the first token's are like no other's).
  void begin();
  bool measuring() const { return !counts_.empty(); }
  // Rows that go to slots first_slot, first_slot + 1 ... Calls for different heads may be
  // concurrent.
  void add(int layer, int head, int64_t first_slot, int rows, const float* keys, int64_t ld);
  // The means, [n_layers][n_kv_heads][head_dim], and the end of it.
  std::vector<float> take();

  void set(std::vector<float> centres) { centres_ = std::move(centres); }
  // [head_dim], or null: keys of the head are stored as they are.
  const float* of(int layer, int head) const {
    return centres_.empty() ? nullptr : centres_.data() + at(layer, head);
  }
  // keys -= centre, in place; nothing if there is none.
  void subtract(int layer, int head, int rows, float* keys, int64_t ld) const;

 private:
  size_t index(int layer, int head) const {
    return static_cast<size_t>(layer * n_kv_heads_ + head);
  }
  size_t at(int layer, int head) const { return index(layer, head) * static_cast<size_t>(dim_); }

  int n_layers_ = 0, n_kv_heads_ = 0, dim_ = 0;
  std::vector<double> sums_;     // [n_layers][n_kv_heads][head_dim]
  std::vector<int64_t> counts_;  // [n_layers][n_kv_heads]; empty: not measuring
  std::vector<float> centres_;
};

}  // namespace pagefold::cpu
