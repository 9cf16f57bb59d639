#include "api/engine_setup.h"

#include <utility>

#include "api/calibrations.h"
#include "base/log.h"
#include "base/system.h"
#include "engine/compression.h"
#include "engine/config.h"
#include "kv/words.h"

namespace pagefold {
namespace {

// One set of options is often run over several policies, so a word that does nothing is no error.
void warn_of_unused(const KvPlan& plan) {
  if (plan.unused.empty()) return;
  log::warn("kv: {} {} nothing with policy {}{}", joined(plan.unused),
            plan.unused.size() == 1 ? "does" : "do", plan.name,
            plan.evicts() ? "" : ", which evicts nothing");
}

Result<EngineConfig> checked_config(const EngineOptions& options, const ServingLimits& limits,
                                    const ModelFiles& files, const LoadedModel& model) {
  const uint64_t memory = total_memory();
  if (memory > 0 && options.kv_cache_memory_bytes > memory) {
    return bad_input(
        "--kv-cache-memory-bytes: {} is more memory than there is here ({}); give less",
        options.kv_cache_memory_bytes, memory);
  }
  const ModelShape shape = model_shape(files.config);
  PF_TRY(check_block_size(options.block_size));
  const KvModel kv = kv_model(shape, options.block_size);
  // The default compression first, and with the statistics that it would use: what the sizes below
  // make of it leaves them out.
  EngineConfig found;
  found.allow_packing_off = limits.allow_packing_off;
  found.min_kv_interval = limits.min_kv_interval;
  found.most_policy_cost = limits.most_policy_cost;
  PF_TRY(register_calibrations(options, files, kv, found));
  PF_ASSIGN(const auto plan, resolve_kv_plan(options.kv, found, kv, 0));
  warn_of_unused(*plan);
  PF_ASSIGN(EngineConfig config, resolve_config(options, shape, model.kv, available_memory()));
  config.allow_packing_off = limits.allow_packing_off;
  config.min_kv_interval = limits.min_kv_interval;
  config.most_policy_cost = limits.most_policy_cost;
  config.find_calibration = std::move(found.find_calibration);
  config.calibration_names = std::move(found.calibration_names);
  return config;
}

}  // namespace

Result<EngineSetup> load_for_engine(const EngineOptions& options, const ServingLimits& limits,
                                    const TextCheck& text_check) {
  EngineConfig config;
  const ModelCheck check = [&](const ModelFiles& files, const LoadedModel& m) -> Status {
    PF_ASSIGN(config, checked_config(options, limits, files, m));
    return ok_status();
  };
  const ModelCheck check_text = [&](const ModelFiles& files, const LoadedModel& m) -> Status {
    return text_check ? text_check(m, config, files.config.shape.vocab_size) : ok_status();
  };
  PF_ASSIGN(LoadedModel model, load_model(options, check, {}, check_text));
  PF_TRY(fit_pool(options, model.network->shape(), available_memory(), config));
  return EngineSetup{std::move(model), std::move(config)};
}

}  // namespace pagefold
