#include "model/weights.h"

#include <map>
#include <set>

#include "model/tensor_source.h"

namespace pagefold {
namespace {

struct LayerNames {
  std::string_view attention_norm, q, k, v, out, q_norm, k_norm, ffn_norm, gate, up, down;
};
struct Names {
  std::string_view embedding, final_norm, head;
  std::string_view layer_prefix;  // with {} for the layer
  LayerNames layer;
};

constexpr Names kGguf = {"token_embd.weight",
                         "output_norm.weight",
                         "output.weight",
                         "blk.{}.",
                         {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm",
                          "attn_k_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}};
constexpr Names kHuggingFace = {
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
    "model.layers.{}.",
    {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
     "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm",
     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};

class Loader {
 public:
  Loader(Backend& backend, const ModelConfig& config, std::span<const TensorInfo> tensors,
         Naming naming, const std::function<void(uint64_t, uint64_t)>& progress)
      : backend_(backend),
        c_(config),
        names_(naming == Naming::gguf ? kGguf : kHuggingFace),
        progress_(progress) {
    for (const TensorInfo& t : tensors) {
      by_name_[t.name] = &t;
      total_ += t.data.size();
    }
  }

  Result<ModelWeights> run() {
    const ModelShape& s = c_.shape;
    ModelWeights w;
    PF_ASSIGN(w.embedding, matrix({std::string(names_.embedding)}, {s.vocab_size}, s.hidden));
    PF_ASSIGN(w.final_norm, vector({std::string(names_.final_norm)}, {s.hidden}));
    for (int i = 0; i < s.n_layers; ++i) {
      PF_ASSIGN(LayerWeights layer, load_layer(i));
      w.layers.push_back(layer);
    }
    if (c_.tied_head) {
      w.head = w.embedding;
      // Some checkpoints write the tied head a second time.
      used_.insert(std::string(names_.head));
    } else {
      PF_ASSIGN(w.head, matrix({std::string(names_.head)}, {s.vocab_size}, s.hidden));
    }
    PF_TRY(nothing_left());
    return w;
  }

 private:
  Result<LayerWeights> load_layer(int index) {
    const ModelShape& s = c_.shape;
    const std::string prefix = fmt::format(fmt::runtime(names_.layer_prefix), index);
    const auto name = [&](std::string_view part, std::string_view kind = "weight") {
      return fmt::format("{}{}.{}", prefix, part, kind);
    };
    const LayerNames& n = names_.layer;
    const int64_t q = int64_t{s.n_heads} * s.head_dim, kv = int64_t{s.n_kv_heads} * s.head_dim;
    LayerWeights w;
    PF_ASSIGN(w.attention_norm, vector({name(n.attention_norm)}, {s.hidden}));
    PF_ASSIGN(w.qkv, matrix({name(n.q), name(n.k), name(n.v)}, {q, kv, kv}, s.hidden));
    if (c_.attention_bias) {
      PF_ASSIGN(w.qkv_bias,
                vector({name(n.q, "bias"), name(n.k, "bias"), name(n.v, "bias")}, {q, kv, kv}));
    }
    if (c_.arch->switches.qk_norm) {
      PF_ASSIGN(w.q_norm, vector({name(n.q_norm)}, {s.head_dim}));
      PF_ASSIGN(w.k_norm, vector({name(n.k_norm)}, {s.head_dim}));
    }
    PF_ASSIGN(w.attention_out, matrix({name(n.out)}, {s.hidden}, q));
    if (c_.output_bias) {
      PF_ASSIGN(w.out_bias, vector({name(n.out, "bias")}, {s.hidden}));
    }
    PF_ASSIGN(w.ffn_norm, vector({name(n.ffn_norm)}, {s.hidden}));
    PF_ASSIGN(w.gate_up, matrix({name(n.gate), name(n.up)}, {c_.ffn, c_.ffn}, s.hidden));
    PF_ASSIGN(w.down, matrix({name(n.down)}, {s.hidden}, c_.ffn));
    return w;
  }

  Result<const TensorInfo*> take(const std::string& name) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return bad_data("tensor '{}' is missing", name);
    used_.insert(name);
    return it->second;
  }

  // Outputs of several tensors stacked: one pass over the input serves all.
  Result<MatrixId> matrix(const std::vector<std::string>& names, const std::vector<int64_t>& n_out,
                          int64_t n_in) {
    std::vector<TensorSource> sources;
    std::vector<const TensorInfo*> tensors;
    for (size_t i = 0; i < names.size(); ++i) {
      PF_ASSIGN(const TensorInfo* t, take(names[i]));
      PF_ASSIGN(TensorSource source, TensorSource::make(*t, n_out[i], n_in));
      tensors.push_back(t);
      sources.push_back(source);
    }
    std::vector<const MatrixSource*> parts;
    for (const TensorSource& s : sources) parts.push_back(&s);
    auto id = backend_.load_matrix(parts);
    if (!id.ok()) return with_context(id.status(), names.front());
    for (const TensorInfo* t : tensors) {
      drop_mapped(t->data);  // repacked: the file's pages would be a second copy
      done_ += t->data.size();
    }
    if (progress_) progress_(done_, total_);
    return *id;
  }

  Result<VectorId> vector(const std::vector<std::string>& names,
                          const std::vector<int64_t>& sizes) {
    std::vector<float> all;
    for (size_t i = 0; i < names.size(); ++i) {
      PF_ASSIGN(const TensorInfo* t, take(names[i]));
      PF_ASSIGN(const std::vector<float> part, read_vector(*t, sizes[i]));
      all.insert(all.end(), part.begin(), part.end());
    }
    return backend_.load_vector(all);
  }

  Status nothing_left() const {
    for (const auto& [name, t] : by_name_) {
      if (used_.contains(name)) continue;
      // Derived from the configuration, or read with it.
      if (name == "rope_freqs.weight" || name.ends_with(".rotary_emb.inv_freq")) continue;
      return unsupported("{}: tensor '{}' has no place in architecture '{}'", t->file, name,
                         c_.arch->name);
    }
    return ok_status();
  }

  Backend& backend_;
  const ModelConfig& c_;
  const Names& names_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::map<std::string, const TensorInfo*, std::less<>> by_name_;
  std::set<std::string, std::less<>> used_;
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

Result<ModelWeights> load_weights(Backend& backend, const ModelConfig& config,
                                  std::span<const TensorInfo> tensors, Naming naming,
                                  const std::function<void(uint64_t, uint64_t)>& progress) {
  return Loader(backend, config, tensors, naming, progress).run();
}

}  // namespace pagefold
