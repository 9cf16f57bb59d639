#include "kv/registry.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace pagefold {

#define PF_POLICY(f) const Policy& policy_##f();
#define PF_PRESET(name, policy, alloc)
#include "kv/policies.def"
#undef PF_POLICY
#undef PF_PRESET
#define PF_BUDGET(f) const BudgetRule& budget_##f();
#include "kv/budgets.def"
#undef PF_BUDGET

void PolicyParams::set(std::string_view key, double value) {
  for (auto& [k, v] : values_) {
    if (k == key) {
      v = value;
      return;
    }
  }
  values_.emplace_back(key, value);
}

double PolicyParams::get(std::string_view key) const {
  for (const auto& [k, v] : values_) {
    if (k == key) return v;
  }
  PF_CHECK(false, "a policy asks for a parameter that it does not declare");
  return 0;
}

bool PolicyParams::has(std::string_view key) const {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& p) { return p.first == key; });
}

const std::vector<const Policy*>& all_policies() {
  static const std::vector<const Policy*> policies = {
#define PF_POLICY(f) &policy_##f(),
#define PF_PRESET(name, policy, alloc)
#include "kv/policies.def"
#undef PF_POLICY
#undef PF_PRESET
  };
  return policies;
}

const std::vector<Preset>& all_presets() {
  static const std::vector<Preset> presets = {
#define PF_POLICY(f)
#define PF_PRESET(name, policy, alloc) {name, policy, alloc},
#include "kv/policies.def"
#undef PF_POLICY
#undef PF_PRESET
  };
  return presets;
}

const std::vector<const BudgetRule*>& all_budgets() {
  static const std::vector<const BudgetRule*> budgets = {
#define PF_BUDGET(f) &budget_##f(),
#include "kv/budgets.def"
#undef PF_BUDGET
  };
  return budgets;
}

const Policy* find_policy(std::string_view name) {
  for (const Policy* p : all_policies()) {
    if (p->name() == name) return p;
  }
  return nullptr;
}

const BudgetRule* find_budget(std::string_view name) {
  for (const BudgetRule* b : all_budgets()) {
    if (b->name() == name) return b;
  }
  return nullptr;
}

std::string describe_policies() {
  std::string out;
  for (const Policy* p : all_policies()) {
    out += fmt::format("{}: {}\n", p->name(), p->summary());
    for (const ParamSpec& s : p->params()) {
      if (s.words.empty()) {
        out += fmt::format("  {}={}: {}\n", s.key, s.value, s.help);
      } else {
        out += fmt::format("  {}={}: {}\n", s.key, s.words, s.help);
      }
    }
  }
  for (const Preset& p : all_presets()) {
    out += fmt::format("{}: {} with alloc={}\n", p.name, p.policy, p.alloc);
  }
  out += "alloc (how the budget is shared out):\n";
  for (const BudgetRule* b : all_budgets()) {
    out += fmt::format("  {}: {}\n", b->name(), b->summary());
  }
  return out;
}

}  // namespace pagefold
