#include "calc/presets.h"

#include "calc/words.h"

namespace pagefold::calc {
namespace {

LayerGroup full(int64_t layers, int64_t kv_heads, int64_t k_dim, int64_t v_dim) {
  return full_layers(layers, kv_heads, k_dim, v_dim);
}

LayerGroup sliding(int64_t layers, int64_t kv_heads, int64_t k_dim, int64_t v_dim, int64_t window) {
  return windowed_layers(LayerKind::sliding, layers, kv_heads, k_dim, v_dim, window);
}

LayerGroup mla(int64_t layers, int64_t latent, int64_t rope, int64_t index_dim, int64_t heads,
               int64_t nope, int64_t v_dim) {
  LayerGroup g;
  g.kind = LayerKind::mla;
  g.layers = layers;
  g.latent = latent;
  g.rope = rope;
  g.index_dim = index_dim;
  g.heads = heads;
  g.nope = nope;
  g.v_dim = v_dim;
  return g;
}

LayerGroup state(LayerKind kind, int64_t layers, int64_t n_keys, int64_t k_size, int64_t n_values,
                 int64_t v_size, int64_t conv_kernel) {
  LayerGroup g;
  g.kind = kind;
  g.layers = layers;
  g.n_keys = n_keys;
  g.k_size = k_size;
  g.n_values = n_values;
  g.v_size = v_size;
  g.conv_kernel = conv_kernel;
  return g;
}

LayerGroup delta_net(int64_t layers, int64_t key_heads, int64_t key_dim, int64_t value_heads,
                     int64_t value_dim, int64_t conv_kernel) {
  return state(LayerKind::delta_net, layers, key_heads, key_dim, value_heads, value_dim,
               conv_kernel);
}

LayerGroup mamba2(int64_t layers, int64_t heads, int64_t head_dim, int64_t groups,
                  int64_t state_size, int64_t conv_kernel) {
  return state(LayerKind::mamba2, layers, groups, state_size, heads, head_dim, conv_kernel);
}

LayerGroup none(int64_t layers) {
  LayerGroup g;
  g.kind = LayerKind::none;
  g.layers = layers;
  return g;
}

struct Sizes {
  int64_t layers, hidden, heads, ffn, vocab, tied, context, params, experts, draft;
};

Model make(const char* id, const char* architecture, const Sizes& s,
           std::vector<LayerGroup> groups) {
  Model m;
  m.id = id;
  m.architecture = architecture;
  m.n_layers = s.layers;
  m.hidden = s.hidden;
  m.n_heads = s.heads;
  m.ffn = s.ffn;
  m.vocab = s.vocab;
  m.tied_known = s.tied >= 0;
  m.tied = s.tied == 1;
  m.context = s.context;
  m.params = s.params;
  m.experts = s.experts;
  m.draft_layers = s.draft;
  m.groups = std::move(groups);
  return m;
}

}  // namespace

const std::vector<Model>& presets() {
  static const std::vector<Model> all = {
#define PF_MODEL(id, architecture, layers, hidden, heads, ffn, vocab, tied, context, params, \
                 experts, draft, ...)                                                        \
  make(id, architecture,                                                                     \
       {layers, hidden, heads, ffn, vocab, tied, context, params, experts, draft}, {__VA_ARGS__}),
#include "calc/presets.def"
#undef PF_MODEL
  };
  return all;
}

const Model* find_preset(std::string_view name) {
  const std::string wanted = lower(name);
  for (const Model& m : presets()) {
    const std::string id = lower(m.id);
    if (id == wanted || id.substr(id.find('/') + 1) == wanted) return &m;
  }
  return nullptr;
}

}  // namespace pagefold::calc
