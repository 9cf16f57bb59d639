#include "kv/trace.h"

#include <algorithm>
#include <numeric>

namespace pagefold {
namespace {

// Whether counts alone decide what is kept.
bool counts_decide(const KvPlan& plan) {
  if (!plan.evicts()) return true;
  if (plan.packing == Packing::off || plan.alloc->uses_scores()) return false;
  if (plan.packing != Packing::block) return true;
  // Whole blocks: unless the newest one is protected, it may go, and it may be a short one.
  return plan.alloc->even() && plan.recent_rule != RecentRule::rest && plan.recent_at(0) > 0 &&
         plan.budget_share <= 0;
}

class Trace {
 public:
  Trace(const KvPlan& plan, const KvModel& model, int64_t n_prompt, int64_t tokens,
        int64_t step_rows)
      : plan_(plan),
        heads_(model.n_kv_heads),
        one_head_(model),
        tokens_(tokens),
        step_rows_(std::max<int64_t>(1, step_rows)) {
    // The heads of a layer hold alike, so one is followed.
    one_head_.n_kv_heads = 1;
    one_head_.n_heads = model.group();
    state_.n_prompt = state_.window_end = std::min(n_prompt, tokens);
    for (int l = 0; l < model.n_layers; ++l) {
      if (model.compressed(l)) continue;
      const int64_t window = model.layer_window[static_cast<size_t>(l)];
      windows_.push_back(window);
      longest_window_ = std::max(longest_window_, window);
    }
    const auto n = static_cast<size_t>(model.n_layers);
    live_.assign(n, 0);
    pinned_.assign(n, 0);
    least_.assign(n, 0);
    keep_.assign(n, 0);
    merge_windows();
  }

  // False: too long to follow step by step (a budget that grows with every token).
  bool run(TraceSteps& steps) {
    bool compacted = false;
    const int64_t cost = even_ ? 1 : 1 + one_head_.n_layers / 8;
    while (state_.n_computed < tokens_) {
      if (steps.left <= 0) return false;
      steps.left -= cost;
      const int64_t rows = next_rows();
      grow(rows);
      if (compaction_due(plan_, one_head_, state_, live_total())) {
        compact();
        out_.steady = held();
        compacted = true;
        skip_cycles();
      } else {
        skip_growth(rows);
      }
    }
    out_.end = held();
    if (!compacted) out_.steady = out_.end;
    scale(out_.end);
    scale(out_.steady);
    scale(out_.peak);
    return true;
  }
  const SequenceTrace& result() const { return out_; }

 private:
  // Layers with equal windows count together.
  void merge_windows() {
    std::sort(windows_.begin(), windows_.end());
    for (const int64_t w : windows_) {
      if (classes_.empty() || classes_.back().first != w) classes_.emplace_back(w, 0);
      ++classes_.back().second;
    }
    compressed_layers_ = one_head_.n_compressed_layers();
    even_ = !plan_.evicts() || plan_.alloc->even();
  }
  void scale(Footprint& f) const {
    f.slots *= heads_;
    f.blocks *= heads_;
  }

  int64_t next_rows() const {
    const int64_t left = tokens_ - state_.n_computed;
    if (state_.n_computed < state_.n_prompt) {
      return std::min({left, step_rows_, rows_to_stop(plan_, state_)});
    }
    // Tables grow with every token until the next compaction may come: only its end matters, unless
    // windows rise and fall between.
    if (!classes_.empty()) return 1;
    if (!plan_.evicts() || plan_.defaults.once) return left;
    int64_t until = plan_.interval - (state_.n_computed - state_.last_event);
    if (even_ && plan_.budget_share <= 0) {
      const int64_t total = plan_.budget + plan_.pinned_count(state_.n_computed, state_.n_prompt);
      until = std::max(until, total + 1 - len_);
    }
    return std::clamp<int64_t>(until, 1, left);
  }

  int64_t live_total() const { return even_ ? len_ * compressed_layers_ : sum(live_); }
  static int64_t sum(const std::vector<int64_t>& v) {
    return std::accumulate(v.begin(), v.end(), int64_t{0});
  }

