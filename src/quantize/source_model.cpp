#include "quantize/source_model.h"

#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include <algorithm>

#include "base/json.h"
#include "formats/quant/block_types.h"

namespace pagefold {
namespace {

constexpr size_t kMaxConfigBytes = 8 << 20;

// "model.layers.1.self_attn.q_proj.bias" -> "blk.1.attn_q.bias"
std::string gguf_name(const std::string& name) {
  return absl::StrReplaceAll(name, {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"model.layers", "blk"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"input_layernorm", "attn_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}});
}

Status already_quantised(const std::filesystem::path& path, const std::string& method) {
  return bad_input(
      "{}: the checkpoint is quantised already ({}); give the 16-bit or 32-bit checkpoint it was "
      "made from, or a GGUF file",
      path.string(), method);
}

// A GGUF file may hold any block type; what a folder's quantisation_config says is refused here, so
// that the message names the method.
Status refuse_quantised(const std::filesystem::path& path) {
  std::error_code ec;
  const auto config = path / "config.json";
  if (!std::filesystem::is_directory(path, ec) || !std::filesystem::exists(config, ec))
    return ok_status();
  PF_ASSIGN(const std::string text, read_file(config, kMaxConfigBytes));
  auto json = parse_json(text);
  if (!json.ok()) return with_context(json.status(), config.string());
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto it = json->is_object() ? json->find(key) : json->end();
    if (it == json->end() || it->is_null()) continue;
    const auto method = it->is_object() ? it->find("quant_method") : it->end();
    const std::string name = it->is_object() && method != it->end() && method->is_string()
                                 ? method->get<std::string>().substr(0, 40)
                                 : "unknown method";
    return already_quantised(path, name);
  }
  return ok_status();
}

}  // namespace

Result<SourceModel> SourceModel::open(const std::filesystem::path& path) {
  SourceModel s;
  PF_TRY(refuse_quantised(path));
  PF_ASSIGN(s.files_, open_model(path));
  const QuantMethod method = s.files_.quant.method;
  if (method != QuantMethod::none && method != QuantMethod::gguf)
    return already_quantised(path, std::string(quant_method_name(method)));
  const Status found = s.find_all();
  if (!found.ok()) return with_context(found, path.string());
  return s;
}

Result<SourceTensor> SourceModel::find(const std::string& name, std::vector<int64_t> shape,
                                       int64_t interleaved_head) const {
  const bool gguf = files_.gguf.has_value();
  const std::string stored_name = gguf ? gguf_name(name) : name;
  const TensorInfo* t =
      gguf ? files_.gguf->find(stored_name) : files_.safetensors->find(stored_name);
  if (!t) return bad_data("tensor '{}' is missing", stored_name);
  if (t->shape != shape) {
    return bad_data("tensor '{}' has shape [{}], expected [{}]", stored_name,
                    absl::StrJoin(t->shape, ", "), absl::StrJoin(shape, ", "));
  }
  const bool plain =
      t->type == TensorType::F32 || t->type == TensorType::F16 || t->type == TensorType::BF16;
  if (!plain && (shape.size() != 2 || block_type_traits(t->type) == nullptr)) {
    return unsupported("tensor '{}' has type {}, which is not converted", stored_name,
                       tensor_type_info(t->type).name);
  }
  return SourceTensor{name, std::move(shape), t,
                      gguf && !files_.config.rope_half_layout ? interleaved_head : 0};
}

Result<LayerTensors> SourceModel::find_layer(int i) const {
  const ModelConfig& c = files_.config;
  const ModelShape& s = c.shape;
  const int64_t d = s.head_dim, q = s.n_heads * d, kv = s.n_kv_heads * d;
  const std::string p = fmt::format("model.layers.{}.", i);
  const std::string a = p + "self_attn.", m = p + "mlp.";
  LayerTensors l;
  PF_ASSIGN(l.input_norm, find(p + "input_layernorm.weight", {s.hidden}));
  PF_ASSIGN(l.q, find(a + "q_proj.weight", {q, s.hidden}, d));
  PF_ASSIGN(l.k, find(a + "k_proj.weight", {kv, s.hidden}, d));
  PF_ASSIGN(l.v, find(a + "v_proj.weight", {kv, s.hidden}));
  PF_ASSIGN(l.o, find(a + "o_proj.weight", {s.hidden, q}));
  PF_ASSIGN(l.post_norm, find(p + "post_attention_layernorm.weight", {s.hidden}));
  PF_ASSIGN(l.gate, find(m + "gate_proj.weight", {c.ffn, s.hidden}));
  PF_ASSIGN(l.up, find(m + "up_proj.weight", {c.ffn, s.hidden}));
  PF_ASSIGN(l.down, find(m + "down_proj.weight", {s.hidden, c.ffn}));
  const auto optional = [&](bool wanted, std::vector<SourceTensor>& to, const std::string& name,
                            int64_t n, int64_t head) -> Status {
    if (!wanted) return ok_status();
    PF_ASSIGN(SourceTensor t, find(name, {n}, head));
    to.push_back(std::move(t));
    return ok_status();
  };
  PF_TRY(optional(c.attention_bias, l.q_bias, a + "q_proj.bias", q, d));
  PF_TRY(optional(c.attention_bias, l.k_bias, a + "k_proj.bias", kv, d));
  PF_TRY(optional(c.attention_bias, l.v_bias, a + "v_proj.bias", kv, 0));
  PF_TRY(optional(c.output_bias, l.o_bias, a + "o_proj.bias", s.hidden, 0));
  const bool norms = c.arch->switches.qk_norm;
  PF_TRY(optional(norms, l.q_norm, a + "q_norm.weight", d, 0));
  PF_TRY(optional(norms, l.k_norm, a + "k_norm.weight", d, 0));
  return l;
}

Status SourceModel::find_all() {
  const ModelShape& s = files_.config.shape;
  PF_ASSIGN(embedding_, find("model.embed_tokens.weight", {s.vocab_size, s.hidden}));
  PF_ASSIGN(final_norm_, find("model.norm.weight", {s.hidden}));
  if (!files_.config.tied_head) {
    PF_ASSIGN(SourceTensor head, find("lm_head.weight", {s.vocab_size, s.hidden}));
    head_.push_back(std::move(head));
  }
  for (int i = 0; i < s.n_layers; ++i) {
    PF_ASSIGN(LayerTensors layer, find_layer(i));
    layers_.push_back(std::move(layer));
  }
  return ok_status();
}

template <class F>
void SourceModel::for_all(F&& see) const {
  see(embedding_);
  see(final_norm_);
  for (const SourceTensor& t : head_) see(t);
  for (const LayerTensors& l : layers_) {
    for (const SourceTensor* t :
         {&l.input_norm, &l.q, &l.k, &l.v, &l.o, &l.post_norm, &l.gate, &l.up, &l.down})
      see(*t);
    for (const auto* list : {&l.q_bias, &l.k_bias, &l.v_bias, &l.o_bias, &l.q_norm, &l.k_norm}) {
      for (const SourceTensor& t : *list) see(t);
    }
  }
}

size_t SourceModel::n_tensors() const {
  size_t n = 0;
  for_all([&](const SourceTensor&) { ++n; });
  return n;
}

int64_t SourceModel::n_weights() const {
  int64_t n = 0;
  for_all([&](const SourceTensor& t) { n += t.rows() * t.cols(); });
  return n;
}

uint64_t SourceModel::stored_bytes() const {
  uint64_t sum = 0;
  for (const TensorInfo& t : files_.tensors()) sum += t.data.size();
  return sum;
}

void SourceModel::read_rows(const SourceTensor& t, int64_t first, int64_t n, float* out) const {
  const TensorTypeInfo& type = tensor_type_info(t.stored->type);
  const int64_t cols = t.cols(), row_bytes = cols / type.block_elements * type.block_bytes;
  for (int64_t r = first; r < first + n; ++r) {
    int64_t from = r;
    if (const int64_t dim = t.interleaved_head; dim > 0) {
      const int64_t in_head = r % dim, half = dim / 2;
      from = r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    }
    dequantize(t.stored->type, t.stored->data.data() + from * row_bytes, cols,
               out + (r - first) * cols);
  }
}

Matrix SourceModel::read(const SourceTensor& t) const {
  Matrix m{t.rows(), t.cols(), std::vector<float>(static_cast<size_t>(t.rows() * t.cols()))};
  read_rows(t, 0, m.rows, m.values.data());
  return m;
}

}  // namespace pagefold
