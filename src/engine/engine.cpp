// START READING HERE. One thread owns all sequences and the cache; step() is its story. Other
// threads reach it through the queue (submit), a flag (Generation::cancel) and a copy of its
// counters (metrics).
#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/answer_watch.h"
#include "engine/ending.h"
#include "engine/engine_impl.h"
#include "engine/limits.h"
#include "grammar/token_grammar.h"

namespace pagefold {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

EngineCore::Impl::Impl(LanguageModel& m, const EngineConfig& c, const PoolSize& s,
                       uint64_t block_bytes_in, std::unique_ptr<SpillFile> spill)
    : model(m),
      config(c),
      shape(cache_shape(c, m.shape())),
      kv(kv_model(m.shape(), c.block_size)),
      size(s),
      block_bytes(block_bytes_in),
      vocab(static_cast<size_t>(m.shape().vocab_size)),
      max_logit_rows(std::min(c.max_num_seqs + kExtraLogitRows, c.max_num_batched_tokens)),
      pool(s.n_blocks),
      prefix(config, shape, block_bytes, pool),
      sessions(config, shape, kv, pool, block_bytes),
      pausing(m, pool, block_bytes, std::move(spill)),
      queue(c.max_queued_requests),
      scheduler(config, shape, kv, pool, prefix, sessions, pausing, max_logit_rows),
      batch(c.max_num_batched_tokens, c.max_num_seqs, max_logit_rows),
      sampler(m.shape().vocab_size),
      compaction(kv, m, pool),
      logits(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(max_logit_rows) * vocab)) {
  const auto n = static_cast<size_t>(c.max_num_seqs);
  ended.reserve(n);
  changed.reserve(n);
  freed.reserve(n * static_cast<size_t>(shape.n_tables()));
  taken.reserve(n * static_cast<size_t>(shape.n_tables()));
  pool.log_taken(&taken);
  counters.blocks_total = s.n_blocks;
  counters.kv_block_bytes = block_bytes;
  published = counters;
}

// --- the engine thread ---

void EngineCore::Impl::loop() {
  const auto idle_until = [this] {
    return scheduler.empty() ? std::min(prefix.index().next_expiry(), sessions.next_expiry())
                             : Clock::time_point::min();
  };
  while (queue.take(arrived, idle_until())) step();
  // Closed: everything that is left is cancelled.
  for (auto& s : arrived) scheduler.add(std::move(s));
  scheduler.take_if([](const Sequence&) { return true; }, leaving);
  for (auto& s : leaving) retire(std::move(s), FinishReason::cancelled);
  leaving.clear();
  sessions.clear(freed);
  prefix.index().clear(freed);
  give_back();
  emit();
}

void EngineCore::Impl::step() {
  lap_start = Clock::now();
  prefix.index().expire(lap_start, freed);
  sessions.expire(lap_start, freed);
  // 1. Newcomers join the line, cancelled sequences leave it and their blocks come back.
  take_requests();
  retire_cancelled();
  if (!scheduler.empty()) {
    // 2. Who computes how many rows; their blocks are reserved, or the youngest is paused. Those
    // that may go on get their bytes back.
    const StepPlan& plan = scheduler.plan(freed);
    give_back();
    queue.left(scheduler.newly_admitted());
    fill_restored(/*wait=*/plan.items.empty() && !scheduler.waits_for_compaction());
    if (!plan.items.empty()) {
      copy_shared(plan);
      batch.build(plan);
      lap(0);
      // 3. One forward pass over all rows: keys and values into the cache, logits out.
      model.forward(batch.view(), logits.get());
      lap(1);
      // 4. A token for every sequence that has all its rows.
      sample(plan);
      lap(2);
      // 5. Rows are committed, full blocks published, sequences that ended give their blocks back.
      advance(plan);
    }
    // 6. Sequences over their budget are compacted; what they gave up may leave the process.
    compact();
  }
  give_back();
  release_memory();
  // 7. Counters first, then the news: who hears of an end also sees the blocks returned.
  emit();
  lap(3);
}