  // Slots and blocks with `rows` more than are computed, before windows let go.
  Footprint held(int64_t rows = 0) const {
    const int64_t bs = one_head_.block_size;
    Footprint f;
    if (even_) {
      f.slots = (len_ + rows) * compressed_layers_;
      f.blocks = blocks_of(len_ + rows, bs) * compressed_layers_;
    } else {
      for (int l = 0; l < one_head_.n_layers; ++l) {
        if (!one_head_.compressed(l)) continue;
        const int64_t slots = live_[static_cast<size_t>(l)] + rows;
        f.slots += slots;
        f.blocks += blocks_of(slots, bs);
      }
    }
    const int64_t n = state_.n_computed;
    for (const auto& [window, layers] : classes_) {
      const int64_t first = std::max<int64_t>(0, n - window) / bs;  // blocks that are gone
      f.slots += (n + rows - first * bs) * layers;
      f.blocks += (blocks_of(n + rows, bs) - first) * layers;
    }
    return f;
  }

  void grow(int64_t rows) {
    const Footprint f = held(rows);
    out_.peak.slots = std::max(out_.peak.slots, f.slots);
    out_.peak.blocks = std::max(out_.peak.blocks, f.blocks);
    state_.n_computed += rows;
    len_ += rows;
    if (even_) return;
    for (int l = 0; l < one_head_.n_layers; ++l) {
      if (one_head_.compressed(l)) live_[static_cast<size_t>(l)] += rows;
    }
  }

  // Positions among `computed` that are protected and not pinned.
  int64_t guarded(int64_t computed) const {
    const int64_t budget = plan_.budget_at(computed);
    const int64_t observed = plan_.policy->needs(plan_.params).stats_prompt_rows;
    const int64_t rows = std::min(observed, state_.n_prompt) + computed - state_.n_prompt;
    const int64_t sinks = std::min(plan_.sinks_at(computed, rows), budget);
    int64_t recent = plan_.recent_rule == RecentRule::rest ? 0 : plan_.recent_at(computed);
    recent = std::min(recent, budget - sinks);
    const int64_t first_recent = std::max<int64_t>(0, computed - recent);
    const auto pinned_in = [&](int64_t begin, int64_t end) {
      return plan_.pinned_count(end, state_.n_prompt) - plan_.pinned_count(begin, state_.n_prompt);
    };
    const int64_t head = std::min(sinks, first_recent);
    return head - pinned_in(0, head) + (computed - first_recent) -
           pinned_in(first_recent, computed);
  }

  void compact() {
    const int64_t now = state_.n_computed, budget = plan_.budget_at(now);
    const int64_t pinned = plan_.pinned_count(now, state_.n_prompt);
    const int64_t least = pinned + guarded(now);
    if (even_) {
      len_ = kept_of(len_, least, std::max(least, std::min(len_, pinned + budget)), budget);
    } else {
      for (int l = 0; l < one_head_.n_layers; ++l) {
        if (!one_head_.compressed(l)) continue;
        pinned_[static_cast<size_t>(l)] = pinned;
        least_[static_cast<size_t>(l)] = least;
      }
      BudgetInput in{one_head_, plan_.alloc_params};
      in.budget = budget;
      in.window = least - pinned;
      in.computed = now;
      in.live = live_.data();
      in.pinned = pinned_.data();
      in.least = least_.data();
      plan_.alloc->counts(in, keep_.data());
      for (int l = 0; l < one_head_.n_layers; ++l) {
        const auto i = static_cast<size_t>(l);
        if (one_head_.compressed(l)) live_[i] = kept_of(live_[i], least, keep_[i], budget);
      }
    }
    state_.last_event = now;
    ++out_.compactions;
  }

  // See SlotSelector::share_out and pick_blocks.
  int64_t kept_of(int64_t live, int64_t least, int64_t keep, int64_t budget) const {
    keep = slots_after(plan_, live, least, keep, budget);
    if (plan_.packing != Packing::block) return keep;
    return live - (live - keep) / one_head_.block_size * one_head_.block_size;
  }

