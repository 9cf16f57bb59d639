#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/compression.h"
#include "kv/elastic.h"

namespace pagefold {
namespace {

// Share of the pool that admission leaves for the decoding of what already runs.
constexpr uint32_t kWatermarkDivisor = 50;

std::unique_ptr<SequenceCompression> compression_of(const Sequence& s, const KvModel& kv) {
  const KvPlan& plan = *s.plan;
  const int64_t prompt =
      plan.prefill_evict ? std::min(s.n_prompt, plan.budget + plan.prefill_chunk) : s.n_prompt;
  const int64_t slots =
      std::min(s.n_prompt + s.max_tokens, prompt + plan.budget + 2 * plan.interval);
  const int64_t suffix = s.request.suffix_begin;
  return std::make_unique<SequenceCompression>(kv, s.plan, s.n_prompt,
                                               suffix > 0 ? suffix : s.n_prompt, slots);
}

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, const CacheShape& shape, const KvModel& kv,
                     BlockPool& pool, PrefixSharing& prefix, SessionStore& sessions,
                     Pausing& pausing, int max_logit_rows)
    : config_(config),
      shape_(shape),
      kv_(kv),
      pool_(pool),
      prefix_(prefix),
      sessions_(sessions),
      pausing_(pausing),
      max_logit_rows_(max_logit_rows) {
  running_.reserve(static_cast<size_t>(config.max_num_seqs));
  plan_.items.reserve(static_cast<size_t>(config.max_num_seqs));
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }

const StepPlan& Scheduler::plan(std::vector<BlockId>& freed) {
  rows_left_ = config_.max_num_batched_tokens;
  logits_left_ = max_logit_rows_;
  paused_now_ = false;
  newly_admitted_ = 0;
  drop_unwritten();
  if (running_.empty()) pausing_.nothing_runs();
  for (const auto& s : running_) s->scheduled_rows = s->scheduled_logits = 0;

  // Pausing removes from the back of running_, so indices stay good.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->gap() == 1) schedule(*running_[i], freed);
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->gap() > 1) schedule(*running_[i], freed);
  }
  if (!paused_now_) admit(freed);

  plan_.items.clear();
  plan_.rows = plan_.logit_rows = 0;
  for (const auto& s : running_) {
    if (s->scheduled_rows == 0) continue;
    plan_.items.push_back({s.get(), s->scheduled_rows});
    plan_.rows += s->scheduled_rows;
    plan_.logit_rows += s->scheduled_logits;
  }
  const auto returns = [](const auto& s) { return s->spilled != nullptr; };
  PF_CHECK(empty() || !plan_.items.empty() || waits_for_compaction() ||
               std::any_of(running_.begin(), running_.end(), returns),
           "a step without work");
  return plan_;
}

bool Scheduler::waits_for_compaction() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& s) {
    return !s->spilled && (s->compact_now || (s->compression && s->compression->due(s->cache)));
  });
}

// Paused sequences whose bytes never reached the file are computed again.
void Scheduler::drop_unwritten() {
  for (const auto& s : waiting_) {
    if (!s->admitted) break;
    if (s->spilled) pausing_.give_up_unwritten(*s);
  }
}

int64_t Scheduler::rows_allowed(const Sequence& s) const {
  int64_t rows = std::min<int64_t>(s.gap(), rows_left_);
  // A step never runs past a point where the sequence's plan may compact: what is kept then does
  // not depend on how a prompt was cut into chunks.
  if (s.compression) rows = std::min(rows, s.compression->rows_to_stop());
  // Paused before its compaction could be done: that comes first.
  if (s.compression && s.compression->due(s.cache)) return 0;
  // Generated tokens that are computed again after a pause read as sparsely as they did before.
  if (s.plan->quest_tokens > 0) {
    rows = std::min(rows, std::max<int64_t>(1, s.n_prompt - s.n_computed));
  }
  // From the first wanted row on, every row may want logits.
  return std::min(rows, s.first_logit_row() - s.n_computed + logits_left_);
}

