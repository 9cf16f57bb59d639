// parse_kv_options of registry.h.
#include <algorithm>

#include "kv/option_keys.h"
#include "kv/registry.h"
#include "kv/words.h"

namespace pagefold {
namespace {

// "h2o:alloc=adaptive,interval=16" -> policy=h2o, alloc=adaptive, interval=16. Keys given apart
// win.
Result<KvWords> unfold(const KvWords& options) {
  KvWords out = options;
  const auto it = out.find("policy");
  if (it == out.end()) return out;
  const std::string value = it->second;
  const size_t colon = value.find(':');
  if (colon == std::string::npos) return out;
  out["policy"] = value.substr(0, colon);
  std::string_view rest = std::string_view(value).substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return bad_input("kv.policy: expected NAME:KEY=VALUE,KEY=VALUE, got \"{}\"", shown(value));
    }
    out.emplace(std::string(part.substr(0, equals)), std::string(part.substr(equals + 1)));
  }
  return out;
}

// Server words that hold for a request with another policy too.
bool inherited(std::string_view key) {
  const KvKey* k = find_kv_key(key);
  return k != nullptr && k->inherited;
}

std::vector<std::string_view> permitted_policies(const KvLimits& limits) {
  const auto permitted = [&](const Policy& p) {
    return p.cost() <= limits.most_cost && (!p.defaults().offline || limits.allow_offline);
  };
  std::vector<std::string_view> names;
  for (const Policy* p : all_policies()) {
    if (permitted(*p)) names.push_back(p->name());
  }
  for (const Preset& p : all_presets()) {
    if (permitted(*find_policy(p.policy))) names.push_back(p.name);
  }
  return names;
}

Status choose_policy(std::string_view name, const KvLimits& limits, KvPlan& plan) {
  plan.name = std::string(name);
  std::string_view alloc;
  plan.policy = find_policy(name);
  for (const Preset& p : all_presets()) {
    if (p.name != name) continue;
    plan.policy = find_policy(p.policy);
    alloc = p.alloc;
  }
  if (plan.policy == nullptr) {
    return bad_input("kv.policy: unknown policy \"{}\"; known policies: {}", shown(name),
                     joined(permitted_policies(limits)));
  }
  plan.defaults = plan.policy->defaults();
  plan.interval = plan.defaults.interval;
  plan.sinks = plan.defaults.sinks;
  plan.recent = plan.defaults.recent;
  plan.recent_rule = plan.defaults.recent_rule;
  plan.protect_prompt = plan.defaults.protect_prompt;
  plan.packing = plan.defaults.packing;
  plan.alloc = find_budget(alloc.empty() ? plan.defaults.alloc : alloc);
  for (const ParamSpec& s : plan.policy->params()) plan.params.set(s.key, s.value);
  return ok_status();
}

Status set_params(const KvWords& words, const KvLimits& limits, int64_t n_prompt, KvPlan& plan) {
  const Policy& policy = *plan.policy;
  for (const auto& [key, word] : words) {
    const auto specs = policy.params();
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&, &k = key](const ParamSpec& s) { return s.key == k; });
    if (spec != specs.end()) {
      PF_ASSIGN(const double value, parse_param(fmt::format("kv.{}", key), word, *spec));
      plan.params.set(spec->key, value);
      continue;
    }
    if (key == "calibration" && uses_calibration(policy, plan.params)) {
      plan.calibration = word;
      continue;
    }
    const KvKey* common = find_kv_key(key);
    if (common == nullptr) {
      return bad_input("kv: unknown key \"{}\" for policy {}; known keys: {}", shown(key),
                       plan.name, joined(known_kv_keys(policy, plan.params)));
    }
    if (common->of_request) {
      return bad_input(
          "kv.{}: it is of single requests; give it as a member of their \"kv\", apart from the "
          "policy's name",
          key);
    }
    if (common->set == nullptr) continue;  // policy and select: handled by the caller
    PF_TRY(common->set({fmt::format("kv.{}", key), word, n_prompt, limits}, plan));
  }
  for (const ParamSpec& s : policy.params()) {
    if (s.key == "kernel" && plan.params.integer(s.key) % 2 == 0) {
      return bad_input("kv.kernel: expected an odd number, got {}", plan.params.integer(s.key));
    }
  }
  if (plan.params.has("drop")) plan.drop = plan.params.integer("drop");
  if (plan.params.has("reindex")) plan.reindex = plan.params.get("reindex") == 1;
  return ok_status();
}

Status choose_selector(const KvWords& words, KvPlan& plan) {
  const auto it = words.find("select");
  int select = plan.policy->name() == "quest" ? 1 : 0;
  if (it != words.end()) {
    PF_ASSIGN(select, parse_choice("kv.select", it->second, "none,quest"));
  }
  if (select == 0) {
    plan.quest_tokens = 0;
  } else if (plan.quest_tokens == 0) {
    plan.quest_reads_budget = true;
    plan.quest_tokens = plan.budget_share > 0 ? 1 : plan.budget;
  }
  return ok_status();
}

