// The layers of a model as the memory of its cache sees them: groups of layers of one kind and one
// shape. Formulas: docs/calc.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold::calc {

enum class LayerKind : uint8_t {
  full,       // every token's key and value: MHA, GQA, MQA
  sliding,    // of the last `window` tokens
  chunked,    // of the running chunk of `window` tokens (Llama 4)
  mla,        // one latent and one rotated key a token (DeepSeek-V2, arXiv 2405.04434)
  delta_net,  // a state of fixed size (gated delta net, arXiv 2412.06464)
  mamba2,     // a state of fixed size (arXiv 2405.21060)
  none,       // nothing of its own: feed-forward layers, readers of another layer's cache
};
std::string_view kind_name(LayerKind kind);

struct LayerGroup {
  LayerKind kind = LayerKind::full;
  int64_t layers = 0;
  int64_t kv_heads = 0, k_dim = 0, v_dim = 0;  // full, sliding, chunked
  int64_t window = 0;                          // sliding, chunked: tokens
  // mla: elements of a token; v_dim and the next two are of the keys and values expanded from it.
  int64_t latent = 0, rope = 0, index_dim = 0;
  int64_t heads = 0, nope = 0;
  // delta_net: key and value heads; mamba2: `n_values` heads of v_size, `n_keys` groups of k_size
  // (the state).
  int64_t n_keys = 0, k_size = 0, n_values = 0, v_size = 0, conv_kernel = 0;

  bool grows() const { return kind != LayerKind::none && !fixed_state(); }
  bool fixed_state() const { return kind == LayerKind::delta_net || kind == LayerKind::mamba2; }
  bool windowed() const { return kind == LayerKind::sliding || kind == LayerKind::chunked; }
};

LayerGroup full_layers(int64_t layers, int64_t kv_heads, int64_t k_dim, int64_t v_dim);
LayerGroup windowed_layers(LayerKind kind, int64_t layers, int64_t kv_heads, int64_t k_dim,
                           int64_t v_dim, int64_t window);

struct Model {
  std::string id;            // a preset's name, a path, or "by hand"
  std::string architecture;  // model_type, or a GGUF's architecture
  int64_t n_layers = 0, hidden = 0, n_heads = 0, ffn = 0, vocab = 0, context = 0;  // 0: not known
  int64_t experts = 0;
  bool tied = false;
  bool tied_known = false;
  int64_t params = 0;  // as published or computed; 0: not known
  std::vector<LayerGroup> groups;
  int64_t draft_layers = 0;  // multi-token prediction; beside `groups`
  std::string stored_dtype;  // of the weights: "bfloat16"; empty: not said
  std::string not_run;       // why this engine does not run it; empty: it does, or not known
  std::vector<std::string> notes;
};

// The draft heads' layers, of the kind of the model's layers that see every token; layers: 0 where
// there are none.
LayerGroup draft_group(const Model& model);

// Far beyond any model; within, no product of a layer's numbers overflows.
inline constexpr int64_t kMostLayers = 4096;
inline constexpr int64_t kMostDim = int64_t{1} << 20;
inline constexpr int64_t kMostWindow = int64_t{1} << 40;

// Layers of a group, heads and dims are positive and at most kMostDim, windows kMostWindow, layers
// x heads 2^30. Errors name the field.
Status check_model(const Model& model);

}  // namespace pagefold::calc
