#include "backend/cpu/key_centre.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagefold::cpu {
namespace {

constexpr int64_t kFirstSlots = 4;  // not counted

}  // namespace

void KeyCentre::init(const KvShape& shape) {
  n_layers_ = shape.n_layers;
  n_kv_heads_ = shape.n_kv_heads;
  dim_ = shape.head_dim;
  centres_.clear();
  counts_.clear();
}

void KeyCentre::begin() {
  PF_CHECK(dim_ > 0, "keys are measured before init_kv");
  const size_t heads = index(n_layers_, 0);
  sums_.assign(heads * static_cast<size_t>(dim_), 0.0);
  counts_.assign(heads, 0);
}

void KeyCentre::add(int layer, int head, int64_t first_slot, int rows, const float* keys,
                    int64_t ld) {
  const auto skip = static_cast<int>(std::clamp<int64_t>(kFirstSlots - first_slot, 0, rows));
  double* sum = sums_.data() + at(layer, head);
  for (int r = skip; r < rows; ++r) {
    for (int d = 0; d < dim_; ++d) sum[d] += double{keys[r * ld + d]};
  }
  counts_[index(layer, head)] += rows - skip;
}

std::vector<float> KeyCentre::take() {
  std::vector<float> means(sums_.size());
  for (size_t i = 0; i < means.size(); ++i) {
    const int64_t n = counts_[i / static_cast<size_t>(dim_)];
    means[i] = n > 0 ? static_cast<float>(sums_[i] / static_cast<double>(n)) : 0.0f;
  }
  sums_ = {};
  counts_ = {};
  return means;
}

void KeyCentre::subtract(int layer, int head, int rows, float* keys, int64_t ld) const {
  const float* centre = of(layer, head);
  if (centre == nullptr) return;
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < dim_; ++d) keys[r * ld + d] -= centre[d];
  }
}

}  // namespace pagefold::cpu
