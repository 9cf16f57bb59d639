// Names of policies, presets and budgets, and the check of a request's words.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/plan.h"

namespace pagefold {

const std::vector<const Policy*>& all_policies();  // in the order of policies.def
const std::vector<const BudgetRule*>& all_budgets();
struct Preset {
  std::string_view name, policy, alloc;
};
const std::vector<Preset>& all_presets();
const Policy* find_policy(std::string_view name);  // null: unknown; not presets
const BudgetRule* find_budget(std::string_view name);

// The words of a request or of the server's options; the same type as KvOptions of the public API.
using KvWords = std::map<std::string, std::string>;

// Registered calibrations: null for an unknown name. "auto" asks for the model's own, null: none.
using FindCalibration =
    std::function<std::shared_ptr<const CalibrationStats>(std::string_view name)>;

struct KvLimits {
  bool allow_off = false;      // packing `off`: generate, eval and reclaim; not serve
  bool allow_offline = false;  // oracle: eval
  int64_t min_interval = 1;    // the server's least interval
  PolicyCost most_cost = PolicyCost::quadratic;  // the most expensive policies it serves
  FindCalibration calibration;                   // empty: none registered
  std::string calibration_names;                 // for messages: "a, b"
  bool sizing = false;  // only sizes are wanted: names of calibrations are not looked up
};

// Words of the server's default below the request's own: a request that names a policy starts from
// that policy's defaults and keeps of the server's words only those that suit it.
// kInvalidArgument: unknown policy, key or value (with what is known), budget below the protected
// slots (both numbers), a calibration of another model, packing `off` where it is not allowed.
// n_prompt: 0 when unknown (checks of server options); spans must lie within it otherwise.
Result<KvPlan> parse_kv_options(const KvWords& request, const KvWords& server, const KvModel& model,
                                const KvLimits& limits, int64_t n_prompt);

// "name: summary" lines and keys, for --help and /api/policies.
std::string describe_policies();

}  // namespace pagefold
