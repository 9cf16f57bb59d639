// START READING HERE. One thread owns all sequences and the cache; step() is its story. Other
// threads reach it through the queue (submit), a flag (Generation::cancel) and a copy of its
// counters (metrics).
#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/batch.h"
#include "engine/compression.h"
#include "engine/config.h"
#include "engine/ending.h"
#include "engine/limits.h"
#include "engine/queue.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

namespace pagefold {
namespace {

constexpr int kReleaseSteps = 16;                      // between two releases
constexpr int64_t kReserveSlots = 128;                 // of every running sequence's tables
constexpr uint64_t kReleaseBytes = uint64_t{1} << 20;  // less is not worth system calls

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

struct EngineCore::Impl {
  Impl(LanguageModel& m, const EngineConfig& c, const PoolSize& size, uint64_t block_bytes_in);

  void loop();
  void step();
  void take_requests();
  void retire_cancelled();
  void sample(const StepPlan& plan);
  void choose_token(Sequence& s, const float* row);
  void add_prompt_logprobs(Sequence& s, int64_t row_index, const float* row);
  void advance(const StepPlan& plan);
  void compact();
  void count_compaction(Sequence& s);
  void copy_shared(const StepPlan& plan);
  void retire(std::unique_ptr<Sequence> s, FinishReason reason, std::string error = {});
  void publish_metrics();
  void emit();
  void give_back();
  void release_memory();
  // Seconds since the last call go to a stage.
  void lap(size_t stage);

  LanguageModel& model;
  const EngineConfig config;
  const CacheShape shape;
  const KvModel kv;
  const PoolSize size;
  const uint64_t block_bytes;
  const size_t vocab;
  const int max_logit_rows;

  BlockPool pool;
  RequestQueue queue;
  Scheduler scheduler;
  Batch batch;
  Sampler sampler;
  CompactionRunner compaction;
  bool page_bounds = false;         // kept from the first request of quest on
  std::unique_ptr<float[]> logits;  // [max_logit_rows][vocab], pages touched as used

  // What a step leaves for its end. Storage is kept.
  struct Finish {
    FinishReason reason = FinishReason::none;
    int32_t stop_token = -1;
    std::string error;
  };
  std::vector<std::unique_ptr<Sequence>> arrived, leaving;
  std::vector<std::pair<std::shared_ptr<Generation>, GenerationResult>> finished;
  std::vector<std::pair<Sequence*, Finish>> ended;  // of this step's rows
  std::vector<Generation*> changed;
  std::vector<BlockId> freed, taken;  // since the last give_back()
  int steps_since_release = 0;

