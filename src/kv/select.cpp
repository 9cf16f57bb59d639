#include "kv/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace pagefold {
namespace {

constexpr int32_t kForced = std::numeric_limits<int32_t>::max();
constexpr int32_t kDead = std::numeric_limits<int32_t>::min();

// Larger score, larger key. -0 and +0 are equal. Signed, because that is what baseline vector
// instructions compare.
inline int32_t key_of(float score) {
  const auto u = std::bit_cast<int32_t>(score + 0.0f);
  return u ^ ((u >> 31) & 0x7fffffff);
}

// In masks rather than choices, so that the loops over slots vectorise. No finite score has either
// of the two keys.
inline int32_t slot_key(float score, uint8_t flags) {
  const int32_t forced = -static_cast<int32_t>((flags & (kSlotProtected | kSlotPinned)) != 0);
  const int32_t dead = -static_cast<int32_t>((flags & kSlotDead) != 0);
  const int32_t key = (key_of(score) & ~forced) | (kForced & forced);
  return (key & ~dead) | (kDead & dead);
}

// The keep-th largest key. A sample brackets it, so that only the keys of the bracket are sorted
// out; where the sample misleads, all of them are.
int32_t cut_of(const int32_t* keys, int64_t n, int64_t keep, std::vector<int32_t>& bucket) {
  constexpr int64_t kSample = 64, kMargin = 8;
  bucket.resize(static_cast<size_t>(n));
  if (n >= 8 * kSample) {
    int32_t sample[kSample];
    for (int64_t i = 0; i < kSample; ++i) sample[i] = keys[i * n / kSample];
    std::sort(sample, sample + kSample, std::greater<>());
    const int64_t rank = keep * kSample / n;
    const int32_t high = rank < kMargin ? kForced : sample[rank - kMargin];
    const int32_t low = rank + kMargin >= kSample ? kDead : sample[rank + kMargin];
    int64_t above = 0, inside = 0;
    for (int64_t i = 0; i < n; ++i) above += keys[i] > high ? 1 : 0;
    for (int64_t i = 0; i < n; ++i) {
      bucket[static_cast<size_t>(inside)] = keys[i];
      inside += keys[i] >= low && keys[i] <= high ? 1 : 0;
    }
    if (above < keep && keep <= above + inside) {
      const auto nth = bucket.begin() + (keep - above - 1);
      std::nth_element(bucket.begin(), nth, bucket.begin() + inside, std::greater<>());
      return *nth;
    }
  }
  std::copy_n(keys, n, bucket.begin());
  const auto nth = bucket.begin() + (keep - 1);
  std::nth_element(bucket.begin(), nth, bucket.end(), std::greater<>());
  return *nth;
}

// All but the worst slot: the usual case where one goes for one that comes. Lanes of their own, so
// that the search vectorises.
void drop_one(const float* scores, const uint8_t* flags, int64_t n, std::vector<int32_t>& out) {
  constexpr int64_t kLanes = 16;
  int32_t lanes[kLanes], least = kForced;
  std::fill_n(lanes, kLanes, kForced);
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const int32_t k = slot_key(scores[i + l], flags[i + l]);
      lanes[l] = k < lanes[l] ? k : lanes[l];
    }
  }
  for (int64_t i = whole; i < n; ++i) least = std::min(least, slot_key(scores[i], flags[i]));
  for (const int32_t k : lanes) least = std::min(least, k);
  PF_CHECK(least != kForced, "more protected slots than are kept");
  int64_t worst = n - 1;  // equal scores: the higher slot goes
  while (slot_key(scores[worst], flags[worst]) != least) --worst;
  std::iota(out.begin(), out.begin() + worst, 0);
  std::iota(out.begin() + worst, out.end(), static_cast<int32_t>(worst) + 1);
}

// Slots of the blocks that hold a protected or pinned slot: whole blocks stay for them.
int64_t slots_of_held_blocks(const std::vector<uint8_t>& flags, int block_size) {
  const auto bs = static_cast<size_t>(block_size);
  int64_t slots = 0;
  for (size_t begin = 0; begin < flags.size(); begin += bs) {
    const size_t end = std::min(flags.size(), begin + bs);
    const bool held =
        std::any_of(flags.begin() + static_cast<long>(begin),
                    flags.begin() + static_cast<long>(end), [](uint8_t f) { return f != 0; });
    slots += held ? static_cast<int64_t>(end - begin) : 0;
  }
  return slots;
}

