#include "kv/plan.h"

#include <algorithm>
#include <iterator>

namespace pagefold {
namespace {

constexpr int64_t kHardPrefix = 128;    // slots kept while self statistics are young
constexpr int64_t kSettledRows = 4096;  // rows after which they are trusted

}  // namespace

int64_t KvPlan::budget_at(int64_t next_pos) const {
  if (budget_share <= 0) return budget;
  int64_t least = sinks + 1;
  if (recent_rule == RecentRule::tokens) least += recent;
  if (recent_rule == RecentRule::window) least += params.integer("window");
  const auto share = static_cast<int64_t>(budget_share * static_cast<double>(next_pos));
  return std::max(share, least);
}

int64_t KvPlan::quest_tokens_at(int64_t next_pos) const {
  if (!quest_reads_budget || budget_share <= 0) return quest_tokens;
  return std::max(quest_tokens, static_cast<int64_t>(budget_share * static_cast<double>(next_pos)));
}

int64_t KvPlan::recent_at(int64_t next_pos) const {
  switch (recent_rule) {
    case RecentRule::half:
      return budget_at(next_pos) / 2;
    case RecentRule::rest:
      return std::max<int64_t>(0, budget_at(next_pos) - sinks);
    case RecentRule::window:
      return params.integer("window");
    case RecentRule::tokens:
      break;
  }
  return recent;
}

int64_t KvPlan::sinks_at(int64_t next_pos, int64_t stats_rows) const {
  if (!params.has("self") || stats_rows >= kSettledRows) return sinks;
  const int64_t budget_now = budget_at(next_pos);
  const int64_t room = budget_share > 0 ? budget_now - recent_at(next_pos) : budget_now;
  return std::max(sinks, std::min({kHardPrefix, budget_now / 4, room}));
}

bool KvPlan::pinned(int64_t position, int64_t n_prompt) const {
  if (protect_prompt && position < n_prompt) return true;
  const auto after =
      std::upper_bound(keep.begin(), keep.end(), position,
                       [](int64_t p, const KeepSpan& span) { return p < span.begin; });
  return after != keep.begin() && position < std::prev(after)->end;
}

int64_t KvPlan::pinned_count(int64_t computed, int64_t n_prompt) const {
  if (protect_prompt) return std::min(computed, n_prompt);
  int64_t n = 0;
  for (const KeepSpan& span : keep) {
    n += std::max<int64_t>(0, std::min(span.end, computed) - span.begin);
  }
  return n;
}

}  // namespace pagefold
