#include "kv/schedule.h"

#include <algorithm>
#include <limits>

namespace pagefold {
namespace {

int64_t compressed_tables(const KvModel& m) {
  return static_cast<int64_t>(m.n_compressed_layers()) * m.n_kv_heads;
}

// Layers with sliding windows, which compression leaves alone.
Footprint windowed_layers(const KvModel& m, int64_t slots, int64_t step_rows) {
  Footprint f;
  for (int l = 0; l < m.n_layers; ++l) {
    if (m.compressed(l)) continue;
    const CacheShape one{1, m.n_kv_heads, m.block_size, {m.layer_window[static_cast<size_t>(l)]}};
    f.slots += std::min(slots, one.layer_window[0] + step_rows) * m.n_kv_heads;
    f.blocks += one.peak_blocks(slots, step_rows);
  }
  return f;
}

// Blocks of `tables` tables that hold `slots` each on average. Uneven ones round up apart.
int64_t blocks_of_tables(const KvPlan& plan, const KvModel& m, int64_t slots, int64_t tables) {
  if (plan.alloc->even()) return blocks_of(slots, m.block_size) * tables;
  return (slots * tables + (m.block_size - 1) * tables) / m.block_size;
}

int64_t tokens_of(int64_t n_prompt, int64_t max_tokens) {
  return n_prompt + std::max<int64_t>(0, max_tokens - 1);  // the last token is never computed
}

Footprint full_footprint(const KvModel& m, int64_t slots, int64_t step_rows) {
  Footprint f = windowed_layers(m, slots, step_rows);
  const int64_t tables = compressed_tables(m);
  f.slots += slots * tables;
  f.blocks += blocks_of(slots, m.block_size) * tables;
  return f;
}

// Slots a table keeps at most in a compaction at `computed` tokens, pinned ones included.
int64_t kept_at_most(const KvPlan& plan, const KvModel& m, int64_t computed, int64_t n_prompt) {
  int64_t kept = plan.budget_at(computed) + plan.pinned_count(computed, n_prompt);
  if (plan.packing == Packing::block || plan.alloc->whole_blocks()) kept += m.block_size - 1;
  return std::min(kept, computed);
}

// Generated tokens come one by one, but after a pause many are known and are computed again: not
// past a token where the plan may compact, nor into the one row that a policy observes before that.
int64_t generated_rows_to_stop(const KvPlan& plan, const ScheduleState& s) {
  if (!plan.evicts() || plan.defaults.once) return std::numeric_limits<int64_t>::max();
  int64_t rows = plan.interval - (s.n_computed - s.last_event);
  // Nothing was evicted yet, so nothing will be before the budget is exceeded.
  if (s.last_event == 0 && plan.budget_share <= 0)
    rows = std::max(rows, plan.budget - s.n_computed);
  if (plan.policy->needs(plan.params).decode == DecodeRows::last) --rows;
  return std::max<int64_t>(1, rows);
}

}  // namespace

int64_t budget_total(const KvPlan& plan, const KvModel& model, int64_t computed, int64_t n_prompt) {
  const int64_t table = plan.budget_at(computed) + plan.pinned_count(computed, n_prompt);
  return table * compressed_tables(model);
}

int64_t slots_after(const KvPlan& plan, int64_t live, int64_t least, int64_t keep, int64_t budget) {
  if (!plan.defaults.drops_half) return keep;
  const int64_t drop = plan.drop > 0 ? plan.drop : budget / 2;
  return live <= keep ? live : std::max(least, std::min(live - drop, keep));
}

bool compaction_due(const KvPlan& plan, const KvModel& model, const ScheduleState& s,
                    int64_t live) {
  if (!plan.evicts() || s.n_computed == s.last_event) return false;
  const bool in_prompt = s.n_computed < s.n_prompt;
  if (in_prompt) {
    if (!plan.prefill_evict || s.n_computed % plan.prefill_chunk != 0) return false;
  } else if (s.n_computed > s.n_prompt) {
    if (plan.defaults.once || s.n_computed - s.last_event < plan.interval) return false;
  }
  return live > budget_total(plan, model, s.n_computed, s.n_prompt);
}

int64_t rows_to_stop(const KvPlan& plan, const ScheduleState& s) {
  if (s.n_computed >= s.n_prompt) return generated_rows_to_stop(plan, s);
  int64_t rows = s.n_prompt - s.n_computed;
  if (plan.prefill_evict && plan.evicts()) {
    rows = std::min(rows, plan.prefill_chunk - s.n_computed % plan.prefill_chunk);
  }
  return rows;
}

int64_t most_cached_prompt(const KvPlan& plan, const ScheduleState& s) {
  const Needs needs = plan.policy->needs(plan.params);
  if (!plan.evicts()) return s.n_prompt;
  // With prefill_evict, what later chunks compute depends on compactions between the chunks.
  if (needs.prompt == PromptRows::all || plan.prefill_evict) return 0;
  int64_t rows = needs.prompt == PromptRows::last ? needs.window : 0;
  rows = std::max<int64_t>(rows, needs.stats_prompt_rows);
  const int64_t end = needs.prompt == PromptRows::last ? s.window_end : s.n_prompt;
  return std::max<int64_t>(0, std::min(end - rows, s.n_prompt - needs.query_ring));
}

Footprint steady_footprint(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                           int64_t max_tokens) {
  const int64_t tokens = tokens_of(n_prompt, max_tokens);
  if (!plan.evicts()) return full_footprint(model, tokens, 1);
  const int64_t tables = compressed_tables(model);
  Footprint f = windowed_layers(model, tokens, 1);
  int64_t slots = plan.defaults.once
                      ? kept_at_most(plan, model, n_prompt, n_prompt) + tokens - n_prompt
                      : kept_at_most(plan, model, tokens, n_prompt);
  slots = std::min(slots, tokens);
  f.slots += slots * tables;
  f.blocks += plan.packing == Packing::off ? blocks_of(tokens, model.block_size) * tables
                                           : blocks_of_tables(plan, model, slots, tables);
  return f;
}

Footprint peak_footprint(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                         int64_t max_tokens, int64_t step_rows, bool shared) {
  const int64_t tokens = tokens_of(n_prompt, max_tokens);
  if (!plan.evicts() || plan.packing == Packing::off) {
    return full_footprint(model, tokens, step_rows);
  }
  const int64_t tables = compressed_tables(model);
  // Before the last chunk of the prompt is cut.
  int64_t prompt = n_prompt;
  if (plan.prefill_evict) {
    const int64_t chunk = std::min(plan.prefill_chunk, n_prompt);
    prompt = std::min(n_prompt, kept_at_most(plan, model, n_prompt, n_prompt) + chunk);
  }
  int64_t grown = tokens;  // once: what was kept, and everything generated
  if (plan.defaults.once) {
    grown = std::min(tokens, kept_at_most(plan, model, n_prompt, n_prompt) + tokens - n_prompt);
  } else {
    grown = std::min(tokens, kept_at_most(plan, model, tokens, n_prompt) + plan.interval);
  }
  // Even tables hold the prompt alike; after that they may differ.
  int64_t blocks = blocks_of(prompt, model.block_size) * tables;
  if (plan.prefill_evict) blocks = blocks_of_tables(plan, model, prompt, tables);
  if (shared) {
    blocks += blocks_of_tables(plan, model, kept_at_most(plan, model, n_prompt, n_prompt), tables);
  }
  Footprint f = windowed_layers(model, tokens, step_rows);
  f.slots += std::max(prompt, grown) * tables;
  f.blocks += std::max(blocks, blocks_of_tables(plan, model, grown, tables));
  return f;
}

}  // namespace pagefold
