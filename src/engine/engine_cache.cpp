// What a step does to the cache: compaction, pauses, blocks that change hands, memory that goes
// back, and the counters of all that.
#include <algorithm>

#include "base/log.h"
#include "engine/answer_watch.h"
#include "engine/engine_impl.h"

namespace pagefold {
namespace {

constexpr int kReleaseSteps = 16;                      // between two releases
constexpr int64_t kReserveSlots = 128;                 // of every running sequence's tables
constexpr uint64_t kReleaseBytes = uint64_t{1} << 20;  // less is not worth system calls

}  // namespace

void EngineCore::Impl::copy_shared(const StepPlan& plan) {
  for (const StepPlan::Item& item : plan.items) {
    const auto copies = item.sequence->cache.pending_copies();
    if (!copies.empty()) model.copy_blocks(copies);
  }
}

void EngineCore::Impl::compact() {
  // Making room pauses from the back.
  for (size_t i = 0; i < scheduler.running(); ++i) {
    Sequence& s = scheduler.running_at(i);
    if (!s.compression || s.spilled) continue;
    const bool done = compaction.run(
        s, freed, [this] { give_back(); }, [&] { return make_room_to_compact(s); });
    if (done) count_compaction(s);
  }
  give_back();
  counters.scoring_s = compaction.times().scored_s;
  counters.moving_s = compaction.times().moved_s;
}

// Blocks that only the index holds are taken back; what it shares with a running sequence is
// unpublished, so that the sequence may compact in place; then the youngest is paused. False: that
// was this one, which will compact when it goes on.
bool EngineCore::Impl::make_room_to_compact(Sequence& s) {
  PrefixIndex& index = prefix.index();
  if (index.reclaim(int64_t{pool.free_count()} + 1, freed)) return true;
  if (sessions.drop_oldest(freed) || index.drop_oldest(freed)) return true;
  const bool self = &scheduler.running_at(scheduler.running() - 1) == &s;
  scheduler.pause_youngest(freed);
  return !self;
}

// Takes positions out of the cache of a sequence that ended. False: there is no room to do it.
bool EngineCore::Impl::drop_span(Sequence& s, const KeepSpan& span) {
  if (s.plan->packing == Packing::off) return false;
  const int64_t dropped = SessionStore::hidden_tokens(s);
  const auto commit = [this] { give_back(); };
  while (!compaction.drop(s, span, dropped, freed, commit)) {
    if (!prefix.index().reclaim(int64_t{pool.free_count()} + 1, freed) &&
        !sessions.drop_oldest(freed)) {
      return false;
    }
  }
  s.hidden.push_back(span);
  return true;
}

// An answer that came to its own end may be gone on from. False: its cache is not wanted any more.
bool EngineCore::Impl::keep_session(std::unique_ptr<Sequence>& s, FinishReason reason) {
  const bool ended = reason == FinishReason::stop || reason == FinishReason::length;
  if (!ended || s->session.empty() || s->spilled || s->n_computed < s->n_prompt) return false;
  std::vector<KeepSpan> spans;
  const int64_t end = s->stopped
                          ? std::min(s->n_computed, s->n_prompt + s->request.watch->shown_tokens())
                          : s->n_computed;
  if (s->drop_thinking) spans.push_back(thought_of(*s));
  if (!spans.empty() && spans[0].end > end) spans.clear();
  spans.push_back({end, s->n_computed});  // what makes a stop string is in no later prompt
  for (const KeepSpan& span : spans) {
    if (span.begin < span.end && !drop_span(*s, span)) return false;
  }
  sessions.keep(std::move(s), Clock::now(), freed);
  return true;
}

// Whoever is on its way back goes on with the step after its last bytes came. wait: nobody else has
// work to do.
void EngineCore::Impl::fill_restored(bool wait) {
  scheduler.for_running([&](Sequence& s) {
    if (!s.spilled) return;
    const Status filled = pausing.fill_blocks(s, wait);
    wait = false;
    if (filled.ok()) return;
    log::error("{}: {}; it is computed again", s.request.id, message_of(filled));
    pausing.lost(s, freed);
  });
  give_back();
}

// When it is computed again, a sequence goes through its compactions again;
// they count once, as in its usage.
void EngineCore::Impl::count_compaction(Sequence& s) {
  const CompressionCounts& now = s.compression->counts();
  if (now.compactions <= s.counted.compactions) {
    ++counters.compactions_again;
    return;
  }
  ++counters.compactions;
  counters.evicted_slots += static_cast<uint64_t>(now.evicted_slots - s.counted.evicted_slots);
  counters.moved_slots += static_cast<uint64_t>(now.moved_slots - s.counted.moved_slots);
  counters.compaction_freed_blocks +=
      static_cast<uint64_t>(now.freed_blocks - s.counted.freed_blocks);
  s.counted = now;
}

// Tells the model which blocks changed hands. The pool has the last word: a block that was freed
// and handed out again since the last call stays taken.
void EngineCore::Impl::give_back() {
  std::erase_if(freed, [&](BlockId b) { return pool.owners(b) > 0; });
  std::erase_if(taken, [&](BlockId b) { return pool.owners(b) == 0; });
  if (!freed.empty()) model.blocks_freed(freed);
  if (!taken.empty()) {
    // Not fatal by itself: the pages are then committed one by one as they are written.
    if (const Status s = model.blocks_taken(taken); !s.ok()) log::error("{}", message_of(s));
  }
  freed.clear();
  taken.clear();
}

// What the running sequences refill before they compact again stays committed; the rest goes back
// to the operating system, now and then and all at once.
void EngineCore::Impl::release_memory() {
  if (++steps_since_release < kReleaseSteps && !scheduler.empty()) return;
  steps_since_release = 0;
  uint64_t blocks = 0;
  bool to_os = scheduler.empty();
  scheduler.for_running([&](Sequence& s) {
    const int64_t refill = s.compression ? s.plan->interval : kReserveSlots;
    blocks += static_cast<uint64_t>((refill / shape.block_size + 1) * shape.n_tables());
    to_os |= s.plan->release == Release::os;
  });
  if (to_os) model.release_kv(blocks * block_bytes, kReleaseBytes);
}

void EngineCore::Impl::publish_metrics() {
  counters.running = static_cast<int64_t>(scheduler.running());
  counters.waiting = scheduler.paused();
  counters.preemptions = scheduler.preemptions();
  counters.budgets_lowered = scheduler.squeezes();
  counters.blocks_used = int64_t{pool.used_count()} - pool.idle_count();
  counters.blocks_cached = pool.idle_count();
  counters.paused = counters.waiting;
  counters.pauses_spilled = pausing.counts().spilled;
  counters.pauses_recomputed = pausing.counts().recomputed;
  counters.spill_written = pausing.counts().written;
  counters.spill_read = pausing.counts().read;
  counters.spill_used = pausing.used_bytes();
  counters.prefix_queries = prefix.queries();
  counters.prefix_hits = prefix.hits();
  counters.prefix_reclaimed = prefix.index().counts().reclaimed;
  counters.prefix_expired = prefix.index().counts().expired;
  counters.prefix_entries = prefix.index().entries();
  counters.sessions = sessions.size();
  counters.session_blocks = sessions.blocks();
  counters.sessions_continued = sessions.counts().continued;
  counters.sessions_reread = sessions.counts().reread;
  counters.sessions_reclaimed = sessions.counts().reclaimed;
  counters.sessions_expired = sessions.counts().expired;
  counters.session_tokens = sessions.counts().tokens;
  counters.kv_resident_bytes = model.kv_resident_bytes();
  counters.kv_saturated = model.kv_saturated();
  counters.kv_released_bytes = model.kv_memory().released_bytes;
  counters.logical_slots = counters.held_slots = counters.running_blocks = 0;
  scheduler.for_running([this](Sequence& s) {
    counters.logical_slots += s.n_computed * shape.n_tables();
    counters.held_slots += s.cache.held_slots();
    counters.running_blocks += s.cache.held_blocks();
  });
  // A step does not wait for who reads the counters, unless it may be the last for long or somebody
  // is about to hear of an end.
  std::unique_lock lock(published_mutex, std::defer_lock);
  if (!finished.empty() || scheduler.empty())
    lock.lock();
  else if (!lock.try_lock())
    return;
  published = counters;
}

}  // namespace pagefold
