// How a budget is shared out among the tables of a sequence. One file in budgets/, one line in
// budgets.def; any policy works with any of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kv/model.h"

namespace pagefold {

struct BudgetParams {
  double alpha = 0.2;  // adaptive: share of the budget that every head keeps
  double beta = 20;    // pyramid: base / beta is the top layer's least
};

// All counts are slots of compressed tables (sliding-window layers have zeros everywhere).
struct BudgetInput {
  const KvModel& model;
  BudgetParams params;
  int64_t budget = 0;               // a table, pinned slots not counted
  int64_t window = 0;               // protected slots a table (sinks + recent), inside the budget
  int64_t computed = 0;             // tokens computed so far
  const int64_t* live = nullptr;    // [n_tables] slots now, pinned ones included
  const int64_t* pinned = nullptr;  // [n_tables] kept on top of the budget
  const int64_t* least = nullptr;   // [n_tables] pinned and protected slots together
  // [n_tables] scores of the live slots in slot order with protected and pinned ones at +infinity;
  // null unless uses_scores().
  const std::vector<float>* scores = nullptr;
};

class BudgetRule {
 public:
  virtual ~BudgetRule() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;
  virtual std::string_view param() const { return {}; }  // the key of `params` that it reads
  virtual bool uses_scores() const { return false; }
  virtual bool even() const { return false; }          // every table the same count
  virtual bool whole_blocks() const { return false; }  // counts come out in blocks
  // keep[n_tables]: slots to keep, pinned ones included; least <= keep <= live.
  virtual void counts(const BudgetInput& in, int64_t* keep) const = 0;
};

// Clamps keep to [low, high] and gives what that changed to other entries, so that the sum is
// min(total, sum of high), or the sum of low if that is more. Ascending index takes first.
void fit_counts(int64_t* keep, const int64_t* low, const int64_t* high, int n, int64_t total);
// The exact-total pyramid of one head index over `layers` layers (largest remainder; the lower
// layer first): prefix slots a layer, of `base` on average; none above `most`.
std::vector<int64_t> pyramid_line(int64_t base, double beta, int layers, int64_t most);

}  // namespace pagefold
