// From options to a loaded model and the config of its engine. What the options get wrong is
// refused once the headers are read: nobody waits for weights to learn of a mistyped word.
#pragma once

#include <functional>

#include "api/loaded_model.h"
#include "base/result.h"
#include "engine/engine.h"
#include "pagefold/options.h"

namespace pagefold {

// What whoever offers the engine permits.
struct ServingLimits {
  bool allow_packing_off = true;  // it shows the problem; a server is there to solve it
  int64_t min_kv_interval = 1;    // least interval a request may ask for
  PolicyCost most_policy_cost = PolicyCost::quadratic;  // policies beyond it are refused
};

struct EngineSetup {
  LoadedModel model;
  EngineConfig config;
};

// Called when the tokenizer and the template are there too, the network is not: an error ends the
// loading.
using TextCheck =
    std::function<Status(const LoadedModel& model, const EngineConfig& config, int64_t vocab_size)>;

// Errors: those of load_model and resolve_config, a default compression that no request could have
// (EngineOptions::kv), a calibration that is not this model's.
Result<EngineSetup> load_for_engine(const EngineOptions& options, const ServingLimits& limits = {},
                                    const TextCheck& text_check = {});

}  // namespace pagefold