void EngineCore::Impl::take_requests() {
  for (auto& s : arrived) {
    if (s->plan->quest_tokens > 0 && !page_bounds) {
      if (const Status enabled = model.enable_page_bounds(); !enabled.ok()) {
        retire(std::move(s), FinishReason::error, message_of(enabled));
        continue;
      }
      page_bounds = true;
      // Blocks filled before have none, so nobody who needs them may find them.
      prefix.index().clear(freed);
      scheduler.for_running([this](Sequence& other) { prefix.stop_publishing(other); });
      sessions.for_all([this](Sequence& other) { prefix.stop_publishing(other); });
    }
    scheduler.add(std::move(s));
  }
  arrived.clear();
}

void EngineCore::Impl::retire_cancelled() {
  scheduler.take_if([](const Sequence& s) { return s.generation->cancel_requested(); }, leaving);
  for (auto& s : leaving) retire(std::move(s), FinishReason::cancelled);
  leaving.clear();
}

void EngineCore::Impl::sample(const StepPlan& plan) {
  const float* row = logits.get();
  for (const StepPlan::Item& item : plan.items) {
    Sequence& s = *item.sequence;
    const int64_t last = s.next_pos() - 1;
    for (int64_t r = s.n_computed; r < s.n_computed + item.rows; ++r) {
      if (!s.wants_logits(r)) continue;
      if (r < s.n_prompt - 1) add_prompt_logprobs(s, r, row);
      if (r == last) choose_token(s, row);
      row += vocab;
    }
  }
}

void EngineCore::Impl::add_prompt_logprobs(Sequence& s, int64_t row_index, const float* row) {
  std::vector<TokenLogprob> entry;
  token_logprobs({row, vocab}, s.tokens[static_cast<size_t>(row_index) + 1],
                 *s.request.sampling.prompt_logprobs, entry);
  s.prompt_logprobs.push_back(std::move(entry));
}

void EngineCore::Impl::choose_token(Sequence& s, const float* row) {
  const SamplingOptions& o = s.request.sampling;
  const grammar::TokenMask* mask = s.matcher ? s.matcher->allowed() : nullptr;
  if (s.matcher && mask == nullptr) {
    ended.push_back({&s, {FinishReason::error, -1, "the grammar is too ambiguous to be followed"}});
    return;
  }
  const int32_t token = sampler.sample(
      {o, s.tokens, s.n_prompt, s.request.eos_token_ids, s.seed, mask ? mask->data() : nullptr},
      row);
  if (token == Sampler::kNothingAllowed) {
    // Only the end may come and min_tokens forbids it, or the vocabulary cannot write what must.
    const bool may_end = s.matcher->may_end();
    ended.push_back({&s,
                     {may_end ? FinishReason::stop : FinishReason::error, -1,
                      may_end ? "" : "no token of the model goes on in the grammar"}});
    return;
  }
  if (token < 0) {
    ended.push_back({&s, {FinishReason::error, -1, "the model gave no finite logit"}});
    return;
  }
  TokenEvent event{token, {}};
  if (o.logprobs) token_logprobs({row, vocab}, token, *o.logprobs, event.logprobs);
  s.generation->push(std::move(event));
  changed.push_back(s.generation.get());
  s.tokens.push_back(token);
  if (s.matcher) PF_CHECK(s.matcher->accept(token), "a token outside its mask was chosen");

  const auto now = Clock::now();
  if (!s.first_token) {
    s.first_token = now;
    counters.prompt_tokens += static_cast<uint64_t>(s.n_prompt);
    counters.ttft_s.observe(seconds_between(s.submitted, now));
  } else {
    counters.inter_token_s.observe(seconds_between(s.last_token, now));
  }
  s.last_token = now;
  ++counters.generation_tokens;

  const bool over = s.matcher && s.matcher->finished();  // nothing can follow, with ignore_eos too
  const bool end_token = (!o.ignore_eos || over) && contains(s.request.eos_token_ids, token);
  if (end_token || contains(o.stop_token_ids, token)) {
    ended.push_back({&s, {FinishReason::stop, token, {}}});
  } else if (over) {
    ended.push_back({&s, {FinishReason::stop, -1, {}}});
  } else if (s.request.watch && s.request.watch->ends_with(token)) {
    s.stopped = true;
    ended.push_back({&s, {FinishReason::stop, -1, {}}});
  } else if (s.n_generated() >= s.max_tokens) {
    ended.push_back({&s, {FinishReason::length, -1, {}}});
  }
}