Status find_statistics(const KvModel& model, const KvLimits& limits, KvPlan& plan) {
  if (!uses_calibration(*plan.policy, plan.params)) return ok_status();
  if (limits.sizing) {
    if (plan.calibration == "self") plan.params.set("self", 1);
    return ok_status();
  }
  if (model.bands() == 0) {
    return bad_input("kv.policy: {} needs a model with rotary positions", plan.name);
  }
  if (plan.calibration != "self" && limits.calibration) {
    plan.stats = limits.calibration(plan.calibration);
  }
  if (plan.stats != nullptr) {
    const Status s = check_calibration(*plan.stats, model);
    return s.ok() ? s : with_context(s, fmt::format("kv.calibration {}", plan.calibration));
  }
  if (plan.calibration != "self" && plan.calibration != "auto") {
    const std::string more =
        limits.calibration_names.empty() ? "" : ", " + limits.calibration_names;
    return bad_input("kv.calibration: unknown name \"{}\"; known: auto, self{}",
                     shown(plan.calibration), more);
  }
  plan.params.set("self", 1);
  return ok_status();
}

// Slots that a budget of plan.budget must have room for: sinks, recent ones, and, where blocks are
// kept whole, what rounding the protected spans to blocks adds.
int64_t always_kept(const KvModel& model, const KvPlan& plan, bool whole) {
  const int64_t sinks = plan.sinks_at(0, 0), recent = plan.recent_at(0);
  if (!whole) return sinks + recent;
  const auto spans = static_cast<int64_t>(plan.keep.size());
  const int64_t guarded = plan.recent_rule == RecentRule::rest ? sinks : sinks + recent;
  return guarded + (2 + 2 * spans) * (model.block_size - 1);
}

// Sinks and recent slots may grow with the budget, so the least one that is enough is gone up to.
Status check_budget(const KvModel& model, const KvPlan& plan) {
  const bool whole = plan.packing == Packing::block || plan.alloc->whole_blocks();
  if (plan.budget_share > 0) return ok_status();
  KvPlan least = plan;
  for (int64_t need; (need = always_kept(model, least, whole)) > least.budget;) least.budget = need;
  if (least.budget == plan.budget) return ok_status();
  const int64_t sinks = least.sinks_at(0, 0), recent = least.recent_at(0);
  if (!whole) {
    return bad_input(
        "kv.budget: {} is below the {} slots that are always kept (sinks {}, recent {}); raise the "
        "budget or lower them",
        plan.budget, least.budget, sinks, recent);
  }
  return bad_input(
      "kv.budget: {} is below {}: sinks {}, recent {} and {} protected spans are always kept, and "
      "with {} they round up to whole blocks of {}; raise the budget, or lower sinks, recent or "
      "keep",
      plan.budget, least.budget, sinks, plan.recent_rule == RecentRule::rest ? 0 : recent,
      plan.keep.size(), plan.packing == Packing::block ? "packing=block" : "alloc=global",
      model.block_size);
}

Status check_plan(const KvModel& model, const KvLimits& limits, const KvPlan& plan) {
  if (plan.defaults.offline && !limits.allow_offline) {
    return bad_input(
        "kv.policy: {} needs the future; it exists in `pagefold eval` alone; use one of {}",
        plan.name, joined(permitted_policies(limits)));
  }
  if (plan.packing == Packing::off && !limits.allow_off) {
    return bad_input(
        "kv.packing: off keeps the memory of what it evicts and is not served; use order, fill or "
        "block");
  }
  if (plan.policy->cost() > limits.most_cost) {
    return bad_input(
        "kv.policy: {} compares all keys with each other and is not served here; use one of {}",
        plan.name, joined(permitted_policies(limits)));
  }
  if (!plan.evicts()) return ok_status();
  if (plan.interval < limits.min_interval && !plan.defaults.once) {
    return bad_input("kv.interval: {} is below this server's least interval of {}", plan.interval,
                     limits.min_interval);
  }
  if (plan.defaults.once && plan.protect_prompt) {
    return bad_input("kv.protect_prompt: {} evicts prompt tokens alone, so nothing would go",
                     plan.name);
  }
  const int window = plan.policy->needs(plan.params).window;
  if (plan.prefill_evict && window > plan.prefill_chunk &&
      plan.policy->needs(plan.params).prompt == PromptRows::last) {
    return bad_input("kv.prefill_chunk: {} is below the window of {} rows that {} observes",
                     plan.prefill_chunk, window, plan.name);
  }
  return check_budget(model, plan);
}

}  // namespace

Result<KvPlan> parse_kv_options(const KvWords& request, const KvWords& server, const KvModel& model,
                                const KvLimits& limits, int64_t n_prompt) {
  PF_ASSIGN(const KvWords own, unfold(request));
  PF_ASSIGN(const KvWords defaults, unfold(server));
  KvWords words = own;
  const bool own_policy = words.count("policy") > 0;
  for (const auto& [key, word] : defaults) {
    if (!own_policy || inherited(key)) words.emplace(key, word);
  }
  KvPlan plan;
  const auto it = words.find("policy");
  PF_TRY(choose_policy(it == words.end() ? "full" : std::string_view(it->second), limits, plan));
  PF_TRY(set_params(words, limits, n_prompt, plan));
  PF_TRY(choose_selector(words, plan));
  PF_TRY(find_statistics(model, limits, plan));
  PF_TRY(check_plan(model, limits, plan));
  plan.unused = unused_kv_words(own, plan);
  return plan;
}

}  // namespace pagefold