  bool windows_are_full() const {
    return state_.n_computed > longest_window_ + step_rows_ + one_head_.block_size;
  }
  void skip(int64_t cycle, int64_t most) {
    if (cycle <= 0 || most <= 2 * cycle) return;
    const int64_t tokens = (most / cycle - 1) * cycle;
    state_.n_computed += tokens;
    state_.last_event += tokens;
  }

  // Two compactions that leave the same tables repeat until the prompt, or the sequence, ends: all
  // that lies between looks the same again after a common multiple of their distance and a block.
  void skip_cycles() {
    const int64_t now = state_.n_computed, distance = now - before_.at;
    const bool decoding = now > state_.n_prompt;
    const bool alike = even_ ? len_ == before_.len : live_ == before_.live;
    const bool same = before_.at > 0 && alike && distance == before_.distance &&
                      (before_.at > state_.n_prompt) == decoding;
    before_.at = now;
    before_.distance = distance;
    before_.len = len_;
    if (!even_ && !alike) before_.live = live_;
    const bool steady = plan_.budget_share <= 0 && (decoding || !plan_.protect_prompt) &&
                        plan_.keep.empty() && windows_are_full();
    if (!same || !steady) return;
    int64_t cycle = distance;
    if (!classes_.empty()) cycle = std::lcm(cycle, int64_t{one_head_.block_size});
    const int64_t counted = state_.n_computed;
    skip(cycle, (decoding ? tokens_ : state_.n_prompt) - now);
    out_.compactions += (state_.n_computed - counted) / distance;
    before_.at = state_.n_computed;
  }

  // While tables only grow, a block's worth of tokens later everything is larger by a block a
  // table: only the last stretch can be the most.
  void skip_growth(int64_t rows) {
    const bool prompt = state_.n_computed < state_.n_prompt;
    if (plan_.evicts() && (prompt ? plan_.prefill_evict : !plan_.defaults.once)) return;
    if (!windows_are_full()) return;
    const int64_t cycle = std::lcm(rows, int64_t{one_head_.block_size});
    const int64_t most = (prompt ? state_.n_prompt : tokens_) - state_.n_computed;
    if (cycle <= 0 || most <= 2 * cycle) return;
    const int64_t tokens = (most / cycle - 1) * cycle;
    state_.n_computed += tokens;
    len_ += tokens;
    for (int l = 0; !even_ && l < one_head_.n_layers; ++l) {
      if (one_head_.compressed(l)) live_[static_cast<size_t>(l)] += tokens;
    }
  }

  struct Before {
    int64_t at = 0, distance = 0, len = 0;
    std::vector<int64_t> live;
  };

  const KvPlan& plan_;
  const int64_t heads_;
  KvModel one_head_;
  const int64_t tokens_, step_rows_;
  std::vector<int64_t> windows_;
  std::vector<std::pair<int64_t, int64_t>> classes_;  // window, layers
  int64_t longest_window_ = 0, compressed_layers_ = 0;
  bool even_ = true;
  ScheduleState state_;
  int64_t len_ = 0;                                    // of every compressed table, if even
  std::vector<int64_t> live_, pinned_, least_, keep_;  // [n_layers] of one head, if not
  Before before_;
  SequenceTrace out_;
};

// Upper bounds, where scores decide.
SequenceTrace bounds(const KvPlan& plan, const KvModel& m, int64_t n_prompt, int64_t tokens,
                     int64_t step_rows) {
  SequenceTrace t;
  t.exact = false;
  const int64_t generated = tokens - std::min(n_prompt, tokens) + 1;
  const int64_t prompt = std::min(n_prompt, tokens);
  t.steady = steady_footprint(plan, m, prompt, generated);
  t.peak = peak_footprint(plan, m, prompt, generated, step_rows);
  t.end = t.peak;
  return t;
}

}  // namespace

SequenceTrace trace_sequence(const KvPlan& plan, const KvModel& model, int64_t n_prompt,
                             int64_t tokens, int64_t step_rows, TraceSteps* steps) {
  TraceSteps own;
  if (counts_decide(plan)) {
    Trace trace(plan, model, n_prompt, tokens, step_rows);
    if (trace.run(steps != nullptr ? *steps : own)) return trace.result();
  }
  return bounds(plan, model, n_prompt, tokens, step_rows);
}

}  // namespace pagefold