void EngineCore::Impl::advance(const StepPlan& plan) {
  const auto now = Clock::now();
  for (const StepPlan::Item& item : plan.items) {
    Sequence& s = *item.sequence;
    s.n_computed += item.rows;
    s.cache.fill(item.rows);
    prefix.publish(s, now, freed);
    s.cache.leave_windows(pool, freed);
    end_signals(s, item.rows);
  }
  ++counters.steps;
  counters.iteration_tokens.observe(plan.rows);
  if (!ended.empty()) {
    const auto find = [this](const Sequence& s) {
      return std::find_if(ended.begin(), ended.end(),
                          [&s](const auto& e) { return e.first == &s; });
    };
    scheduler.take_if([&](const Sequence& s) { return find(s) != ended.end(); }, leaving);
    for (auto& s : leaving) {
      Finish& f = find(*s)->second;
      const int32_t stop_token = f.stop_token;
      retire(std::move(s), f.reason, std::move(f.error));
      finished.back().second.stop_token = stop_token;
    }
    leaving.clear();
    ended.clear();
  }
  give_back();
}

void EngineCore::Impl::retire(std::unique_ptr<Sequence> s, FinishReason reason, std::string error) {
  const auto now = Clock::now();
  GenerationResult result = end_of(*s, reason, block_bytes, model.page_bounds_bytes(), now);
  result.error = std::move(error);
  count_end(*s, result, now, counters);
  if (!result.error.empty()) log::error("{}: {}", s->request.id, result.error);
  if (!s->admitted) queue.left(1);
  prefix.leaving(*s, now);
  std::shared_ptr<Generation> generation = std::move(s->generation);
  if (!keep_session(s, reason)) s->cache.free_all(pool, freed);
  give_back();
  finished.emplace_back(std::move(generation), std::move(result));
}

void EngineCore::Impl::emit() {
  publish_metrics();
  if (state_watch.wanted()) state_watch.give(metrics_now(), scheduler, pool, shape);
  // Generations that ended in this step are kept alive by `finished` and notified there.
  for (auto& [generation, result] : finished) generation->finish(std::move(result));
  for (Generation* g : changed) g->notify();
  for (auto& [generation, result] : finished) generation->notify();
  changed.clear();
  finished.clear();
}

void EngineCore::Impl::lap(size_t stage) {
  const auto now = Clock::now();
  counters.stage_s[stage] += seconds_between(lap_start, now);
  lap_start = now;
}

// --- other threads ---

EngineCore::EngineCore() = default;

Result<std::unique_ptr<EngineCore>> EngineCore::start(LanguageModel& model,
                                                      const EngineConfig& config) {
  PF_CHECK(config.max_num_seqs >= 1 && config.max_num_batched_tokens >= config.max_num_seqs &&
               config.max_model_len >= 2 && config.max_queued_requests >= 1,
           "an engine config comes from resolve_config");
  const ModelShape& m = model.shape();
  // A wrong default policy is refused now, not with the first request.
  PF_TRY(resolve_kv_plan({}, config, kv_model(m, config.block_size), 0).status());
  KvShape kv = kv_shape(m, config.kv_format, config.block_size, 0);
  kv.huge_pages = config.kv_huge_pages;
  const uint64_t block_bytes = model.block_bytes(kv);
  PF_ASSIGN(const PoolSize size, pool_size(config, m, block_bytes));
  kv.n_blocks = size.n_blocks;

  std::unique_ptr<EngineCore> engine(new EngineCore);
  std::unique_ptr<SpillFile> spill;
  if (!config.spill_dir.empty()) {
    PF_ASSIGN(spill, SpillFile::create(config.spill_dir, config.spill_bytes));
  }
  engine->impl_ = std::make_unique<Impl>(model, config, size, block_bytes, std::move(spill));
  Impl& impl = *engine->impl_;
  PF_TRY(model.init(kv, {config.max_num_batched_tokens, config.max_num_seqs, impl.max_logit_rows}));
  log::info("CPU KV cache size: {} tokens", with_commas(size.capacity_tokens));
  log::info("Maximum concurrency for {} tokens per request: {:.2f}x",
            with_commas(config.max_model_len), size.concurrency);
  impl.thread = std::thread([&impl] { impl.loop(); });
  return engine;
}

