#include "model/load.h"

#include <algorithm>

#include "model/kv_recipe.h"

namespace pagefold {
namespace {

constexpr size_t kMaxConfigBytes = 8 << 20;

Status open_folder(const std::filesystem::path& path, ModelFiles& files) {
  const std::filesystem::path config_path = path / "config.json";
  PF_ASSIGN(const std::string text, read_file(config_path, kMaxConfigBytes));
  auto json = parse_json(text);
  if (!json.ok()) return with_context(json.status(), config_path.string());
  PF_ASSIGN(files.config, config_from_hf(*json, config_path.string()));
  PF_ASSIGN(files.quant, read_quant_config(path, *json));
  PF_ASSIGN(files.safetensors, SafetensorsSet::open(path));
  PF_TRY(
      read_kv_scales(files.safetensors->tensors(), files.config.shape.n_layers, files.config.kv));
  return ok_status();
}

}  // namespace

Result<QuantConfig> read_quant_config(const std::filesystem::path& folder, const Json& config) {
  PF_ASSIGN(QuantConfig quant, quant_config_from_hf(config, (folder / "config.json").string()));
  if (quant.method != QuantMethod::none) return quant;
  struct File {
    const char* name;
    std::string_view method;  // where the file does not say and nothing in it tells
  };
  for (const File& f : {File{"quantize_config.json", "gptq"}, File{"quant_config.json", "awq"}}) {
    const std::filesystem::path path = folder / f.name;
    std::error_code ec;
    if (!std::filesystem::exists(path, ec)) continue;
    PF_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
    auto json = parse_json(text);
    if (!json.ok()) return with_context(json.status(), path.string());
    return parse_quant_config(*json, path.string(), f.method);
  }
  return quant;
}

Result<ModelFiles> open_model(const std::filesystem::path& path) {
  ModelFiles files;
  files.path = path;
  std::error_code ec;
  const auto kind = std::filesystem::status(path, ec);
  if (ec || !std::filesystem::exists(kind))
    return not_found("{}: no such file or folder", path.string());
  if (std::filesystem::is_directory(kind)) {
    PF_TRY(open_folder(path, files));
  } else {
    PF_ASSIGN(files.gguf, GgufFile::open(path));
    PF_ASSIGN(files.config, config_from_gguf(*files.gguf));
    files.quant.method = QuantMethod::gguf;
  }
  return files;
}

std::optional<DType> stored_matrix_type(std::span<const TensorInfo> tensors) {
  std::optional<DType> found;
  for (const TensorInfo& t : tensors) {
    if (t.shape.size() != 2) continue;
    if (t.type == TensorType::F16) return DType::f16;
    if (t.type == TensorType::BF16) return DType::bf16;
    if (t.type == TensorType::F32) found = DType::f32;
  }
  return found;
}

StoredTypes stored_types(const ModelFiles& files) {
  return {files.config.stored_dtype, stored_matrix_type(files.tensors()),
          files.config.shape.architecture};
}

std::vector<TensorType> tensor_types(std::span<const TensorInfo> tensors) {
  std::vector<TensorType> types;
  for (const TensorInfo& t : tensors) {
    if (std::find(types.begin(), types.end(), t.type) == types.end()) types.push_back(t.type);
  }
  return types;
}

Status check_activations(const ModelFiles& files, Activations wanted) {
  return choose_activations(files.quant, tensor_types(files.tensors()), wanted).status();
}

Result<std::unique_ptr<TransformerModel>> load_network(const ModelFiles& files,
                                                       const NetworkOptions& options) {
  PF_ASSIGN(std::unique_ptr<Backend> backend, make_cpu_backend(options.backend));
  if (options.wrap) backend = options.wrap(std::move(backend));
  auto weights = load_weights(*backend, files.config, files.quant, files.tensors(), files.naming(),
                              options.progress);
  if (!weights.ok()) {
    const std::string path = files.path.string();  // most messages begin with a file in it
    const bool named = message_of(weights.status()).starts_with(path);
    return named ? weights.status() : with_context(weights.status(), path);
  }
  return std::make_unique<TransformerModel>(std::move(backend), files.config, *std::move(weights));
}

}  // namespace pagefold