struct Bounds {
  int32_t last_sink, first_recent, pinned_end;  // positions
};

// Flags of slots by their positions, and how many are pinned and protected. The pointers do not
// alias, which bytes otherwise may do with anything.
void flag_by_position(const int32_t* __restrict positions, int64_t n, Bounds b,
                      uint8_t* __restrict flags, int32_t& pinned, int32_t& guarded) {
  int32_t n_pinned = 0, n_guarded = 0;
  for (int64_t s = 0; s < n; ++s) {
    const int32_t p = positions[s];
    const int32_t pin = p < b.pinned_end ? 1 : 0;
    const int32_t guard = (p < b.last_sink ? 1 : 0) | (p >= b.first_recent ? 1 : 0);
    const int32_t only_guard = guard & ~pin;
    n_pinned += pin;
    n_guarded += only_guard;
    flags[s] = static_cast<uint8_t>(pin * kSlotPinned + only_guard * kSlotProtected);
  }
  pinned = n_pinned;
  guarded = n_guarded;
}

}  // namespace

void pick_top(const float* scores, const uint8_t* flags, int64_t n, int64_t keep,
              std::vector<int32_t>& scratch, std::vector<int32_t>& out) {
  out.resize(static_cast<size_t>(keep));
  if (keep == 0) return;
  if (keep == n) {
    std::iota(out.begin(), out.end(), 0);
    return;
  }
  if (keep == n - 1) {
    drop_one(scores, flags, n, out);
    return;
  }
  scratch.resize(static_cast<size_t>(n));
  int32_t* keys = scratch.data();
  for (int64_t i = 0; i < n; ++i) keys[i] = slot_key(scores[i], flags[i]);
  thread_local std::vector<int32_t> bucket;
  const int32_t cut = cut_of(keys, n, keep, bucket);
  int64_t better = 0;
  for (int64_t i = 0; i < n; ++i) better += keys[i] > cut ? 1 : 0;
  int64_t ties = keep - better;
  size_t next = 0;
  for (int64_t i = 0; i < n && next < out.size(); ++i) {
    const int32_t k = keys[i];
    const int64_t tie = k == cut && ties > 0 ? 1 : 0;
    ties -= tie;
    out[next] = static_cast<int32_t>(i);
    next += k > cut || tie != 0 ? 1 : 0;
  }
  PF_CHECK(next == out.size() && cut != kDead, "fewer slots than are to be kept");
}

void pick_blocks(const float* scores, const uint8_t* flags, int64_t n, int64_t keep, int block_size,
                 std::vector<int32_t>& out) {
  struct Block {
    float score;
    int64_t index, live;
  };
  std::vector<Block> blocks;
  int64_t live_total = 0;
  for (int64_t b = 0; b * block_size < n; ++b) {
    const int64_t end = std::min(n, (b + 1) * block_size);
    int64_t live = 0;
    bool held = false;
    double sum = 0;
    for (int64_t i = b * block_size; i < end; ++i) {
      if ((flags[i] & kSlotDead) != 0) continue;
      ++live;
      held |= flags[i] != 0;
      sum += static_cast<double>(scores[i]);
    }
    live_total += live;
    if (!held && live > 0) {
      blocks.push_back({static_cast<float>(sum / static_cast<double>(live)), b, live});
    }
  }
  // Worst first; equal: the higher block goes.
  std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.score != b.score ? a.score < b.score : a.index > b.index;
  });
  std::vector<bool> gone(static_cast<size_t>((n + block_size - 1) / block_size), false);
  for (const Block& b : blocks) {
    if (live_total - b.live < keep) continue;
    live_total -= b.live;
    gone[static_cast<size_t>(b.index)] = true;
  }
  out.clear();
  for (int64_t i = 0; i < n; ++i) {
    if (!gone[static_cast<size_t>(i / block_size)] && (flags[i] & kSlotDead) == 0) {
      out.push_back(static_cast<int32_t>(i));
    }
  }
}