  EngineMetrics counters;  // the engine thread's own
  Clock::time_point lap_start{};
  mutable std::mutex published_mutex;
  EngineMetrics published;
  std::thread thread;
};

EngineCore::Impl::Impl(LanguageModel& m, const EngineConfig& c, const PoolSize& s,
                       uint64_t block_bytes_in)
    : model(m),
      config(c),
      shape(cache_shape(c, m.shape())),
      kv(kv_model(m.shape(), c.block_size)),
      size(s),
      block_bytes(block_bytes_in),
      vocab(static_cast<size_t>(m.shape().vocab_size)),
      max_logit_rows(std::min(c.max_num_seqs + kExtraLogitRows, c.max_num_batched_tokens)),
      pool(s.n_blocks),
      queue(c.max_queued_requests),
      scheduler(config, shape, kv, pool, max_logit_rows),
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
  while (queue.take(arrived, scheduler.empty())) step();
  // Closed: everything that is left is cancelled.
  for (auto& s : arrived) scheduler.add(std::move(s));
  scheduler.take_if([](const Sequence&) { return true; }, leaving);
  for (auto& s : leaving) retire(std::move(s), FinishReason::cancelled);
  leaving.clear();
  emit();
}

void EngineCore::Impl::step() {
  lap_start = Clock::now();
  // 1. Newcomers join the line, cancelled sequences leave it and their blocks come back.
  take_requests();
  retire_cancelled();
  if (!scheduler.empty()) {
    // 2. Who computes how many rows; their blocks are reserved, or the youngest is paused.
    const StepPlan& plan = scheduler.plan(freed);
    give_back();
    queue.left(scheduler.newly_admitted());
    copy_shared(plan);
    batch.build(plan);
    lap(0);
    // 3. One forward pass over all rows: keys and values into the cache, logits out.
    model.forward(batch.view(), logits.get());
    lap(1);
    // 4. A token for every sequence that has all its rows.
    sample(plan);
    lap(2);
    // 5. Rows are committed, sequences that ended give their blocks back.
    advance(plan);
    // 6. Sequences over their budget are compacted; what they gave up may leave the process.
    compact();
    release_memory();
  }
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
  const int32_t token =
      sampler.sample({o, s.tokens, s.n_prompt, s.request.eos_token_ids, s.seed}, row);
  if (token < 0) {
    ended.push_back({&s, {FinishReason::error, -1, "the model gave no finite logit"}});
    return;
  }
  TokenEvent event{token, {}};
  if (o.logprobs) token_logprobs({row, vocab}, token, *o.logprobs, event.logprobs);
  s.generation->push(std::move(event));
  changed.push_back(s.generation.get());
  s.tokens.push_back(token);

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

  const bool end_token = !o.ignore_eos && contains(s.request.eos_token_ids, token);
  if (end_token || contains(o.stop_token_ids, token)) {
    ended.push_back({&s, {FinishReason::stop, token, {}}});
  } else if (s.n_generated() >= s.max_tokens) {
    ended.push_back({&s, {FinishReason::length, -1, {}}});
  }
}

void EngineCore::Impl::advance(const StepPlan& plan) {
  for (const StepPlan::Item& item : plan.items) {
    item.sequence->n_computed += item.rows;
    item.sequence->cache.commit(pool, item.rows, freed);
    end_signals(*item.sequence, item.rows);
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

void EngineCore::Impl::copy_shared(const StepPlan& plan) {
  for (const StepPlan::Item& item : plan.items) {
    const auto copies = item.sequence->cache.pending_copies();
    if (!copies.empty()) model.copy_blocks(copies);
  }
}

void EngineCore::Impl::compact() {
  scheduler.for_running([this](Sequence& s) {
    if (s.scheduled_rows == 0 || !s.compression) return;
    if (compaction.run(s, freed, [this] { give_back(); })) count_compaction(s);
  });
  give_back();
  counters.scoring_s = compaction.times().scored_s;
  counters.moving_s = compaction.times().moved_s;
}

// After a pause a sequence goes through its compactions again; they count once, as in its usage.
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

void EngineCore::Impl::retire(std::unique_ptr<Sequence> s, FinishReason reason, std::string error) {
  const auto now = Clock::now();
  GenerationResult result = end_of(*s, reason, block_bytes, model.page_bounds_bytes(), now);
  result.error = std::move(error);
  count_end(*s, result, now, counters);
  if (!result.error.empty()) log::error("{}: {}", s->request.id, result.error);
  if (!s->admitted) queue.left(1);
  s->cache.free_all(pool, freed);
  give_back();
  finished.emplace_back(std::move(s->generation), std::move(result));
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
  counters.blocks_used = pool.used_count();
  counters.kv_resident_bytes = model.kv_resident_bytes();
  counters.kv_saturated = model.kv_saturated();
  counters.kv_released_bytes = model.kv_memory().released_bytes;
  counters.logical_slots = counters.held_slots = counters.running_blocks = 0;
  scheduler.for_running([this](Sequence& s) {
    counters.logical_slots += s.n_computed * shape.n_tables();
    counters.held_slots += s.cache.held_slots();
    counters.running_blocks += s.cache.held_blocks();
  });
  std::lock_guard lock(published_mutex);
  published = counters;
}

void EngineCore::Impl::emit() {
  publish_metrics();
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
  const uint64_t block_bytes = model.block_bytes(kv);
  PF_ASSIGN(const PoolSize size, pool_size(config, m, block_bytes));
  kv.n_blocks = size.n_blocks;

  std::unique_ptr<EngineCore> engine(new EngineCore);
  engine->impl_ = std::make_unique<Impl>(model, config, size, block_bytes);
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

Status EngineCore::check(const Request& request) const { return resolve(request).status(); }

// The checked plan of a request.
Result<std::shared_ptr<const KvPlan>> EngineCore::resolve(const Request& request) const {
  const Impl& impl = *impl_;
  PF_TRY(check_request(request, impl.config, static_cast<int64_t>(impl.vocab)));
  const auto n_prompt = static_cast<int64_t>(request.tokens.size());
  PF_ASSIGN(std::shared_ptr<const KvPlan> plan,
            resolve_kv_plan(request.kv, impl.config, impl.kv, n_prompt));
  const int64_t needed =
      peak_blocks(*plan, impl.kv, impl.shape, n_prompt, resolved_max_tokens(request, impl.config),
                  impl.config.max_num_batched_tokens);
  if (needed > impl.pool.total()) {
    return bad_input(
        "the request may need {} cache blocks ({:.1f} MiB), but the whole pool has {} ({:.1f} "
        "MiB); ask for fewer tokens or a smaller KV budget",
        needed, static_cast<double>(static_cast<uint64_t>(needed) * impl.block_bytes) / (1 << 20),
        impl.pool.total(), static_cast<double>(impl.pool.total() * impl.block_bytes) / (1 << 20));
  }
  return plan;
}

Result<std::shared_ptr<Generation>> EngineCore::submit(Request request) {
  PF_ASSIGN(std::shared_ptr<const KvPlan> plan, resolve(request));
  const int64_t max_tokens = resolved_max_tokens(request, impl_->config);
  auto s = std::make_unique<Sequence>(impl_->shape, std::move(request), max_tokens);
  s->plan = std::move(plan);
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

EngineMetrics EngineCore::metrics() const {
  std::lock_guard lock(impl_->published_mutex);
  EngineMetrics copy = impl_->published;
  copy.waiting += impl_->queue.waiting();  // newcomers, as of now
  return copy;
}

int64_t EngineCore::kv_capacity_tokens() const { return impl_->size.capacity_tokens; }

}  // namespace pagefold
