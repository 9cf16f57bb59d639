#include "model/weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "formats/quant/plain_values.h"
#include "model/kv_recipe.h"
#include "model/quant/linear_source.h"
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

constexpr Names kGguf = {"token_embd",
                         "output_norm.weight",
                         "output",
                         "blk.{}.",
                         {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm",
                          "attn_k_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}};
constexpr Names kHuggingFace = {
    "model.embed_tokens",
    "model.norm.weight",
    "lm_head",
    "model.layers.{}.",
    {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
     "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm",
     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};

class Loader {
 public:
  Loader(Backend& backend, const ModelConfig& config, const QuantConfig& quant,
         std::span<const TensorInfo> tensors, Naming naming,
         const std::function<void(uint64_t, uint64_t)>& progress)
      : backend_(backend),
        c_(config),
        quant_(quant),
        names_(naming == Naming::gguf ? kGguf : kHuggingFace),
        progress_(progress) {
    for (const TensorInfo& t : tensors) {
      by_name_[t.name] = &t;
      total_ += t.data.size();
    }
  }

  // Twice: first names, types and shapes alone, so that a file that cannot serve is refused before
  // its bytes are read.
  Result<ModelWeights> run() {
    checking_ = true;
    PF_TRY(walk().status());
    checking_ = false;
    return walk();
  }

 private:
  Result<ModelWeights> walk() {
    const ModelShape& s = c_.shape;
    ModelWeights w;
    PF_ASSIGN(w.embedding, embedding());
    PF_ASSIGN(w.final_norm, vector({std::string(names_.final_norm)}, {s.hidden}));
    for (int i = 0; i < s.n_layers; ++i) {
      PF_ASSIGN(LayerWeights layer, load_layer(i));
      w.layers.push_back(layer);
    }
    if (c_.tied_head) {
      w.head = w.embedding;
      // Some checkpoints write the tied head a second time.
      used_.insert(std::string(names_.head) + ".weight");
    } else {
      PF_ASSIGN(w.head, head());
    }
    PF_TRY(nothing_left());
    return w;
  }

  Result<LayerWeights> load_layer(int index) {
    const ModelShape& s = c_.shape;
    const std::string prefix = fmt::format(fmt::runtime(names_.layer_prefix), index);
    const auto name = [&](std::string_view part, std::string_view kind = "weight") {
      return fmt::format("{}{}.{}", prefix, part, kind);
    };
    const auto module = [&](std::string_view part) { return prefix + std::string(part); };
    const LayerNames& n = names_.layer;
    const int64_t q = int64_t{s.n_heads} * s.head_dim, kv = int64_t{s.n_kv_heads} * s.head_dim;
    LayerWeights w;
    PF_ASSIGN(w.attention_norm, vector({name(n.attention_norm)}, {s.hidden}));
    PF_ASSIGN(w.qkv, matrix({module(n.q), module(n.k), module(n.v)}, {q, kv, kv}, s.hidden));
    if (c_.attention_bias) {
      PF_ASSIGN(w.qkv_bias,
                vector({name(n.q, "bias"), name(n.k, "bias"), name(n.v, "bias")}, {q, kv, kv}));
    }
    if (c_.arch->switches.qk_norm) {
      PF_ASSIGN(w.q_norm, vector({name(n.q_norm)}, {s.head_dim}));
      PF_ASSIGN(w.k_norm, vector({name(n.k_norm)}, {s.head_dim}));
    }
    PF_ASSIGN(w.attention_out, matrix({module(n.out)}, {s.hidden}, q));
    if (c_.output_bias) {
      PF_ASSIGN(w.out_bias, vector({name(n.out, "bias")}, {s.hidden}));
    }
    PF_ASSIGN(w.ffn_norm, vector({name(n.ffn_norm)}, {s.hidden}));
    PF_ASSIGN(w.gate_up, matrix({module(n.gate), module(n.up)}, {c_.ffn, c_.ffn}, s.hidden));
    PF_ASSIGN(w.down, matrix({module(n.down)}, {s.hidden}, c_.ffn));
    return w;
  }

  Result<const TensorInfo*> take(const std::string& name) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return bad_data("tensor '{}' is missing", name);
    used_.insert(name);
    return it->second;
  }

  Result<MatrixId> embedding() {
    const ModelShape& s = c_.shape;
    const std::string name(names_.embedding);
    PF_ASSIGN(auto source, linear(WeightScheme(), name, s.vocab_size, s.hidden));
    return pack({&source, 1}, name);
  }

  // Loading quantises linear layers alone; a head in the file's own format is read as it is.
  Result<MatrixId> head() {
    const ModelShape& s = c_.shape;
    const std::string name(names_.head);
    WeightScheme scheme;
    if (!quant_.quantises_at_load()) {
      PF_ASSIGN(scheme, quant_.scheme_of(name));
      scheme.maybe_plain = true;
    }
    PF_ASSIGN(auto source, linear(scheme, name, s.vocab_size, s.hidden));
    return pack({&source, 1}, name);
  }

  using Source = std::unique_ptr<LinearSource>;

  Result<Source> linear(const WeightScheme& scheme, const std::string& module, int64_t n_out,
                        int64_t n_in) {
    const FindTensor find = [this](const std::string& name) -> const TensorInfo* {
      const auto it = by_name_.find(name);
      if (it == by_name_.end()) return nullptr;
      used_.insert(name);
      reading_.insert(it->second);
      return it->second;
    };
    return make_linear_source(scheme, quant_.where, module, n_out, n_in, find);
  }

  // Outputs of several layers stacked: one pass over the input serves all.
  Result<MatrixId> matrix(const std::vector<std::string>& modules,
                          const std::vector<int64_t>& n_out, int64_t n_in) {
    std::vector<Source> sources;
    for (size_t i = 0; i < modules.size(); ++i) {
      PF_ASSIGN(WeightScheme scheme, quant_.scheme_of(modules[i]));
      // A source that quantises reads its matrix at once, for the scales; names and shapes are the
      // plain matrix's.
      if (checking_ && quant_.quantises_at_load()) scheme = WeightScheme();
      PF_ASSIGN(Source source, linear(scheme, modules[i], n_out[i], n_in));
      sources.push_back(std::move(source));
    }
    return pack(sources, modules.front());
  }

  Result<MatrixId> pack(std::span<const Source> sources, const std::string& name) {
    if (checking_) {
      for (const TensorInfo* t : reading_) drop_mapped(t->data);
      reading_.clear();
      return MatrixId{};
    }
    std::vector<const MatrixSource*> parts;
    for (const Source& s : sources) parts.push_back(s.get());
    auto id = backend_.load_matrix(parts);
    if (!id.ok()) return with_context(id.status(), name);
    for (const Source& s : sources) PF_TRY(s->after_read());
    for (const TensorInfo* t : reading_) {
      drop_mapped(t->data);  // repacked: the file's pages would be a second copy
      done_ += t->data.size();
    }
    reading_.clear();
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
    if (checking_) return VectorId{};
    return backend_.load_vector(all);
  }

  // GPTQ writers of old give every layer a bias, of zeros where the model has none.
  bool is_empty_bias(const TensorInfo& t) const {
    return quant_.method != QuantMethod::none && t.name.ends_with(".bias") &&
           is_plain_float(t.type) &&
           std::all_of(t.data.begin(), t.data.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  Status nothing_left() const {
    for (const auto& [name, t] : by_name_) {
      if (used_.contains(name)) continue;
      // Derived from the configuration, or read with it.
      if (name == "rope_freqs.weight" || name.ends_with(".rotary_emb.inv_freq")) continue;
      if (is_attention_scale(name) || is_empty_bias(*t)) continue;
      return unsupported("{}: tensor '{}' has no place in architecture '{}'", t->file, name,
                         c_.arch->name);
    }
    return ok_status();
  }

  Backend& backend_;
  const ModelConfig& c_;
  const QuantConfig& quant_;
  const Names& names_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::map<std::string, const TensorInfo*, std::less<>> by_name_;
  std::set<std::string, std::less<>> used_;
  std::set<const TensorInfo*> reading_;  // of the matrix that is being packed
  uint64_t done_ = 0, total_ = 0;
  bool checking_ = false;
};

}  // namespace

Result<ModelWeights> load_weights(Backend& backend, const ModelConfig& config,
                                  const QuantConfig& quant, std::span<const TensorInfo> tensors,
                                  Naming naming,
                                  const std::function<void(uint64_t, uint64_t)>& progress) {
  return Loader(backend, config, quant, tensors, naming, progress).run();
}

}  // namespace pagefold