EngineCore::~EngineCore() {
  if (impl_ == nullptr || !impl_->thread.joinable()) return;
  impl_->queue.close();
  impl_->thread.join();
}

Status EngineCore::check(const Request& request) const {
  Request plain = request;
  PF_TRY(take_session_words(plain.kv).status());
  return resolve(plain).status();
}

// The checked plan of a request.
Result<std::shared_ptr<const KvPlan>> EngineCore::resolve(const Request& request) const {
  const Impl& impl = *impl_;
  PF_TRY(check_request(request, impl.config, static_cast<int64_t>(impl.vocab)));
  if (request.grammar && request.grammar->vocabulary().size() < static_cast<int32_t>(impl.vocab)) {
    return bad_input("grammar: it was made for a smaller vocabulary than the model's");
  }
  const auto n_prompt = static_cast<int64_t>(request.tokens.size());
  PF_ASSIGN(std::shared_ptr<const KvPlan> plan,
            resolve_kv_plan(request.kv, impl.config, impl.kv, n_prompt));
  PF_TRY(check_footprint(*plan, impl.kv, impl.shape, n_prompt,
                         resolved_max_tokens(request, impl.config),
                         impl.config.max_num_batched_tokens, impl.pool.total(), impl.block_bytes));
  return plan;
}

Result<std::shared_ptr<Generation>> EngineCore::submit(Request request) {
  PF_ASSIGN(SessionWords session, take_session_words(request.kv));
  PF_ASSIGN(std::shared_ptr<const KvPlan> plan, resolve(request));
  const int64_t max_tokens = resolved_max_tokens(request, impl_->config);
  auto s = std::make_unique<Sequence>(impl_->shape, std::move(request), max_tokens);
  s->plan = std::move(plan);
  s->session = std::move(session.name);
  s->drop_thinking = session.drop_thinking;
  s->session_words = s->request.kv;
  s->session_words.erase("keep");  // may grow with the prompt
  if (s->request.grammar) s->matcher = std::make_shared<GrammarMatcher>(s->request.grammar);
  s->generation = std::make_shared<Generation>();
  const std::optional<uint64_t>& seed = s->request.sampling.seed;
  s->seed = seed ? *seed : random_seed();
  s->submitted = Clock::now();
  if (s->request.sampling.prompt_logprobs)
    s->prompt_logprobs.resize(1);  // nothing predicts token 0
  std::shared_ptr<Generation> generation = s->generation;
  PF_TRY(impl_->queue.push(std::move(s)));
  return generation;
}

const EngineConfig& EngineCore::config() const { return impl_->config; }

EngineMetrics EngineCore::metrics() const { return impl_->metrics_now(); }

EngineMetrics EngineCore::Impl::metrics_now() const {
  std::lock_guard lock(published_mutex);
  EngineMetrics copy = published;
  copy.waiting += queue.waiting();  // newcomers, as of now
  return copy;
}

void EngineCore::watch(std::function<void(std::shared_ptr<const EngineState>)> callback) {
  if (impl_->state_watch.ask(std::move(callback))) impl_->queue.poke();
}

int64_t EngineCore::kv_capacity_tokens() const { return impl_->size.capacity_tokens; }

}  // namespace pagefold
