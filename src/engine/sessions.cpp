#include "engine/sessions.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/compression.h"
#include "kv/schedule.h"

namespace pagefold {
namespace {

// Spans of a prompt as a client counts its tokens, in positions of a sequence with hidden ones.
std::vector<KeepSpan> with_hidden(const std::vector<KeepSpan>& spans,
                                  const std::vector<KeepSpan>& hidden) {
  std::vector<KeepSpan> out;
  for (KeepSpan s : spans) {
    for (const KeepSpan& h : hidden) {
      const int64_t n = h.end - h.begin;
      if (s.begin >= h.begin) {
        s.begin += n;
        s.end += n;
      } else if (s.end > h.begin) {
        out.push_back({s.begin, h.begin});
        s = {h.end, s.end + n};
      }
    }
    out.push_back(s);
  }
  return out;
}

// Tokens at the end of a prompt where a template may begin a thought, if its suffix is not known.
constexpr int64_t kLongestOpening = 8;

}  // namespace

int64_t SessionStore::hidden_tokens(const Sequence& s) {
  int64_t n = 0;
  for (const KeepSpan& h : s.hidden) n += h.end - h.begin;
  return n;
}

KeepSpan thought_of(const Sequence& s) {
  const Request::Thinking& t = s.request.thinking;
  if (t.close < 0) return {};
  const int64_t suffix = s.request.suffix_begin;
  const int64_t turn = suffix > 0 && suffix < s.n_prompt
                           ? suffix
                           : std::max<int64_t>(0, s.n_prompt - kLongestOpening);
  const auto first = s.tokens.begin();
  const auto end = first + s.n_computed;
  auto close = end;
  for (auto it = first + std::min(turn, s.n_computed); it != end; ++it) {
    if (*it == t.close) close = it;
  }
  if (close == end) return {};
  auto open = std::find(first + turn, close, t.open);
  if (open == close) open = std::min(close, first + s.n_prompt);
  do {
    ++close;
  } while (close != end && std::find(t.blanks.begin(), t.blanks.end(), *close) != t.blanks.end());
  return {open - first, close - first};
}

std::vector<int32_t> visible_tokens(const Sequence& s) {
  std::vector<int32_t> out;
  int64_t at = 0;
  const auto copy_to = [&](int64_t end) {
    out.insert(out.end(), s.tokens.begin() + at, s.tokens.begin() + std::max(at, end));
  };
  for (const KeepSpan& h : s.hidden) {
    copy_to(h.begin);
    at = h.end;
  }
  copy_to(s.n_computed);
  return out;
}

SessionStore::SessionStore(const EngineConfig& config, const CacheShape& shape, const KvModel& kv,
                           BlockPool& pool, uint64_t block_bytes)
    : config_(config), shape_(shape), kv_(kv), pool_(pool) {
  uint64_t bytes = config.session_bytes;
  if (bytes == 0) bytes = pool.total() * block_bytes / 4;
  most_blocks_ = static_cast<int64_t>(bytes / block_bytes);
}

SessionStore::~SessionStore() { PF_CHECK(kept_.empty(), "the sessions ended with blocks"); }

SessionStore::Place SessionStore::find(const Sequence& s) {
  return std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) {
    return k.sequence->session == s.session &&
           k.sequence->request.cache_salt == s.request.cache_salt;
  });
}

void SessionStore::drop(Place place, std::vector<BlockId>& freed) {
  count(*place->sequence, false);
  place->sequence->cache.free_all(pool_, freed);
  kept_.erase(place);
}

void SessionStore::count(const Sequence& s, bool in) {
  if (holders_.empty()) holders_.resize(pool_.total());
  s.cache.collect_blocks(ids_, ids_filled_);
  for (const BlockId b : ids_) {
    uint32_t& holders = holders_[b];
    if (in && holders++ == 0) ++blocks_;
    if (!in && --holders == 0) --blocks_;
  }
}

void SessionStore::keep(std::unique_ptr<Sequence> s, Clock::time_point now,
                        std::vector<BlockId>& freed) {
  if (const Place old = find(*s); old != kept_.end()) drop(old, freed);
  if (s->cache.held_blocks() > most_blocks_) {
    log::info("{}: its session is not kept: {} blocks, all sessions may have {}", s->request.id,
              s->cache.held_blocks(), most_blocks_);
    s->cache.free_all(pool_, freed);
    return;
  }
  // Nothing of the answer stays but the tokens whose keys are here.
  s->tokens.resize(static_cast<size_t>(s->n_computed));
  s->tokens.shrink_to_fit();
  s->generation.reset();
  s->matcher.reset();
  s->request.grammar.reset();
  count(*s, true);
  kept_.push_back({std::move(s), now});
  while (blocks() > most_blocks_) {
    ++counts_.reclaimed;
    drop(kept_.begin(), freed);
  }
}