SlotSelector::SlotSelector(const KvModel& model, ForEachUnit for_each)
    : model_(model), for_each_(std::move(for_each)) {
  const auto n = static_cast<size_t>(model.n_tables());
  scores_.resize(n);
  flags_.resize(n);
  kept_.resize(n);
  masked_.resize(n);
  live_.resize(n);
  pinned_.resize(n);
  least_.resize(n);
  keep_.resize(n);
  same_as_.resize(n);
}

void SlotSelector::select(const KvPlan& plan, const ScheduleState& state,
                          const SequenceCache& cache, const SequenceSignals& signals,
                          const ScoredKeys* scored) {
  // Tables of one scope with the same positions share their flags and joined scores.
  const Scope scope = plan.policy->scope(plan.params);
  const auto scope_of = [&](int t) {
    if (scope == Scope::sequence) return 0;
    if (scope == Scope::layer) return t / model_.n_kv_heads;
    return scope == Scope::head ? t % model_.n_kv_heads : t;
  };
  std::vector<std::vector<int>> scopes(static_cast<size_t>(model_.n_tables()));
  for (int t = 0; t < model_.n_tables(); ++t) {
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    auto& tables = scopes[static_cast<size_t>(scope_of(t))];
    int same = t;
    if (!tables.empty() && plan.packing != Packing::off) {
      const int first = tables.front();
      const int64_t n = signals.slots(t);
      if (n == signals.slots(first) && std::memcmp(signals.positions(t), signals.positions(first),
                                                   static_cast<size_t>(n) * sizeof(int32_t)) == 0) {
        same = first;
      }
    }
    same_as_[static_cast<size_t>(t)] = same;
    tables.push_back(t);
  }
  flag_slots(plan, state, cache, signals);
  score_tables(plan, state, signals, scored);
  for (const auto& tables : scopes) {
    if (tables.size() > 1 && !plan.policy->position_only()) join_scope(plan, signals, tables);
  }
  share_out(plan, state);
#ifndef NDEBUG
  check_kept(plan);
#endif
}

// The invariants of a keep-set: ascending, everything protected in it, nothing dead, exact counts.
void SlotSelector::check_kept(const KvPlan& plan) const {
  for (int t = 0; t < model_.n_tables(); ++t) {
    const auto i = static_cast<size_t>(t);
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    const auto& flags = flags_[static_cast<size_t>(same_as_[i])];
    const auto count = static_cast<int64_t>(kept_[i].size());
    const bool block = plan.packing == Packing::block;
    PF_CHECK(block ? count >= keep_[i] : count == keep_[i], "a table keeps another count");
    int64_t held = 0, kept_held = 0;
    for (const uint8_t f : flags) held += (f & (kSlotProtected | kSlotPinned)) != 0 ? 1 : 0;
    for (size_t k = 0; k < kept_[i].size(); ++k) {
      const auto slot = static_cast<size_t>(kept_[i][k]);
      PF_CHECK(k == 0 || kept_[i][k] > kept_[i][k - 1], "a keep-set is not ascending");
      PF_CHECK(slot < flags.size() && (flags[slot] & kSlotDead) == 0, "a dead slot is kept");
      kept_held += flags[slot] != 0 ? 1 : 0;
    }
    PF_CHECK(held == kept_held, "a protected slot goes");
  }
}

