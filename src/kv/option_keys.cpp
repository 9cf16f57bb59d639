#include "kv/option_keys.h"

#include <algorithm>
#include <iterator>

#include "kv/words.h"

namespace pagefold {
namespace {

constexpr int64_t kMost = int64_t{1} << 30;

Status set_count(const KvKeyWord& in, int64_t low, int64_t& out) {
  PF_ASSIGN(out, parse_count(in.where, in.word, low, kMost));
  return ok_status();
}

Status set_flag(const KvKeyWord& in, bool& out) {
  PF_ASSIGN(out, parse_switch(in.where, in.word));
  return ok_status();
}

Status set_number(const KvKeyWord& in, double low, double high, double& out) {
  PF_ASSIGN(out, parse_param(in.where, in.word, ParamSpec{"", 0, low, high, false}));
  return ok_status();
}

Status set_budget(const KvKeyWord& in, KvPlan& plan) {
  return parse_budget(in.word, plan.budget, plan.budget_share);
}
Status set_interval(const KvKeyWord& in, KvPlan& plan) { return set_count(in, 1, plan.interval); }
Status set_sinks(const KvKeyWord& in, KvPlan& plan) { return set_count(in, 0, plan.sinks); }
Status set_recent(const KvKeyWord& in, KvPlan& plan) {
  plan.recent_rule = RecentRule::tokens;
  return set_count(in, 0, plan.recent);
}
Status set_protect_prompt(const KvKeyWord& in, KvPlan& plan) {
  return set_flag(in, plan.protect_prompt);
}
Status set_packing(const KvKeyWord& in, KvPlan& plan) {
  // Refused by its reason later (check_plan), but not offered.
  if (in.word == "off") {
    plan.packing = Packing::off;
    return ok_status();
  }
  PF_ASSIGN(const int i, parse_choice(in.where, in.word, packing_words(in.limits.allow_off)));
  plan.packing = static_cast<Packing>(i);
  return ok_status();
}
Status set_release(const KvKeyWord& in, KvPlan& plan) {
  PF_ASSIGN(const int i, parse_choice(in.where, in.word, "os,pool"));
  plan.release = static_cast<Release>(i);
  return ok_status();
}
Status set_alloc(const KvKeyWord& in, KvPlan& plan) {
  plan.alloc = find_budget(in.word);
  if (plan.alloc != nullptr) return ok_status();
  std::vector<std::string_view> known;
  for (const BudgetRule* b : all_budgets()) known.push_back(b->name());
  return bad_input("kv.alloc: unknown value \"{}\"; known values: {}", shown(in.word),
                   joined(known));
}
Status set_alpha(const KvKeyWord& in, KvPlan& plan) {
  return set_number(in, 0, 1, plan.alloc_params.alpha);
}
Status set_beta(const KvKeyWord& in, KvPlan& plan) {
  return set_number(in, 1, 1e6, plan.alloc_params.beta);
}
Status set_keep(const KvKeyWord& in, KvPlan& plan) {
  PF_ASSIGN(plan.keep, parse_spans(in.word, in.n_prompt));
  return ok_status();
}
Status set_prefill_evict(const KvKeyWord& in, KvPlan& plan) {
  return set_flag(in, plan.prefill_evict);
}
Status set_prefill_chunk(const KvKeyWord& in, KvPlan& plan) {
  return set_count(in, 1, plan.prefill_chunk);
}
Status set_before_suffix(const KvKeyWord& in, KvPlan& plan) {
  return set_flag(in, plan.window_before_suffix);
}
Status set_elastic(const KvKeyWord& in, KvPlan& plan) { return set_flag(in, plan.elastic); }
Status set_select_budget(const KvKeyWord& in, KvPlan& plan) {
  return set_count(in, 1, plan.quest_tokens);
}
Status set_select_exempt(const KvKeyWord& in, KvPlan& plan) {
  int64_t layers = 0;
  PF_TRY(set_count(in, 0, layers));
  plan.quest_exempt_layers = static_cast<int>(layers);
  return ok_status();
}

bool evicts(const KvPlan& p) { return p.evicts(); }
bool sparse(const KvPlan& p) { return p.quest_tokens > 0; }
bool budget_used(const KvPlan& p) { return p.evicts() || p.quest_reads_budget; }
bool interval_used(const KvPlan& p) { return p.evicts() && !p.defaults.once; }
bool elastic_used(const KvPlan& p) { return p.evicts() && !p.defaults.once; }
bool alpha_used(const KvPlan& p) { return p.evicts() && p.alloc->param() == "alpha"; }
bool beta_used(const KvPlan& p) { return p.evicts() && p.alloc->param() == "beta"; }
bool chunk_used(const KvPlan& p) { return p.evicts() && p.prefill_evict; }
bool window_used(const KvPlan& p) {
  return p.evicts() && p.policy->needs(p.params).prompt == PromptRows::last;
}

// A policy that evicts nothing fulfils sinks, recent, protect_prompt and keep anyway.
constexpr KvKey kKeys[] = {
    {.name = "policy"},
    {.name = "budget", .set = set_budget, .used = budget_used, .inherited = true},
    {.name = "interval", .set = set_interval, .used = interval_used},
    {.name = "sinks", .set = set_sinks},
    {.name = "recent", .set = set_recent},
    {.name = "protect_prompt", .set = set_protect_prompt},
    {.name = "packing", .set = set_packing, .used = evicts},
    {.name = "release", .set = set_release, .inherited = true},
    {.name = "alloc", .set = set_alloc, .used = evicts},
    {.name = "alpha", .set = set_alpha, .used = alpha_used},
    {.name = "beta", .set = set_beta, .used = beta_used},
    {.name = "keep", .set = set_keep},
    {.name = "prefill_evict", .set = set_prefill_evict, .used = evicts, .inherited = true},
    {.name = "prefill_chunk", .set = set_prefill_chunk, .used = chunk_used, .inherited = true},
    {.name = "before_suffix", .set = set_before_suffix, .used = window_used},
    {.name = "elastic", .set = set_elastic, .used = elastic_used, .inherited = true},
    {.name = "select"},
    {.name = "select_budget", .set = set_select_budget, .used = sparse},
    {.name = "select_exempt", .set = set_select_exempt, .used = sparse},
    {.name = "session", .of_request = true},
    {.name = "drop_thinking", .of_request = true},
};

}  // namespace

std::span<const KvKey> kv_keys() { return kKeys; }

const KvKey* find_kv_key(std::string_view name) {
  const auto* it = std::find_if(std::begin(kKeys), std::end(kKeys),
                                [&](const KvKey& k) { return k.name == name; });
  return it == std::end(kKeys) ? nullptr : it;
}

std::vector<std::string_view> known_kv_keys(const Policy& policy, const PolicyParams& params) {
  std::vector<std::string_view> known;
  for (const KvKey& k : kKeys) known.push_back(k.name);
  for (const ParamSpec& s : policy.params()) known.push_back(s.key);
  if (uses_calibration(policy, params)) known.push_back("calibration");
  return known;
}

std::vector<std::string_view> unused_kv_words(const KvWords& given, const KvPlan& plan) {
  std::vector<std::string_view> out;
  for (const KvKey& k : kKeys) {
    if (k.used != nullptr && !k.used(plan) && given.count(std::string(k.name)) > 0) {
      out.push_back(k.name);
    }
  }
  return out;
}

std::string_view packing_words(bool allow_off) {
  return allow_off ? "order,fill,block,off" : "order,fill,block";
}

bool uses_calibration(const Policy& policy, const PolicyParams& params) {
  return policy.needs(params).key_score == KeyScore::coefficients;
}

bool uses_budget(const Policy& policy) {
  return policy.defaults().evicts || policy.name() == "quest";
}

}  // namespace pagefold
