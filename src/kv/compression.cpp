#include "kv/compression.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pagefold {
namespace {

struct RowRange {
  int64_t begin = 0, end = 0;  // positions
};

RowRange meet(RowRange a, RowRange b) {
  return {std::max(a.begin, b.begin), std::max(std::max(a.begin, b.begin), std::min(a.end, b.end))};
}

// Positions of the observation window that ends at the next place where the prompt may be cut. A
// window that overlaps the one before the last cut is one with it.
RowRange prompt_window(const KvPlan& plan, const ScheduleState& s, int window) {
  const RowRange last{std::max<int64_t>(0, s.window_end - window), s.window_end};
  if (!plan.prefill_evict) return last;
  const int64_t end = (s.n_computed / plan.prefill_chunk + 1) * plan.prefill_chunk;
  if (end >= s.n_prompt) return last;
  return {std::max<int64_t>(0, end - window), end};
}

}  // namespace

SequenceCompression::SequenceCompression(const KvModel& model, std::shared_ptr<const KvPlan> plan,
                                         int64_t n_prompt, int64_t window_end,
                                         int64_t expected_slots)
    : model_(model),
      plan_(std::move(plan)),
      signals_(model, plan_->policy->needs(plan_->params), expected_slots) {
  PF_CHECK(plan_->evicts(), "a policy that evicts nothing has no compression state");
  set_prompt(n_prompt, window_end);
}

void SequenceCompression::next_turn(std::shared_ptr<const KvPlan> plan, int64_t n_prompt,
                                    int64_t window_end) {
  PF_CHECK(plan->policy == plan_->policy && n_prompt > state_.n_computed,
           "a turn goes on under the same policy");
  plan_ = std::move(plan);
  counts_ = {};
  set_prompt(n_prompt, window_end);
}

void SequenceCompression::set_prompt(int64_t n_prompt, int64_t window_end) {
  state_.n_prompt = state_.window_end = n_prompt;
  // No row sees the suffix then, so it must be protected: by the window itself, or as recent slots.
  window_end = std::clamp<int64_t>(window_end, 1, n_prompt);
  const bool guarded = plan_->recent_rule == RecentRule::window ||
                       n_prompt - window_end <= plan_->recent_at(n_prompt);
  if (plan_->window_before_suffix && guarded) state_.window_end = window_end;
}

void SequenceCompression::adopt(const SequenceCache& cache, int64_t tokens) {
  PF_CHECK(state_.n_computed == 0, "shared blocks come first");
  // extend() wants the lengths before the new slots.
  std::vector<TableView> empty(static_cast<size_t>(model_.n_tables()));
  signals_.extend(empty.data(), 0, tokens);
  PF_CHECK(signals_.slots(0) == 0 || cache.tables()[0].len == tokens,
           "signals and cache disagree about the shared slots");
  state_.n_computed = tokens;
}

const Observation* SequenceCompression::begin_step(const SequenceCache& cache, int64_t rows) {
  const int64_t first = state_.n_computed;
  const bool decode = first >= state_.n_prompt;
  const Needs& needs = signals_.needs();
  signals_.extend(cache.tables(), first, rows);
  const RowRange step{first, first + rows};
  RowRange seen{first, first};
  if (needs.form != MassForm::none && decode) {
    bool wanted = needs.decode == DecodeRows::all;
    if (needs.decode == DecodeRows::last) {
      ScheduleState after = state_;
      after.n_computed += rows;
      wanted = compaction_due(
          *plan_, model_, after,
          cache.held_slots() + rows * model_.n_compressed_layers() * model_.n_kv_heads);
      if (wanted && needs.keep == MassKeep::window) signals_.clear_mass();
    }
    if (wanted) seen = step;
  } else if (needs.form != MassForm::none) {
    if (needs.prompt == PromptRows::all) seen = step;
    if (needs.prompt == PromptRows::last) {
      const RowRange window = prompt_window(*plan_, state_, needs.window);
      seen = meet(step, window);
      // Overlapping windows are not cleared: their rows would be lost.
      if (needs.keep == MassKeep::window && seen.begin < seen.end && seen.begin == window.begin &&
          window.begin >= state_.last_event) {
        signals_.clear_mass();
      }
    }
  }
  RowRange stats = step;
  if (!decode) stats = meet(step, {state_.n_prompt - needs.stats_prompt_rows, state_.n_prompt});
  if (!needs.wants_stats()) stats = {first, first};
  const Observation& o = signals_.observe(
      first, static_cast<int>(seen.begin - first), static_cast<int>(seen.end - seen.begin),
      static_cast<int>(stats.begin - first), static_cast<int>(stats.end - stats.begin));
  return o.any() ? &o : nullptr;
}

void SequenceCompression::end_step(int64_t rows) {
  state_.n_computed += rows;
  if (state_.n_computed != state_.n_prompt) return;
  const Needs& needs = signals_.needs();
  if (needs.prompt_pool > 1) signals_.pool_prompt(needs.prompt_pool);
  if (needs.keep == MassKeep::interval_max) signals_.fold();
}

bool SequenceCompression::due(const SequenceCache& cache) const {
  int64_t live = 0;
  for (int t = 0; t < model_.n_tables(); ++t) {
    if (model_.compressed(t / model_.n_kv_heads)) live += cache.live_slots(t);
  }
  return compaction_due(*plan_, model_, state_, live);
}

