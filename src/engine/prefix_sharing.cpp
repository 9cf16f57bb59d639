#include "engine/prefix_sharing.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "kv/schedule.h"

namespace pagefold {
namespace {

PrefixIndex::Limits index_limits(const EngineConfig& config, const CacheShape& shape,
                                 uint64_t block_bytes, const BlockPool& pool) {
  PrefixIndex::Limits limits;
  if (!config.prefix_caching) return limits;
  uint64_t bytes = config.prefix_cache_memory_bytes;
  if (bytes == 0) bytes = pool.total() * block_bytes / 4;
  limits.max_entries =
      static_cast<int64_t>(bytes / (block_bytes * static_cast<uint64_t>(shape.n_tables())));
  limits.time_to_live = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(config.prefix_cache_ttl_s));
  return limits;
}

bool wants_prompt_logprobs(const Sequence& s) {
  return s.request.sampling.prompt_logprobs &&
         static_cast<int64_t>(s.prompt_logprobs.size()) < s.n_prompt;
}

// What a policy must see computed, in words.
std::string rows_needed(const KvPlan& plan) {
  if (plan.prefill_evict) return "prefill_evict compacts while the prompt is read";
  const Needs needs = plan.policy->needs(plan.params);
  if (needs.prompt == PromptRows::all) {
    return fmt::format("{} observes every row of the prompt", plan.name);
  }
  const int rows = std::max(needs.query_ring, needs.stats_prompt_rows);
  return fmt::format("{} observes the last {} rows of the prompt", plan.name,
                     needs.prompt == PromptRows::last ? std::max(needs.window, rows) : rows);
}

}  // namespace

PrefixSharing::PrefixSharing(const EngineConfig& config, const CacheShape& shape,
                             uint64_t block_bytes, BlockPool& pool)
    : shape_(shape),
      pool_(pool),
      index_(shape, pool, index_limits(config, shape, block_bytes, pool), random_seed()) {}

// Generated tokens are there as well when a paused sequence is computed again; quest read less than
// everything when it made its own. The last known token must be computed for its logits.
int64_t PrefixSharing::limit_of_any(const Sequence& s) const {
  const bool own = s.plan->quest_tokens > 0 || s.plan->evicts();
  return (own ? std::min(s.n_prompt + 1, s.next_pos()) : s.next_pos()) - 1;
}

int64_t PrefixSharing::limit_of(const Sequence& s) const {
  if (wants_prompt_logprobs(s)) return 0;
  const int64_t limit = limit_of_any(s);
  if (!s.plan->evicts()) return limit;
  PF_CHECK(s.compression != nullptr, "a hit is limited by what compression must observe");
  return std::min(limit, most_cached_prompt(*s.plan, s.compression->state()));
}

PrefixIndex::Hit PrefixSharing::find(const Sequence& s) const {
  if (!enabled()) return {};
  return index_.find(s.request.cache_salt, s.tokens, limit_of(s) / shape_.block_size);
}

PrefixIndex::Hit PrefixSharing::find_spilled(const Sequence& s) const {
  if (!enabled() || s.spilled->lengths.tainted) return {};
  // What will soon be compacted is better its own: it may have been paused for want of copies.
  if (s.compression && s.n_computed >= s.n_prompt) return {};
  return index_.find(s.request.cache_salt, s.tokens, s.n_computed / shape_.block_size);
}

bool PrefixSharing::comes_soon(const Sequence& running, const Sequence& s,
                               const PrefixIndex::Hit& hit) const {
  if (!enabled() || running.n_computed >= running.n_prompt || !running.publishes ||
      running.cache.tainted() || running.request.cache_salt != s.request.cache_salt) {
    return false;
  }
  const int64_t limit = std::min(limit_of(s), running.n_prompt);
  const int64_t wanted = (hit.blocks() + 1) * shape_.block_size;
  return wanted <= limit &&
         std::equal(s.tokens.begin(), s.tokens.begin() + wanted, running.tokens.begin());
}

void PrefixSharing::adopt(Sequence& s, const PrefixIndex::Hit& hit) {
  if (!enabled()) return;
  const int64_t tokens = hit.blocks() * shape_.block_size;
  if (s.times_paused == 0) {
    queries_ += static_cast<uint64_t>(s.n_prompt);
    hits_ += static_cast<uint64_t>(tokens);
    s.cached_tokens = tokens;
    const int64_t most = limit_of(s) / shape_.block_size;
    if (most < limit_of_any(s) / shape_.block_size) {
      s.cache_note = wants_prompt_logprobs(s) ? "prompt_logprobs needs every row of the prompt"
                                              : rows_needed(*s.plan);
      s.cache_bypass = most == 0;
    }
  }
  s.prefix = {};
  s.publishes = true;
  if (tokens == 0) return;
  s.cache.adopt_chain(pool_, hit.groups);
  if (s.compression) s.compression->adopt(s.cache, tokens);
  s.n_computed = tokens;
  s.prefix = hit.cursor;
  index_.touch(s.prefix, Clock::now());
}

void PrefixSharing::publish(Sequence& s, Clock::time_point now, std::vector<BlockId>& freed) {
  if (!enabled() || !s.publishes || s.cache.tainted() ||
      s.n_computed / shape_.block_size == s.prefix.blocks) {
    return;
  }
  index_.publish(s.request.cache_salt, {s.tokens.data(), static_cast<size_t>(s.n_computed)},
                 s.cache, now, s.prefix, freed);
}

}  // namespace pagefold
