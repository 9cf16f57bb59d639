#include <filesystem>

#include "api/calc_gguf.h"
#include "api/calc_parts.h"
#include "base/file.h"
#include "base/integer_range.h"
#include "calc/config_json.h"
#include "calc/presets.h"
#include "calc/words.h"
#include "formats/safetensors.h"
#include "model/config.h"
#include "model/load.h"

namespace pagefold {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxConfigBytes = 8 << 20;

// A model that the engine itself understands: its layers as the engine will cache them.
void take_engine_shape(const ModelShape& shape, calc::Model& m) {
  m.groups.clear();
  for (const int64_t window : shape.layer_window) {
    const calc::LayerGroup one =
        window > 0 ? calc::windowed_layers(calc::LayerKind::sliding, 1, shape.n_kv_heads,
                                           shape.head_dim, shape.head_dim, window)
                   : calc::full_layers(1, shape.n_kv_heads, shape.head_dim, shape.head_dim);
    bool merged = false;
    for (calc::LayerGroup& g : m.groups) {
      if (g.kind != one.kind || g.window != one.window) continue;
      ++g.layers;
      merged = true;
    }
    if (!merged) m.groups.push_back(one);
  }
}

void add_engine_view(const Result<ModelConfig>& config, CalcModelSource& source) {
  calc::Model& m = source.model;
  if (!config.ok()) {
    m.not_run = message_of(config.status());
    return;
  }
  take_engine_shape(config->shape, m);
  source.kv_dtype = config->kv.dtype;
  m.tied = config->tied_head;
  m.tied_known = true;
  m.context = config->shape.context_length;
}

uint64_t tensor_bytes(std::span<const TensorInfo> tensors) {
  uint64_t sum = 0;
  for (const TensorInfo& t : tensors) sum += t.data.size();
  return sum;
}

// What most bytes are stored as.
std::string most_common_type(std::span<const TensorInfo> tensors) {
  std::map<std::string_view, uint64_t> bytes;
  std::string_view best;
  for (const TensorInfo& t : tensors) {
    const std::string_view name = tensor_type_info(t.type).name;
    bytes[name] += t.data.size();
    if (best.empty() || bytes[name] > bytes[best]) best = name;
  }
  return std::string(best);
}

Result<CalcModelSource> from_config(std::string_view text, const std::string& where) {
  auto json = parse_json(text);
  if (!json.ok()) return with_context(json.status(), where);
  CalcModelSource s;
  PF_ASSIGN(s.model, calc::model_from_config(*json, where));
  add_engine_view(config_from_hf(*json, where), s);
  return s;
}

Result<CalcModelSource> from_folder(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  PF_ASSIGN(const std::string text, read_file(file, kMaxConfigBytes));
  PF_ASSIGN(CalcModelSource s, from_config(text, file.string()));
  auto weights = SafetensorsSet::open(folder);
  if (weights.ok()) {
    s.weight_bytes = tensor_bytes(weights->tensors());
    s.weight_format = most_common_type(weights->tensors());
  } else if (weights.status().code() != absl::StatusCode::kNotFound) {
    s.model.notes.push_back("weights are sized from config.json: " + message_of(weights.status()));
  }
  return s;
}

Result<CalcModelSource> from_gguf(const fs::path& path) {
  PF_ASSIGN(const GgufFile file, GgufFile::open(path));
  CalcModelSource s;
  PF_ASSIGN(s.model, calc_model_from_gguf(file));
  add_engine_view(config_from_gguf(file), s);
  s.weight_bytes = tensor_bytes(file.tensors());
  s.weight_format = most_common_type(file.tensors());
  return s;
}

Result<CalcModelSource> from_name(const std::string& name) {
  const calc::Model* preset = calc::find_preset(name);
  if (preset == nullptr) {
    return not_found(
        "{}: neither a folder, a .gguf or a config.json, nor a preset; `pagefold calc --presets` "
        "lists those",
        calc::shown(name));
  }
  CalcModelSource s;
  s.model = *preset;
  const std::string& a = s.model.architecture;
  bool runs = s.model.experts == 0 && (a == "llama" || a == "mistral");
  for (const Architecture& known : architectures()) runs = runs || known.name == a;
  if (!runs) s.model.not_run = fmt::format("architecture '{}' is not supported", a);
  return s;
}

// A count of layers among `most`; absent: all of them.
Result<int64_t> layers_of(std::string_view flag, const std::optional<int64_t>& given,
                          int64_t most) {
  const int64_t n = given.value_or(most);
  if (n >= 1 && n <= most) return n;
  return bad_input("{}: must be {}, the layers that store, got {}", flag, integer_range(1, most),
                   n);
}

Status add_latent(const CalcShape& shape, int64_t storing, calc::Model& m) {
  if (shape.kv_heads || shape.head_dim || shape.window) {
    return bad_input("--latent: in place of --kv-heads, --head-dim and --window, not beside them");
  }
  calc::LayerGroup g;
  g.kind = calc::LayerKind::mla;
  g.latent = *shape.latent;
  g.rope = shape.rope_dim.value_or(0);
  g.nope = shape.nope_dim.value_or(0);
  g.v_dim = shape.v_head_dim.value_or(0);
  g.heads = shape.heads.value_or(0);
  int64_t indexed = 0;
  if (shape.index_dim) {
    PF_ASSIGN(indexed, layers_of("--index-layers", shape.index_layers, storing));
  }
  if (g.layers = storing - indexed; g.layers > 0) m.groups.push_back(g);
  g.index_dim = shape.index_dim.value_or(0);
  if (g.layers = indexed; g.layers > 0) m.groups.push_back(g);
  m.not_run = "latent attention is not supported";
  return ok_status();
}

Status add_heads(const CalcShape& shape, int64_t storing, calc::Model& m) {
  if (!shape.kv_heads || !shape.head_dim) {
    return bad_input("a model by hand needs --layers, and --kv-heads with --head-dim or --latent");
  }
  if (shape.rope_dim || shape.nope_dim || shape.index_dim || shape.index_layers) {
    return bad_input("--rope-dim, --nope-dim, --index-dim and --index-layers go with --latent");
  }
  const int64_t k_dim = *shape.head_dim, v_dim = shape.v_head_dim.value_or(k_dim);
  int64_t sliding = 0;
  if (shape.window) {
    PF_ASSIGN(sliding, layers_of("--window-layers", shape.window_layers, storing));
    m.groups.push_back(calc::windowed_layers(calc::LayerKind::sliding, sliding, *shape.kv_heads,
                                             k_dim, v_dim, *shape.window));
  }
  if (sliding < storing) {
    m.groups.push_back(calc::full_layers(storing - sliding, *shape.kv_heads, k_dim, v_dim));
  }
  if (v_dim != k_dim) m.not_run = "keys and values of different width are not supported";
  return ok_status();
}

Result<CalcModelSource> from_shape(const CalcShape& shape) {
  CalcModelSource s;
  calc::Model& m = s.model;
  m.id = m.architecture = "by hand";
  if (!shape.layers) return bad_input("a model by hand needs --layers");
  if (shape.window_layers && !shape.window) return bad_input("--window-layers: needs --window");
  if (shape.index_layers && !shape.index_dim) return bad_input("--index-layers: needs --index-dim");
  m.n_layers = *shape.layers;
  m.n_heads = shape.heads.value_or(shape.kv_heads.value_or(0));
  m.hidden = shape.hidden.value_or(0);
  m.ffn = shape.ffn.value_or(0);
  m.vocab = shape.vocab.value_or(0);
  m.params = shape.params.value_or(0);
  m.context = shape.context.value_or(0);
  if (m.n_layers < 1 || m.n_layers > calc::kMostLayers) {
    return bad_input("--layers: must be {}, got {}", integer_range(1, calc::kMostLayers),
                     m.n_layers);
  }
  const int64_t shared = shape.shared_layers.value_or(0);
  if (shared < 0 || shared >= m.n_layers) {
    return bad_input("--shared-layers: must be below the {} layers, got {}", m.n_layers, shared);
  }
  PF_TRY(shape.latent ? add_latent(shape, m.n_layers - shared, m)
                      : add_heads(shape, m.n_layers - shared, m));
  if (shared > 0) {
    calc::LayerGroup readers;
    readers.kind = calc::LayerKind::none;
    readers.layers = shared;
    m.groups.push_back(readers);
    if (m.not_run.empty()) m.not_run = "layers that share a cache are not supported";
  }
  PF_TRY(calc::check_model(m));
  return s;
}

bool is_json(const fs::path& path) { return path.extension() == ".json"; }

}  // namespace

Result<CalcModelSource> calc_model(const CalcRequest& request) {
  const int given = (request.model.empty() ? 0 : 1) + (request.config_json.empty() ? 0 : 1) +
                    (request.shape.any() ? 1 : 0);
  if (given != 1) {
    return bad_input("model: give exactly one of a model, a config and a shape by hand");
  }
  if (!request.config_json.empty()) return from_config(request.config_json, "config");
  if (request.shape.any()) return from_shape(request.shape);
  const fs::path path = request.model;
  std::error_code ec;
  const auto kind = fs::status(path, ec);
  if (ec || !fs::exists(kind)) return from_name(request.model);
  if (fs::is_directory(kind)) return from_folder(path);
  if (!is_json(path)) return from_gguf(path);
  PF_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  return from_config(text, request.model);
}

}  // namespace pagefold
