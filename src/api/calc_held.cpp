#include <algorithm>

#include "api/calc_parts.h"
#include "base/kv_format.h"
#include "engine/compression.h"
#include "kv/option_keys.h"
#include "kv/trace.h"

namespace pagefold {
namespace {

using calc::Checked;

Result<KvPlan> plan_of(const KvOptions& words, const KvModel& model) {
  KvLimits limits;
  limits.sizing = true;
  limits.allow_off = true;
  return parse_kv_options(words, {}, model, limits, 0);
}

// Blocks of a common prefix that a sequence of `tokens` tokens still holds, all layers and heads.
int64_t prefix_blocks(const KvModel& m, int64_t prefix, int64_t tokens, bool windows) {
  const int64_t whole = std::min(prefix, tokens) / m.block_size;
  int64_t blocks = 0;
  for (int l = 0; l < m.n_layers; ++l) {
    if (m.compressed(l)) {
      blocks += whole;
    } else if (windows) {
      const int64_t window = m.layer_window[static_cast<size_t>(l)];
      blocks += std::max<int64_t>(0, whole - std::max<int64_t>(0, tokens - window) / m.block_size);
    }
  }
  return blocks * m.n_kv_heads;
}

// Sequences that share a prefix hold it once: all but the largest part is saved.
struct Saving {
  Checked sum;
  int64_t largest = 0;
  void add(int64_t blocks, int64_t count) {
    sum += Checked(blocks) * count;
    largest = std::max(largest, blocks);
  }
  Result<int64_t> blocks() const {
    PF_ASSIGN(const uint64_t all, sum.get("shared blocks"));
    return static_cast<int64_t>(all) - largest;
  }
};

struct PoolBlocks {
  Checked allocated, steady, peak, reserved;
  Saving at_end, at_peak;
};

Status add_batch(const CalcWorkload& work, const KvPlan& plan, const KvModel& kv,
                 const CalcBatch& batch, PoolBlocks& out, CalcHeld& held) {
  const int64_t prompt = std::min(work.prompt_tokens, batch.tokens);
  // Slots of all tables at any time: within, counts need no more checks.
  const Checked most = Checked(int64_t{kv.n_layers} * kv.n_kv_heads) *
                       (batch.tokens + work.step_rows + 2 * int64_t{kv.block_size});
  PF_TRY(most.get("slots").status());
  static const KvPlan kFull = *plan_of({}, KvModel{1, 1, 1, 8});
  const auto follow = [&](const KvPlan& p) {
    return trace_sequence(p, kv, prompt, batch.tokens, work.step_rows, &work.steps);
  };
  const SequenceTrace full = follow(kFull);
  const SequenceTrace t = plan.evicts() ? follow(plan) : full;
  int64_t peak = t.peak.blocks;
  const bool shares = work.shared_prefix >= kv.block_size;
  if (shares && plan.evicts()) {
    // A compaction copies what it keeps of shared blocks before it lets go of them.
    peak = std::max(peak, peak_footprint(plan, kv, prompt, batch.tokens - prompt + 1,
                                         work.step_rows, /*shared=*/true)
                              .blocks);
  }
  out.allocated += Checked(full.end.blocks) * batch.count;
  out.steady += Checked(t.steady.blocks) * batch.count;
  out.peak += Checked(peak) * batch.count;
  const CacheShape shape{kv.n_layers, kv.n_kv_heads, kv.block_size, kv.layer_window};
  out.reserved +=
      Checked(peak_blocks(plan, kv, shape, prompt, batch.tokens - prompt + 1, work.step_rows)) *
      batch.count;
  out.at_end.add(prefix_blocks(kv, work.shared_prefix, batch.tokens, true), batch.count);
  out.at_peak.add(prefix_blocks(kv, work.shared_prefix, batch.tokens, false), batch.count);
  held.exact = held.exact && t.exact;
  const bool windows = kv.n_compressed_layers() < kv.n_layers;
  if (shares && (plan.evicts() || windows)) held.exact = false;
  if (held.compactions == 0) held.compactions = t.compactions;
  return ok_status();
}

}  // namespace

std::vector<CalcPool> calc_pools(const std::vector<calc::LayerGroup>& groups,
                                 const calc::CacheTypes& types, int block_size) {
  std::vector<CalcPool> pools;
  struct Shape {
    int64_t heads, k, v;
    bool latent;
    bool operator==(const Shape&) const = default;
  };
  std::vector<Shape> shapes;
  for (const calc::LayerGroup& g : groups) {
    if (!g.grows()) continue;
    const bool latent = g.kind == calc::LayerKind::mla;
    const Shape shape = latent ? Shape{1, g.latent + g.rope, g.index_dim, true}
                               : Shape{g.kv_heads, g.k_dim, g.v_dim, false};
    auto at = std::find(shapes.begin(), shapes.end(), shape);
    if (at == shapes.end()) {
      shapes.push_back(shape);
      at = shapes.end() - 1;
      CalcPool pool;
      pool.kv.n_heads = pool.kv.n_kv_heads = static_cast<int>(shape.heads);
      pool.kv.head_dim = static_cast<int>(shape.k);
      pool.kv.block_size = block_size;
      if (!latent && g.k_dim == g.v_dim && types.k.own && types.v.own) {
        pool.slot_bytes = KvFormat(*types.k.own, *types.v.own, static_cast<int>(types.group))
                              .slot_bytes(static_cast<int>(g.k_dim));
      } else {
        pool.slot_bytes = calc::layer_token_bytes(g, types) / static_cast<uint64_t>(shape.heads);
      }
      pools.push_back(std::move(pool));
    }
    KvModel& kv = pools[static_cast<size_t>(at - shapes.begin())].kv;
    kv.n_layers += static_cast<int>(g.layers);
    kv.layer_window.resize(static_cast<size_t>(kv.n_layers), g.windowed() ? g.window : 0);
  }
  return pools;
}

Result<CalcHeld> calc_held(const CalcWorkload& work, std::span<const CalcBatch> batches) {
  CalcHeld held;
  Checked allocated, steady, peak, reserved;
  for (const CalcPool& pool : work.pools) {
    PF_ASSIGN(const KvPlan plan, plan_of(work.kv, pool.kv));
    PoolBlocks blocks;
    for (const CalcBatch& b : batches) PF_TRY(add_batch(work, plan, pool.kv, b, blocks, held));
    const Checked block = Checked(pool.slot_bytes) * pool.kv.block_size;
    PF_ASSIGN(const int64_t end_saved, blocks.at_end.blocks());
    PF_ASSIGN(const int64_t peak_saved, blocks.at_peak.blocks());
    PF_ASSIGN(const uint64_t all, blocks.allocated.get("blocks"));
    PF_ASSIGN(const uint64_t kept, blocks.steady.get("blocks"));
    reserved += block * blocks.reserved;
    PF_ASSIGN(const uint64_t most, blocks.peak.get("blocks"));
    // What was compacted shares nothing any more.
    allocated += block * (all - static_cast<uint64_t>(end_saved));
    steady += block * (plan.evicts() ? kept : kept - static_cast<uint64_t>(end_saved));
    peak += block * (plan.evicts() ? most : most - static_cast<uint64_t>(peak_saved));
  }
  PF_ASSIGN(held.allocated, allocated.get("KV bytes"));
  PF_ASSIGN(held.steady, steady.get("KV bytes"));
  PF_ASSIGN(held.reserved, reserved.get("KV bytes"));
  PF_ASSIGN(held.peak, peak.get("KV bytes"));
  return held;
}

Status calc_without_statistics(const CalcWorkload& work) {
  for (const CalcPool& pool : work.pools) {
    PF_ASSIGN(const KvPlan plan, plan_of(work.kv, pool.kv));
    if (!uses_calibration(*plan.policy, plan.params) || plan.calibration != "auto") continue;
    KvOptions without = work.kv;
    without["calibration"] = "self";
    PF_TRY(plan_of(without, pool.kv).status());
  }
  return ok_status();
}

}  // namespace pagefold
