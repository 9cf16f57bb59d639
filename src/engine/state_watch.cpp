#include "engine/state_watch.h"

#include <algorithm>
#include <utility>

namespace pagefold {
namespace {

// Pictures take at most this share of the engine thread's time while it has work.
constexpr double kShare = 0.05;

double now_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

SequenceState state_of(const Sequence& s, SequencePhase phase) {
  const CacheShape& shape = s.cache.shape();
  SequenceState out;
  out.id = s.request.id;
  out.policy = s.plan->name;
  out.phase = phase;
  if (s.plan->evicts()) out.budget = s.plan->budget_at(s.n_computed);
  out.prompt_tokens = s.n_prompt;
  out.generated_tokens = s.n_generated();
  out.computed_tokens = s.n_computed;
  out.cached_tokens = s.cached_tokens;
  out.max_tokens = s.max_tokens;
  out.kept_slots = s.cache.held_slots();
  out.blocks = s.cache.held_blocks();
  out.peak_blocks = s.peak_blocks;
  if (phase != SequencePhase::waiting) {
    out.full_blocks =
        (s.n_computed + shape.block_size - 1) / shape.block_size * int64_t{shape.n_tables()};
  }
  if (s.compression) out.compactions = s.compression->counts().compactions;
  return out;
}

}  // namespace

std::string_view phase_name(SequencePhase phase) {
  switch (phase) {
    case SequencePhase::waiting:
      return "waiting";
    case SequencePhase::prefill:
      return "prefill";
    case SequencePhase::decode:
      return "decode";
    case SequencePhase::paused:
      return "paused";
  }
  return "";
}

bool StateWatch::ask(Callback callback) {
  std::shared_ptr<const EngineState> last;
  {
    std::lock_guard lock(mutex_);
    if (last_ == nullptr || waiters_.size() < kMostWaiters) {
      waiters_.push_back(std::move(callback));
      wanted_.store(true, std::memory_order_relaxed);
      return true;
    }
    last = last_;
  }
  callback(std::move(last));
  return false;
}

void StateWatch::give(const EngineMetrics& metrics, Scheduler& scheduler, const BlockPool& pool,
                      const CacheShape& shape) {
  const double begin = now_s();
  if (!scheduler.empty() && begin < not_before_) return;
  auto state = std::make_shared<EngineState>();
  state->serial = ++serial_;
  state->metrics = metrics;
  paint(*state, scheduler, pool, shape);
  state->time_s = now_s();
  not_before_ = state->time_s + (state->time_s - begin) / kShare;
  std::vector<Callback> waiters;
  {
    std::lock_guard lock(mutex_);
    wanted_.store(false, std::memory_order_relaxed);
    waiters.swap(waiters_);
    last_ = state;
  }
  for (const Callback& callback : waiters) callback(state);
}

void StateWatch::paint(EngineState& state, Scheduler& scheduler, const BlockPool& pool,
                       const CacheShape& shape) {
  caches_.clear();
  const auto add = [&](const Sequence& s, SequencePhase phase) {
    if (static_cast<int64_t>(state.sequences.size()) >= kMostSequences) {
      ++state.sequences_left_out;
      return;
    }
    state.sequences.push_back(state_of(s, phase));
    caches_.push_back(&s.cache);
  };
  scheduler.for_running([&](const Sequence& s) {
    add(s, s.first_token && s.gap() <= 1 ? SequencePhase::decode : SequencePhase::prefill);
  });
  scheduler.for_waiting([&](const Sequence& s) {
    add(s, s.admitted ? SequencePhase::paused : SequencePhase::waiting);
  });

  // As far as blocks are in use; the rest of a large pool would only make the cells coarse.
  for (int64_t b = int64_t{pool.total()} - 1; b >= extent_; --b) {
    if (pool.owners(static_cast<BlockId>(b)) > 0) extent_ = b + 1;
  }
  while (extent_ > state.blocks_per_cell * kMostCells) state.blocks_per_cell *= 2;
  const auto n = static_cast<size_t>((extent_ + state.blocks_per_cell - 1) / state.blocks_per_cell);
  state.cells.assign(n, {});
  slots_.assign(n, 0);
  most_.assign(n, 0);
  mine_.assign(n, 0);
  for (size_t i = 0; i < caches_.size(); ++i) {
    add_blocks(*caches_[i], static_cast<uint16_t>(BlockCell::kFirstSequence + i), state);
  }
  for (int64_t b = 0; b < extent_; ++b) {
    const auto cell = static_cast<size_t>(b / state.blocks_per_cell);
    const auto id = static_cast<BlockId>(b);
    if (pool.owners(id) == 1 && pool.is_held(id)) {
      slots_[cell] += shape.block_size;
      mine_[cell] += shape.block_size;
    }
  }
  const double capacity = static_cast<double>(state.blocks_per_cell * shape.block_size);
  for (size_t c = 0; c < n; ++c) {
    if (mine_[c] > most_[c]) state.cells[c].owner = BlockCell::kPrefix;
    // A block that several share is counted once for each.
    const double fill = std::min(1.0, slots_[c] / capacity);
    state.cells[c].fill = static_cast<uint8_t>(slots_[c] > 0 ? std::max(1.0, fill * 100) : 0);
  }
}

void StateWatch::add_blocks(const SequenceCache& cache, uint16_t owner, EngineState& state) {
  if (cache.held_blocks() == 0) return;
  const CacheShape& shape = cache.shape();
  const auto live_in = [](const TableView& table, int64_t begin, int64_t end) {
    if (table.live == nullptr) return end - begin;
    int64_t n = 0;
    for (int64_t s = begin; s < end; ++s) n += table.live[s / 32] >> (s % 32) & 1;
    return n;
  };
  for (int t = 0; t < shape.n_tables(); ++t) {
    const TableView& table = cache.tables()[t];
    for (int64_t begin = 0; begin < table.len; begin += shape.block_size) {
      const BlockId id = table.blocks[begin / shape.block_size];
      const auto cell = static_cast<size_t>(id / state.blocks_per_cell);
      if (id == kNoBlock || cell >= mine_.size()) continue;
      const auto live = static_cast<int32_t>(
          live_in(table, std::max(begin, table.start),
                  std::max(table.start, std::min(begin + shape.block_size, table.len))));
      mine_[cell] += live;
      slots_[cell] += live;
    }
  }
  for (size_t c = 0; c < mine_.size(); ++c) {
    if (mine_[c] > most_[c]) {
      most_[c] = mine_[c];
      state.cells[c].owner = owner;
    }
    mine_[c] = 0;
  }
}

}  // namespace pagefold