void SlotSelector::flag_slots(const KvPlan& plan, const ScheduleState& state,
                              const SequenceCache& cache, const SequenceSignals& signals) {
  const int64_t now = state.n_computed;
  const int64_t budget = plan.budget_at(now);
  const int64_t sinks = std::min(plan.sinks_at(now, signals.query_sums().rows), budget);
  // `rest` needs no protection: those policies score by age.
  int64_t recent = plan.recent_rule == RecentRule::rest ? 0 : plan.recent_at(now);
  // The window ends before the template's suffix, which stays with it.
  if (plan.recent_rule == RecentRule::window && now == state.n_prompt) {
    recent += state.n_prompt - state.window_end;
  }
  recent = std::min(recent, budget - sinks);
  const auto first_recent = static_cast<int32_t>(now - recent);
  const auto last_sink = static_cast<int32_t>(sinks);
  const auto pinned_end = static_cast<int32_t>(plan.protect_prompt ? state.n_prompt : 0);
  for (int t = 0; t < model_.n_tables(); ++t) {
    const auto i = static_cast<size_t>(t);
    live_[i] = pinned_[i] = least_[i] = 0;
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    const auto first = static_cast<size_t>(same_as_[i]);
    if (first != i) {
      live_[i] = live_[first];
      pinned_[i] = pinned_[first];
      least_[i] = least_[first];
      continue;
    }
    const int64_t n = signals.slots(t);
    const int32_t* positions = signals.positions(t);
    auto& flags = flags_[i];
    flags.resize(static_cast<size_t>(n));
    int32_t pinned = 0, guarded = 0, dead = 0;
    flag_by_position(positions, n, {last_sink, first_recent, pinned_end}, flags.data(), pinned,
                     guarded);
    bool changed = false;
    if (!plan.keep.empty() && !plan.protect_prompt) {
      for (int64_t s = 0; s < n; ++s) {
        if (plan.pinned(positions[s], state.n_prompt)) flags[static_cast<size_t>(s)] = kSlotPinned;
      }
      changed = true;
    }
    const uint32_t* live = cache.tables()[t].live;
    if (live != nullptr) {
      for (int64_t s = 0; s < n; ++s) {
        if ((live[s / 32] >> (s % 32) & 1) == 0) flags[static_cast<size_t>(s)] = kSlotDead;
      }
      changed = true;
    }
    if (changed) {
      pinned = guarded = 0;
      for (const uint8_t f : flags) {
        dead += f == kSlotDead ? 1 : 0;
        pinned += f == kSlotPinned ? 1 : 0;
        guarded += f == kSlotProtected ? 1 : 0;
      }
    }
    live_[i] = n - dead;
    pinned_[i] = pinned;
    least_[i] = pinned + guarded;
    if (plan.packing == Packing::block) least_[i] = slots_of_held_blocks(flags, model_.block_size);
  }
}

void SlotSelector::score_tables(const KvPlan& plan, const ScheduleState& state,
                                const SequenceSignals& signals, const ScoredKeys* scored) {
  const Needs& needs = signals.needs();
  const int64_t now = state.n_computed;
  int64_t window_begin = now - needs.window;
  if (now == state.n_prompt) window_begin = state.window_end - needs.window;
  const auto score = [&](int64_t table) {
    const auto t = static_cast<int>(table);
    const auto i = static_cast<size_t>(t);
    const ScoreInput in{plan.params, t / model_.n_kv_heads, t % model_.n_kv_heads, model_.group(),
                        now,         window_begin};
    if (!model_.compressed(in.layer)) return;
    if (plan.policy->position_only() && same_as_[i] != t) return;
    SlotSignals s = signals.view(t);
    s.flags = flags_[static_cast<size_t>(same_as_[i])].data();
    s.keys = scored == nullptr ? nullptr : scored + t;
    scores_[i].resize(static_cast<size_t>(s.n));
    plan.policy->scores(in, s, scores_[i].data());
  };
  if (for_each_) return for_each_(model_.n_tables(), score);
  for (int t = 0; t < model_.n_tables(); ++t) score(t);
}

