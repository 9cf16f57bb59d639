#include "eval/settings.h"

#include <algorithm>
#include <filesystem>

#include "api/calibrations.h"
#include "base/kv_format.h"
#include "eval/summary.h"
#include "model/load.h"

namespace pagefold::eval {
namespace {

constexpr int kVersion = 1;  // of the lines: a change of what a line holds changes it

// FNV-1a: tells texts apart, not attackers.
std::string digest(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", h);
}

uint64_t size_on_disk(const std::string& model) {
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) {
    const auto size = std::filesystem::file_size(model, error);
    return error ? 0 : size;
  }
  uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model, error)) {
    if (entry.path().extension() == ".calibration") continue;  // a setting of its own
    const auto size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    sum += error ? 0 : size;
  }
  return sum;
}

// Prompts of --contexts tokens and their answers, or texts, which are read with one token to spare.
Status check_room(const EvalOptions& o, int64_t models_own) {
  const int64_t room = o.engine.max_model_len > 0 ? o.engine.max_model_len : models_own;
  for (const int64_t c : o.contexts) {
    if (is_text_task(o.task) || c + o.max_tokens <= room) continue;
    return bad_input(
        "eval {}: --contexts: {} tokens and an answer of up to {} do not fit the context of {} "
        "tokens; give at most {}, or fewer --max-tokens",
        o.task, c, o.max_tokens, room, std::max<int64_t>(0, room - o.max_tokens));
  }
  if (!is_text_task(o.task) || o.engine.allow_long_context || o.prompt + o.tokens < models_own)
    return ok_status();
  return bad_input(
      "eval {}: --prompt-tokens {} and --tokens {} do not fit the model's context of {} tokens; "
      "give at most {} in all",
      o.task, o.prompt, o.tokens, models_own, models_own - 1);
}

}  // namespace

Result<Json> look_into_model(const EvalOptions& o) {
  PF_ASSIGN(const ModelFiles files, open_model(o.engine.model));
  PF_TRY(check_room(o, files.config.shape.context_length));
  PF_ASSIGN(const auto calibrations, read_calibration_files(o.engine, files));
  Json digests = Json::object();
  for (const CalibrationFile& file : calibrations) digests[file.name] = digest(file.bytes);
  return digests;
}

Json settings_of(const EvalOptions& o, const std::string& data, const Json& calibrations) {
  const EngineOptions& e = o.engine;
  const auto path = std::filesystem::path(e.model);
  Json s = {
      {"version", kVersion},
      {"task", o.task},
      {"model", (path.has_filename() ? path : path.parent_path()).filename().string()},
      {"model_bytes", size_on_disk(e.model)},
      {"data", o.data.empty() ? "own" : std::filesystem::path(o.data).filename().string()},
      {"data_digest", digest(data)},
      {"seed", o.seed},
      {"samples", o.samples},
      {"dtype", e.dtype},
      {"quantization", e.quantization},
      {"activations", e.activations},
      {"kv_cache_dtype_v", e.kv_cache_dtype_v},
      {"kv_cache_group", e.kv_cache_group == kAutoKvGroup ? Json("auto") : Json(e.kv_cache_group)},
      {"block_size", e.block_size},
      {"isa", e.isa},
      {"kv", e.kv},
      {"kv_keep", e.kv_keep},
      {"kv_calibration", calibrations}};
  if (is_text_task(o.task)) {
    s["prompt_tokens"] = o.prompt;
    s["tokens"] = o.tokens;
  } else {
    s["max_tokens"] = o.max_tokens;
    s["temperature"] = o.temperature;
    s["top_p"] = o.top_p;
    s["repeats"] = o.repeats;
    s["contexts"] = o.contexts;
    s["needles"] = o.needles;
    s["shots"] = o.shots;
  }
  return s;
}

}  // namespace pagefold::eval
