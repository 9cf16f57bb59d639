#include "kv/elastic.h"

#include <algorithm>

namespace pagefold {
namespace {

int64_t always_kept(const KvPlan& plan, const KvModel& model) {
  int64_t least = plan.sinks + 1;
  if (plan.recent_rule == RecentRule::tokens) least = plan.sinks + plan.recent;
  if (plan.recent_rule == RecentRule::window) least = plan.sinks + plan.params.integer("window");
  if (plan.recent_rule == RecentRule::half) least = 2 * (plan.sinks + 1);
  const bool whole = plan.packing == Packing::block || plan.alloc->whole_blocks();
  const auto spans = static_cast<int64_t>(plan.keep.size());
  if (whole) least += (2 + 2 * spans) * (model.block_size - 1);
  return least;
}

}  // namespace

std::shared_ptr<const KvPlan> lowered_plan(const KvPlan& plan, const KvModel& model,
                                           int64_t computed, int64_t asked) {
  if (!plan.elastic || !plan.evicts() || plan.defaults.once || plan.packing == Packing::off)
    return nullptr;
  const int64_t now = plan.budget_at(computed);
  const int64_t budget = std::max({now / 2, asked / 4, always_kept(plan, model)});
  if (budget >= now) return nullptr;
  KvPlan lower = plan;
  lower.budget = budget;
  lower.budget_share = 0;
  return std::make_shared<const KvPlan>(std::move(lower));
}

}  // namespace pagefold
