#include "engine/compression.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"

namespace pagefold {
namespace {

// Slots of each layer and of each KV head, where a budget shares them out unevenly: what a reader
// needs to add them up against the budget.
std::string uneven_totals(const Sequence& s) {
  if (s.plan->alloc->even()) return {};
  const CacheShape& shape = s.cache.shape();
  std::vector<int64_t> layers(static_cast<size_t>(shape.n_layers));
  std::vector<int64_t> heads(static_cast<size_t>(shape.n_kv_heads));
  for (int t = 0; t < shape.n_tables(); ++t) {
    layers[static_cast<size_t>(t / shape.n_kv_heads)] += s.cache.live_slots(t);
    heads[static_cast<size_t>(t % shape.n_kv_heads)] += s.cache.live_slots(t);
  }
  return fmt::format("; slots by layer {}, by KV head {}", layers, heads);
}

// FNV-1a over the positions that every table kept: two answers that kept the same tokens say the
// same.
uint64_t kept_set(const Sequence& s) {
  const SequenceSignals& signals = s.compression->signals();
  uint64_t digest = 0xcbf29ce484222325;
  for (int t = 0; t < s.cache.shape().n_tables(); ++t) {
    const int32_t* positions = signals.positions(t);
    for (int64_t i = 0; i < signals.slots(t); ++i)
      digest = (digest ^ static_cast<uint32_t>(positions[i])) * 0x100000001b3;
    digest = (digest ^ 0xffffffff) * 0x100000001b3;  // the end of a table
  }
  return digest;
}

void log_compaction(const Sequence& s, const CompressionCounts& before, double scored_s,
                    double moved_s) {
  if (!log::enabled(log::Level::debug)) return;
  const CompressionCounts& after = s.compression->counts();
  log::debug(
      "{}: compacted at {} tokens: {} slots evicted, {} moved, {} blocks freed, {} slots in {} "
      "blocks kept of a budget of {}; scored in {:.2f} ms, moved in {:.2f} ms{}; "
      "kept set {:016x}",
      s.request.id, s.n_computed, after.evicted_slots - before.evicted_slots,
      after.moved_slots - before.moved_slots, after.freed_blocks - before.freed_blocks,
      s.cache.held_slots(), s.cache.held_blocks(),
      budget_total(*s.plan, s.compression->model(), s.n_computed, s.n_prompt), scored_s * 1e3,
      moved_s * 1e3, uneven_totals(s), kept_set(s));
}

}  // namespace

KvModel kv_model(const ModelShape& m, int block_size) {
  KvModel kv;
  kv.n_layers = m.n_layers;
  kv.n_heads = m.n_heads;
  kv.n_kv_heads = m.n_kv_heads;
  kv.head_dim = m.head_dim;
  kv.block_size = block_size;
  kv.layer_window = m.layer_window;
  kv.context_length = m.context_length;
  kv.inv_freq = m.inv_freq;
  kv.attention_scaling = m.rope_magnitude;
  return kv;
}

Result<std::shared_ptr<const KvPlan>> resolve_kv_plan(const KvOptions& request,
                                                      const EngineConfig& config,
                                                      const KvModel& model, int64_t n_prompt,
                                                      bool sizing) {
  KvLimits limits;
  limits.sizing = sizing;
  limits.allow_off = config.allow_packing_off;
  limits.min_interval = config.min_kv_interval;
  limits.most_cost = config.most_policy_cost;
  limits.calibration = config.find_calibration;
  limits.calibration_names = config.calibration_names;
  PF_ASSIGN(KvPlan plan, parse_kv_options(request, config.kv, model, limits, n_prompt));
  return std::make_shared<const KvPlan>(std::move(plan));
}

int64_t peak_blocks(const KvPlan& plan, const KvModel& model, const CacheShape& shape,
                    int64_t n_prompt, int64_t max_tokens, int64_t step_rows, bool shared) {
  const int64_t full = shape.peak_blocks(n_prompt + max_tokens, step_rows);
  if (!plan.evicts()) return full;
  const int64_t most = peak_footprint(plan, model, n_prompt, max_tokens, step_rows, shared).blocks;
  return shared ? most : std::min(full, most);
}

Status check_footprint(const KvPlan& plan, const KvModel& model, const CacheShape& shape,
                       int64_t n_prompt, int64_t max_tokens, int64_t step_rows, int64_t pool_blocks,
                       uint64_t block_bytes) {
  const int64_t needed = peak_blocks(plan, model, shape, n_prompt, max_tokens, step_rows);
  if (needed <= pool_blocks) return ok_status();
  const auto mib = [&](int64_t blocks) {
    return static_cast<double>(static_cast<uint64_t>(blocks) * block_bytes) / (1 << 20);
  };
  return bad_input(
      "the request may need {} cache blocks ({:.1f} MiB), but the whole pool has {} ({:.1f} "
      "MiB); ask for fewer tokens or a smaller KV budget",
      needed, mib(needed), pool_blocks, mib(pool_blocks));
}

const SeqSignals* begin_signals(Sequence& s, int64_t rows) {
  const KvPlan& plan = *s.plan;
  s.signals = {};
  bool any = false;
  if (s.compression) {
    const Observation* o = s.compression->begin_step(s.cache, rows);
    if (o != nullptr && o->any()) {
      s.signals.observe = o;
      any = true;
    }
    const int64_t len = s.cache.table(0, 0).len;
    if (plan.reindex && s.n_computed > len) {
      s.signals.sink_slots = plan.sinks;
      s.signals.sink_shift = s.n_computed - len;
      any = true;
    }
  }
  // A chunk of the prompt may be a single row: reading less there would make the answer depend on
  // how the prompt was cut.
  if (plan.quest_tokens > 0 && s.n_computed >= s.n_prompt) {
    s.signals.quest_blocks = static_cast<int>(
        std::max<int64_t>(1, plan.quest_tokens_at(s.n_computed) / s.cache.shape().block_size));
    s.signals.quest_first_layer = plan.quest_exempt_layers;
    s.signals.quest_blocks_read = s.quest_blocks_read;
    s.cache.taint();
    any = true;
  }
  return any ? &s.signals : nullptr;
}

void end_signals(Sequence& s, int64_t rows) {
  if (s.compression) s.compression->end_step(rows);
}

bool CompactionRunner::run(Sequence& s, std::vector<BlockId>& freed,
                           const std::function<void()>& commit_taken,
                           const std::function<bool()>& make_room) {
  if (!s.compression || !(s.compact_now || s.compression->due(s.cache))) return false;
  s.compact_now = false;
  SequenceCompression& c = *s.compression;
  const auto start = Clock::now();
  const CompressionCounts before = c.counts();
  const KeyScoreQuery& query = compactor_.query(c, s.cache);
  if (query.kind != KeyScore::none)
    model_.score_tables(query, s.cache.tables(), compactor_.scored());
  while (!compactor_.plan(c, s.cache, pool_, plan_)) {  // copies of shared blocks need room
    if (!make_room()) return false;
  }
  commit_taken();
  const auto scored = Clock::now();
  model_.move_slots(plan_, s.cache.tables());
  compactor_.apply(c, s.cache, pool_, plan_, freed);
  const auto moved = Clock::now();
  const double scored_s = seconds_between(start, scored), moved_s = seconds_between(scored, moved);
  times_.scored_s += scored_s;
  times_.moved_s += moved_s;
  s.scored_s += scored_s;
  log_compaction(s, before, scored_s, moved_s);
  return true;
}

bool CompactionRunner::drop(Sequence& s, KeepSpan span, int64_t dropped,
                            std::vector<BlockId>& freed,
                            const std::function<void()>& commit_taken) {
  if (!compactor_.plan_without(s.compression.get(), s.cache, pool_, span, dropped, plan_))
    return false;
  commit_taken();
  model_.move_slots(plan_, s.cache.tables());
  if (s.compression) {
    compactor_.apply(*s.compression, s.cache, pool_, plan_, freed);
  } else {
    s.cache.apply(pool_, plan_, freed);
  }
  return true;
}

}  // namespace pagefold
