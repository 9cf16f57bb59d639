#include "api/engine_setup.h"

#include <utility>

#include "api/calibrations.h"
#include "base/system.h"
#include "engine/compression.h"

namespace pagefold {
namespace {

Result<EngineConfig> checked_config(const EngineOptions& options, const ServingLimits& limits,
                                    const ModelFiles& files, const LoadedModel& model) {
  const uint64_t memory = total_memory();
  if (memory > 0 && options.kv_cache_memory_bytes > memory) {
    return bad_input(
        "--kv-cache-memory-bytes: {} is more memory than there is here ({}); give less",
        options.kv_cache_memory_bytes, memory);
  }
  const ModelShape shape = model_shape(files.config);
  PF_ASSIGN(EngineConfig config, resolve_config(options, shape, model.kv, available_memory()));
  config.allow_packing_off = limits.allow_packing_off;
  config.min_kv_interval = limits.min_kv_interval;
  config.most_policy_cost = limits.most_policy_cost;
  const KvModel kv = kv_model(shape, config.block_size);
  PF_TRY(register_calibrations(options, files, kv, config));
  PF_TRY(resolve_kv_plan({}, config, kv, 0).status());
  return config;
}

}  // namespace

Result<EngineSetup> load_for_engine(const EngineOptions& options, const ServingLimits& limits) {
  EngineConfig config;
  PF_ASSIGN(LoadedModel model,
            load_model(options, [&](const ModelFiles& files, const LoadedModel& m) -> Status {
              PF_ASSIGN(config, checked_config(options, limits, files, m));
              return ok_status();
            }));
  PF_TRY(fit_pool(options, model.network->shape(), available_memory(), config));
  return EngineSetup{std::move(model), std::move(config)};
}

}  // namespace pagefold
