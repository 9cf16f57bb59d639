#include "api/loaded_model.h"

#include <chrono>

#include "api/calibrations.h"
#include "api/gguf_text.h"
#include "api/hf_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/threads.h"

namespace pagefold {
namespace {

Status resolve_types(const EngineOptions& options, const ModelFiles& files, LoadedModel& m) {
  PF_ASSIGN(const DTypeChoice choice, choose_dtype(options.dtype, stored_types(files)));
  m.dtype = choice.dtype;
  PF_ASSIGN(m.kv, resolve_kv_format(
                      {options.kv_cache_dtype, options.kv_cache_dtype_v, options.kv_cache_group},
                      m.dtype, files.config.kv));
  if (!choice.info.empty()) log::info("{}", choice.info);
  if (!choice.warning.empty()) log::warn("{}", choice.warning);
  if (const std::string text = kv_format_warning(m.kv); !text.empty()) log::warn("{}", text);
  return ok_status();
}

Status load_text(const ModelFiles& files, LoadedModel& m) {
  if (files.gguf) {
    PF_ASSIGN(GgufTokenizerSpec spec, gguf_tokenizer_spec(*files.gguf));
    PF_ASSIGN(m.chat_template_source, gguf_chat_template(*files.gguf));
    m.eos_token_ids = gguf_end_tokens(*files.gguf, spec);
    auto tokenizer = tokenizer_from_gguf(std::move(spec));
    if (!tokenizer.ok()) return with_context(tokenizer.status(), m.path);
    m.tokenizer = *std::move(tokenizer);
  } else {
    PF_ASSIGN(HfText text, read_hf_text(files.path));
    auto tokenizer = tokenizer_from_json(text.tokenizer_json, text.tokenizer_config);
    if (!tokenizer.ok()) return with_context(tokenizer.status(), m.path + "/tokenizer.json");
    m.tokenizer = *std::move(tokenizer);
    m.chat_template_source = std::move(text.chat_template);
    m.eos_token_ids = std::move(text.eos_token_ids);
    m.defaults = text.defaults;
  }
  if (m.eos_token_ids.empty() && m.tokenizer->eos() >= 0)
    m.eos_token_ids.push_back(m.tokenizer->eos());
  for (const int32_t id : m.eos_token_ids) {
    if (id >= files.config.shape.vocab_size) {
      return bad_data("{}: 'eos_token_id' is {}, outside the vocabulary of {}", m.path, id,
                      files.config.shape.vocab_size);
    }
  }
  if (m.tokenizer->vocab_size() > files.config.shape.vocab_size) {
    return bad_data("{}: the tokenizer has {} tokens, the model only {}", m.path,
                    m.tokenizer->vocab_size(), files.config.shape.vocab_size);
  }
  if (m.chat_template_source.empty()) return ok_status();
  auto chat = ChatTemplate::parse(m.chat_template_source);
  if (chat.ok()) {
    m.chat_template = *std::move(chat);
  } else {
    // The model still completes raw text; a chat request says why it cannot be served.
    log::warn("{}: the chat template is not usable: {}", m.path, message_of(chat.status()));
  }
  return ok_status();
}

std::string default_name(const std::filesystem::path& path) {
  const std::filesystem::path p = path.has_filename() ? path : path.parent_path();
  return p.extension() == ".gguf" ? p.stem().string() : p.filename().string();
}

}  // namespace

Result<LoadedModel> load_model(const EngineOptions& options, const ModelCheck& check,
                               const WrapBackend& wrap, const ModelCheck& check_text) {
  const auto start = std::chrono::steady_clock::now();
  LoadedModel m;
  m.path = options.model;
  m.name =
      options.served_model_name.empty() ? default_name(options.model) : options.served_model_name;
  PF_ASSIGN(ModelFiles files, open_model(options.model));
  PF_ASSIGN(files.quant, choose_quantization(options.quantization, std::move(files.quant)));
  PF_ASSIGN(const Activations activations, parse_activations(options.activations));
  PF_TRY(check_activations(files, activations));
  PF_TRY(resolve_types(options, files, m));
  if (check) PF_TRY(check(files, m));
  PF_TRY(load_text(files, m));
  if (check_text) PF_TRY(check_text(files, m));

  NetworkOptions network;
  network.backend = {.isa = options.isa,
                     .threads = options.threads > 0 ? options.threads : usable_cores(),
                     .dtype = m.dtype,
                     .activations = activations};
  network.wrap = wrap;
  Progress bar("Loading weights", 100);
  network.progress = [&](uint64_t done, uint64_t total) {
    bar.set(total ? 100 * done / total : 100);
  };
  PF_ASSIGN(m.network, load_network(files, network));
  if (files.gguf) files.gguf->drop_pages();
  m.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return m;
}

}  // namespace pagefold
