// The facts about a model that compression needs.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefold {

struct KvModel {
  int n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int block_size = 16;
  std::vector<int64_t> layer_window;  // [n_layers], 0 = full attention; empty: all full
  int64_t context_length = 0;
  // Rotary frequencies after any rescaling, [bands]; double, since phases reach 10^5 rad.
  std::vector<double> inv_freq;
  double attention_scaling = 1;  // factor on rotated q and k (YaRN), 1 for almost everything

  int group() const { return n_heads / n_kv_heads; }
  int bands() const { return static_cast<int>(inv_freq.size()); }
  int n_tables() const { return n_layers * n_kv_heads; }
  // Layers with a sliding window bound themselves; compression leaves them alone.
  bool compressed(int layer) const {
    return layer_window.empty() || layer_window[static_cast<size_t>(layer)] <= 0;
  }
  int n_compressed_layers() const {
    int n = 0;
    for (int l = 0; l < n_layers; ++l) n += compressed(l) ? 1 : 0;
    return n;
  }
};

}  // namespace pagefold