std::string SequenceCompression::save() const {
  std::string out(sizeof state_ + sizeof counts_, '\0');
  std::memcpy(out.data(), &state_, sizeof state_);
  std::memcpy(out.data() + sizeof state_, &counts_, sizeof counts_);
  return out + signals_.save();
}

Status SequenceCompression::restore(std::string_view bytes) {
  constexpr size_t kHead = sizeof state_ + sizeof counts_;
  if (bytes.size() < kHead) return bad_data("spilled signals: fewer bytes than their header");
  PF_TRY(signals_.restore(bytes.substr(kHead)));
  std::memcpy(&state_, bytes.data(), sizeof state_);
  std::memcpy(&counts_, bytes.data() + sizeof state_, sizeof counts_);
  return ok_status();
}

Compactor::Compactor(const KvModel& model, ForEachUnit for_each)
    : model_(model), selector_(model, std::move(for_each)) {}

const KeyScoreQuery& Compactor::query(const SequenceCompression& c, const SequenceCache& cache) {
  const KvPlan& plan = c.plan();
  const Needs& needs = c.signals().needs();
  query_ = {};
  query_.kind = needs.key_score;
  if (needs.key_score == KeyScore::none) return query_;
  query_.next_position = c.state().n_computed;
  int64_t rows = model_.group();
  if (needs.key_score == KeyScore::coefficients) {
    const QuerySums& sums = c.signals().query_sums();
    QueryStatsView stats;
    if (plan.stats != nullptr) {
      stats = plan.stats->view();
    } else {
      stats = {sums.re, sums.im, sums.abs, static_cast<double>(std::max<int64_t>(1, sums.rows))};
    }
    plan.policy->key_query({plan.params, model_, stats, c.state().n_computed}, coefficients_);
    query_.coefficients = {coefficients_.sets, coefficients_.w_re.data(), coefficients_.w_im.data(),
                           coefficients_.e.data(), model_.bands()};
  } else {
    query_.ring = &c.signals().query_ring();
    query_.window = static_cast<int>(std::min<int64_t>(needs.query_ring, c.state().n_computed));
    query_.threshold = static_cast<float>(plan.params.get("threshold"));
    rows = needs.query_ring;
  }
  // Strides are whole strips of 16 slots.
  int64_t floats = 0;
  const auto stride_of = [&](int t) { return (cache.tables()[t].len + 15) / 16 * 16; };
  const bool similarity = needs.key_score == KeyScore::redundancy;
  for (int t = 0; t < model_.n_tables(); ++t) {
    floats += model_.compressed(t / model_.n_kv_heads) ? stride_of(t) * (rows + similarity) : 0;
  }
  if (score_store_.size() < static_cast<size_t>(floats)) {
    score_store_.resize(static_cast<size_t>(floats));
  }
  scored_.assign(static_cast<size_t>(model_.n_tables()), {});
  float* next = score_store_.data();
  for (int t = 0; t < model_.n_tables(); ++t) {
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    ScoredKeys& s = scored_[static_cast<size_t>(t)];
    s.stride = stride_of(t);
    s.logits = next;
    s.rows = static_cast<int>(rows);
    next += s.stride * rows;
    if (!similarity) continue;
    s.similarity = next;
    next += s.stride;
  }
  return query_;
}

bool Compactor::plan(SequenceCompression& c, SequenceCache& cache, BlockPool& pool, MovePlan& out) {
  const bool keys = c.signals().needs().key_score != KeyScore::none;
  selector_.select(c.plan(), c.state(), cache, c.signals(), keys ? scored_.data() : nullptr);
  lay_out_moves(c.plan().packing, model_, cache, pool, selector_.kept(), out);
  return cache.take_copies(pool, out);
}

bool Compactor::plan_without(const SequenceCompression* c, SequenceCache& cache, BlockPool& pool,
                             KeepSpan span, int64_t dropped, MovePlan& out) {
  without_.resize(static_cast<size_t>(model_.n_tables()));
  for (int t = 0; t < model_.n_tables(); ++t) {
    std::vector<int32_t>& kept = without_[static_cast<size_t>(t)];
    kept.clear();
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    const int32_t* positions = c != nullptr ? c->signals().positions(t) : nullptr;
    for (int64_t s = 0; s < cache.tables()[t].len; ++s) {
      const int64_t p = positions != nullptr ? positions[s] : s + dropped;
      if (p < span.begin || p >= span.end) kept.push_back(static_cast<int32_t>(s));
    }
  }
  lay_out_moves(Packing::order, model_, cache, pool, without_, out);
  return cache.take_copies(pool, out);
}

void Compactor::apply(SequenceCompression& c, SequenceCache& cache, BlockPool& pool,
                      const MovePlan& plan, std::vector<BlockId>& freed) {
  CompressionCounts& n = c.counts_;
  const int64_t blocks = cache.held_blocks(), slots = cache.held_slots();
  c.signals_.apply(plan, model_.block_size);
  cache.apply(pool, plan, freed);
  if (c.signals().needs().keep == MassKeep::interval_max) c.signals_.fold();
  c.state_.last_event = c.state_.n_computed;
  n.compactions += 1;
  n.evicted_slots += slots - cache.held_slots();
  n.freed_blocks += blocks - cache.held_blocks();
  n.moved_slots += plan.slots_moved();
  for (const TableMoves& m : plan.tables) n.copied_blocks += static_cast<int64_t>(m.copies.size());
}

}  // namespace pagefold