// Blocks for `rows` more rows, what only the prefix index or a session still holds included.
bool Scheduler::reserve(Sequence& s, int64_t rows, std::vector<BlockId>& freed) {
  if (s.cache.reserve(pool_, rows)) return true;
  do {
    prefix_.index().reclaim(s.cache.blocks_needed(rows), freed);
    if (s.cache.reserve(pool_, rows)) return true;
  } while (sessions_.drop_oldest(freed));
  return false;
}

void Scheduler::ensure_compression(Sequence& s) const {
  if (s.plan->evicts() && !s.compression) s.compression = compression_of(s, kv_);
}

void Scheduler::schedule(Sequence& s, std::vector<BlockId>& freed) {
  if (s.spilled) return;  // on its way back
  ensure_compression(s);
  const int64_t rows = rows_allowed(s);
  if (rows <= 0) return;
  while (!reserve(s, rows, freed)) {
    if (squeeze()) {  // it goes on with what that frees, in the next step
      paused_now_ = true;
      return;
    }
    PF_CHECK(running_.size() > 1, "the pool cannot hold one sequence");
    const bool self = running_.back().get() == &s;
    pause_youngest(freed);
    if (self) return;
  }
  s.scheduled_rows = static_cast<int>(rows);
  for (int64_t r = s.n_computed; r < s.n_computed + rows; ++r) {
    s.scheduled_logits += s.wants_logits(r) ? 1 : 0;
  }
  rows_left_ -= s.scheduled_rows;
  logits_left_ -= s.scheduled_logits;
  s.peak_blocks = std::max(s.peak_blocks, s.cache.held_blocks());
}

// Lowers the budget of the youngest sequence that lets it be lowered and holds more than that; it
// is compacted at the end of the step. False: there is none.
bool Scheduler::squeeze() {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    Sequence& s = **it;
    if (!s.plan->elastic || !s.compression || s.spilled || s.n_computed < s.n_prompt) continue;
    if (s.compact_now) return true;
    const int64_t asked = s.asked_budget > 0 ? s.asked_budget : s.plan->budget_at(s.n_computed);
    auto plan = lowered_plan(*s.plan, kv_, s.n_computed, asked);
    if (!plan || s.cache.held_slots() <= budget_total(*plan, kv_, s.n_computed, s.n_prompt)) {
      continue;
    }
    log::info("{}: its budget is lowered from {} to {} for want of cache blocks (kv.elastic)",
              s.request.id, s.plan->budget_at(s.n_computed), plan->budget);
    s.asked_budget = asked;
    s.plan = std::move(plan);
    s.compression->lower(s.plan);
    s.compact_now = true;
    ++squeezes_;
    return true;
  }
  return false;
}

void Scheduler::pause_youngest(std::vector<BlockId>& freed) {
  std::unique_ptr<Sequence> s = std::move(running_.back());
  running_.pop_back();
  rows_left_ += s->scheduled_rows;
  logits_left_ += s->scheduled_logits;
  s->scheduled_rows = s->scheduled_logits = 0;
  pausing_.pause(*s, freed);
  ++preemptions_;
  paused_now_ = true;
  const auto at = std::upper_bound(
      waiting_.begin(), waiting_.end(), s->arrival,
      [](uint64_t arrival, const auto& other) { return arrival < other->arrival; });
  waiting_.insert(at, std::move(s));
}

int Scheduler::paused() const {
  // Admission is in order of arrival, so those that ran before come first.
  int n = 0;
  for (const auto& s : waiting_) {
    if (!s->admitted) break;
    ++n;
  }
  return n;
}

// Most blocks that a sequence holds until all its known tokens are computed, or ever.
int64_t Scheduler::blocks_to_come(const Sequence& s) const {
  if (!config_.guaranteed_admission) {
    return peak_blocks(*s.plan, kv_, shape_, s.n_prompt, s.n_generated() + 1,
                       config_.max_num_batched_tokens);
  }
  // Whoever compacts blocks that others share copies them before it lets go of them.
  const int64_t most = peak_blocks(*s.plan, kv_, shape_, s.n_prompt, s.max_tokens,
                                   config_.max_num_batched_tokens, prefix_.enabled());
  return std::min<int64_t>(most, pool_.total());
}