// Empty: `s` may go on from it.
std::string SessionStore::why_not(const Sequence& kept, const Sequence& s) const {
  if (s.request.sampling.prompt_logprobs) return "prompt_logprobs needs every row of the prompt";
  if (kept.session_words != s.session_words) return "other kv options than the turn before";
  const std::vector<int32_t> ids = visible_tokens(kept);
  const auto [mine, theirs] =
      std::mismatch(ids.begin(), ids.end(), s.tokens.begin(), s.tokens.end());
  if (mine != ids.end()) {
    return fmt::format("the prompt differs from the conversation at token {}", mine - ids.begin());
  }
  if (static_cast<int64_t>(ids.size()) >= s.n_prompt) return "the prompt has nothing new";
  const int64_t n_prompt = s.n_prompt + hidden_tokens(kept);
  if (n_prompt + s.max_tokens > config_.max_model_len) {
    return "with the thoughts of earlier turns it is longer than the context";
  }
  int64_t most =
      peak_blocks(*s.plan, kv_, shape_, n_prompt, s.max_tokens, config_.max_num_batched_tokens);
  if (s.plan->prefill_evict) {
    // What the turn before had not evicted yet, and a chunk before that can happen.
    const int64_t rows = std::min(n_prompt - kept.n_computed, s.plan->prefill_chunk);
    int64_t blocks = 0;
    for (int t = 0; t < shape_.n_tables(); ++t) {
      blocks += blocks_of(kept.cache.tables()[t].len + rows, shape_.block_size);
    }
    most = std::max(most, blocks);
  }
  return most <= pool_.total() ? "" : "the pool cannot hold it with what the turn before kept";
}

const Sequence* SessionStore::match(Sequence& s, std::vector<BlockId>& freed) {
  if (s.session.empty()) return nullptr;
  const Place place = find(s);
  if (place == kept_.end()) {
    if (s.session_note.empty()) s.session_note = "new";
    return nullptr;
  }
  const std::string reason = why_not(*place->sequence, s);
  if (reason.empty()) return place->sequence.get();
  s.session_note = "reread: " + reason;
  ++counts_.reread;
  drop(place, freed);
  return nullptr;
}

void SessionStore::adopt(Sequence& s, std::vector<BlockId>& freed) {
  const Place place = find(s);
  PF_CHECK(place != kept_.end(), "a session that was not matched");
  Sequence& old = *place->sequence;
  const auto seen = static_cast<int64_t>(visible_tokens(old).size());
  // What was dropped stays part of the sequence: positions go on from the tokens that were
  // computed.
  const int64_t more = old.n_computed - seen;
  s.tokens.insert(s.tokens.begin(), old.tokens.begin(), old.tokens.end());
  s.tokens.erase(s.tokens.begin() + old.n_computed, s.tokens.begin() + old.n_computed + seen);
  s.n_prompt += more;
  if (s.request.suffix_begin > 0) s.request.suffix_begin += more;
  s.hidden = old.hidden;
  if (more > 0 && !s.plan->keep.empty()) {
    KvPlan plan = *s.plan;
    plan.keep = with_hidden(plan.keep, s.hidden);
    s.asked_plan = s.plan;
    s.plan = std::make_shared<const KvPlan>(std::move(plan));
  }
  old.cache.fork(pool_, s.cache);
  if (old.compression) {
    s.compression = std::move(old.compression);
    const int64_t suffix = s.request.suffix_begin;
    s.compression->next_turn(s.plan, s.n_prompt, suffix > 0 ? suffix : s.n_prompt);
  }
  s.n_computed = old.n_computed;
  s.prefix = old.prefix;
  s.publishes = old.publishes;
  s.cached_tokens = seen;
  s.session_note = "continued";
  ++counts_.continued;
  counts_.tokens += static_cast<uint64_t>(seen);
  drop(place, freed);
}

bool SessionStore::drop_oldest(std::vector<BlockId>& freed, const Sequence* but) {
  for (auto k = kept_.begin(); k != kept_.end(); ++k) {
    if (k->sequence.get() == but) continue;
    ++counts_.reclaimed;
    drop(k, freed);
    return true;
  }
  return false;
}

void SessionStore::expire(Clock::time_point now, std::vector<BlockId>& freed) {
  while (!kept_.empty() && next_expiry() <= now) {
    ++counts_.expired;
    drop(kept_.begin(), freed);
  }
}

Clock::time_point SessionStore::next_expiry() const {
  if (kept_.empty()) return Clock::time_point::max();
  return kept_.front().used + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(config_.session_ttl_s));
}

void SessionStore::clear(std::vector<BlockId>& freed) {
  while (!kept_.empty()) drop(kept_.begin(), freed);
}

}  // namespace pagefold