// A token's score is the mean or maximum over the tables of the scope that still hold it.
void SlotSelector::join_scope(const KvPlan& plan, const SequenceSignals& signals,
                              std::span<const int> tables) {
  const bool largest = plan.policy->join(plan.params) == Join::max;
  const auto first = static_cast<size_t>(tables.front());
  bool same = true;
  for (const int t : tables) same = same && same_as_[static_cast<size_t>(t)] == tables.front();
  if (same) {
    auto& sum = scores_[first];
    for (size_t i = 1; i < tables.size(); ++i) {
      const auto& other = scores_[static_cast<size_t>(tables[i])];
      if (largest) {
        for (size_t s = 0; s < sum.size(); ++s) sum[s] = std::max(sum[s], other[s]);
      } else {
        for (size_t s = 0; s < sum.size(); ++s) sum[s] += other[s];
      }
    }
    const float scale = largest ? 1.0f : 1.0f / static_cast<float>(tables.size());
    for (float& s : sum) s *= scale;
    return;
  }
  int32_t last = -1;
  for (const int t : tables) {
    for (int64_t s = 0; s < signals.slots(t); ++s) last = std::max(last, signals.positions(t)[s]);
  }
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  joined_.assign(static_cast<size_t>(last + 1), largest ? kNone : 0.0f);
  scratch_.assign(joined_.size(), 0);
  for (const int t : tables) {
    const auto i = static_cast<size_t>(t);
    const auto& flags = flags_[static_cast<size_t>(same_as_[i])];
    for (int64_t s = 0; s < signals.slots(t); ++s) {
      if ((flags[static_cast<size_t>(s)] & kSlotDead) != 0) continue;
      const auto p = static_cast<size_t>(signals.positions(t)[s]);
      const float score = scores_[i][static_cast<size_t>(s)];
      joined_[p] = largest ? std::max(joined_[p], score) : joined_[p] + score;
      ++scratch_[p];
    }
  }
  for (const int t : tables) {
    const auto i = static_cast<size_t>(t);
    for (int64_t s = 0; s < signals.slots(t); ++s) {
      const auto p = static_cast<size_t>(signals.positions(t)[s]);
      const float count = largest ? 1.0f : static_cast<float>(std::max(1, scratch_[p]));
      scores_[i][static_cast<size_t>(s)] = joined_[p] / count;
    }
  }
  for (const int t : tables) {
    const auto i = static_cast<size_t>(t);
    if (same_as_[i] != t) flags_[i] = flags_[static_cast<size_t>(same_as_[i])];
    same_as_[i] = t;
  }
}

void SlotSelector::share_out(const KvPlan& plan, const ScheduleState& state) {
  const int64_t budget = plan.budget_at(state.n_computed);
  const int n = model_.n_tables();
  BudgetInput in{model_, plan.alloc_params};
  in.budget = budget;
  in.computed = state.n_computed;
  in.live = live_.data();
  in.pinned = pinned_.data();
  in.least = least_.data();
  for (size_t t = 0; t < live_.size(); ++t) in.window = std::max(in.window, least_[t] - pinned_[t]);
  if (plan.alloc->uses_scores()) {
    for (int t = 0; t < n; ++t) {
      const auto i = static_cast<size_t>(t);
      masked_[i].clear();
      if (!model_.compressed(t / model_.n_kv_heads)) continue;
      const auto from = static_cast<size_t>(same_as_[i]);
      const float* scores = scores_[from].data();
      const uint8_t* flags = flags_[from].data();
      masked_[i].resize(scores_[from].size());
      float* out = masked_[i].data();
      size_t live = 0;
      for (size_t s = 0; s < scores_[from].size(); ++s) {
        out[live] = flags[s] != 0 ? std::numeric_limits<float>::infinity() : scores[s];
        live += (flags[s] & kSlotDead) == 0 ? 1 : 0;
      }
      masked_[i].resize(live);
    }
    in.scores = masked_.data();
  }
  plan.alloc->counts(in, keep_.data());
  for (int t = 0; t < n; ++t) {
    const auto i = static_cast<size_t>(t);
    kept_[i].clear();
    if (!model_.compressed(t / model_.n_kv_heads)) continue;
    keep_[i] = slots_after(plan, live_[i], least_[i], keep_[i], budget);
    const auto from = static_cast<size_t>(same_as_[i]);
    if (from != i && keep_[from] == keep_[i]) {
      kept_[i] = kept_[from];
      continue;
    }
    const auto slots = static_cast<int64_t>(flags_[from].size());
    if (plan.packing == Packing::block) {
      pick_blocks(scores_[from].data(), flags_[from].data(), slots, keep_[i], model_.block_size,
                  kept_[i]);
    } else {
      pick_top(scores_[from].data(), flags_[from].data(), slots, keep_[i], scratch_, kept_[i]);
    }
  }
}

}  // namespace pagefold