// Blocks beyond the `held` ones.
int64_t Scheduler::more_blocks(const Sequence& s, int64_t held) const {
  int64_t more = blocks_to_come(s) - held;
  // The whole prompt was held once; after its compaction it is not needed again.
  if (!config_.guaranteed_admission && s.compression && s.n_computed >= s.n_prompt) {
    more = std::min(more, s.spilled ? int64_t{shape_.n_tables()} : s.cache.blocks_needed(s.gap()));
  }
  return std::max<int64_t>(0, more);
}

// Blocks that only the prefix index holds count as free, those of the newcomer's hit as needed.
bool Scheduler::fits(const Sequence& newcomer, const PrefixIndex::Hit& hit,
                     const Sequence* session) const {
  if (running_.empty()) return true;
  const int64_t held = newcomer.spilled ? newcomer.spilled->blocks : 0;
  int64_t needed = held + more_blocks(newcomer, held) - prefix_.index().shared_blocks(hit);
  if (session != nullptr) needed = more_blocks(newcomer, session->cache.held_blocks());
  if (!config_.guaranteed_admission) needed += pool_.total() / kWatermarkDivisor;
  for (const auto& s : running_) needed += more_blocks(*s, s->cache.held_blocks());
  return needed <= int64_t{pool_.free_count()} + pool_.idle_count();
}

void Scheduler::admit(std::vector<BlockId>& freed) {
  while (!waiting_.empty() && rows_left_ > 0 && logits_left_ > 0 &&
         running_.size() < static_cast<size_t>(config_.max_num_seqs)) {
    Sequence& next = *waiting_.front();
    if (!next.admitted && pausing_.full() && !running_.empty()) return;
    ensure_compression(next);
    PrefixIndex::Hit hit;
    const Sequence* session = next.admitted ? nullptr : sessions_.match(next, freed);
    if (!next.spilled && session == nullptr) {
      hit = prefix_.find(next);
      // Computing now what another sequence will have published after this step would be waste.
      const bool soon = std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
        return prefix_.comes_soon(*other, next, hit);
      });
      if (soon) return;
    }
    while (!fits(next, hit, session)) {
      if (!sessions_.drop_oldest(freed, session)) return;
    }
    std::unique_ptr<Sequence> s = std::move(waiting_.front());
    waiting_.pop_front();
    PF_DCHECK(running_.empty() || running_.back()->arrival < s->arrival);
    if (s->spilled) {
      go_on(std::move(s), freed);
      continue;
    }
    if (session != nullptr) {
      sessions_.adopt(*s, freed);
    } else {
      prefix_.adopt(*s, hit);
    }
    if (!s->admitted) {
      s->admitted = Clock::now();
      // Address space now, pages as tokens come.
      s->tokens.reserve(static_cast<size_t>(s->n_prompt + s->max_tokens));
      ++newly_admitted_;
    }
    running_.push_back(std::move(s));
    schedule(next, freed);
    if (paused_now_) return;
  }
}

// Blocks now; its bytes come after the plan, in as many steps as it takes, its rows then. What is
// still published of it is shared again.
void Scheduler::go_on(std::unique_ptr<Sequence> s, std::vector<BlockId>& freed) {
  PrefixIndex& index = prefix_.index();
  index.touch(prefix_.find_spilled(*s).cursor, Clock::now());  // to be taken back last
  while (!pausing_.take_blocks(*s, prefix_.find_spilled(*s))) {
    const bool more =
        index.reclaim(int64_t{pool_.free_count()} + 1, freed) || sessions_.drop_oldest(freed);
    PF_CHECK(more, "blocks of a spilled sequence were counted wrongly");
  }
  s->scheduled_rows = s->scheduled_logits = 0;
  running_.push_back(std::move(s));
}

}  // namespace pagefold
