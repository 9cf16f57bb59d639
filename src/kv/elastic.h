// kv.elastic: a request may let its budget be lowered while it runs, so that nobody is paused.
#pragma once

#include <cstdint>
#include <memory>

#include "kv/plan.h"

namespace pagefold {

// The plan with half its budget, at least a quarter of `asked` and what it always keeps, from now
// on the same at every length. Null: the request did not opt in, its policy never evicts generated
// tokens, or there is nothing left to lower. computed: tokens so far.
std::shared_ptr<const KvPlan> lowered_plan(const KvPlan& plan, const KvModel& model,
                                           int64_t computed, int64_t asked);

}  // namespace pagefold
