#include "eval/forced.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "engine/config.h"

namespace pagefold::eval {
namespace {

constexpr int64_t kPromptRows = 256, kScoredRows = 64;  // most of a step; logits are of the latter

uint32_t blocks_for(const CacheShape& shape, int64_t tokens) {
  const int64_t table = (tokens + shape.block_size - 1) / shape.block_size;
  return static_cast<uint32_t>(table * shape.n_tables());
}

// Blocks in use at each of the next rows, added up: the rows come at once here, in an engine one by
// one.
double block_rows(const SequenceCache& cache, int64_t rows) {
  const int64_t size = cache.shape().block_size;
  auto sum = static_cast<double>(cache.held_blocks() * rows);
  for (int t = 0; t < cache.shape().n_tables(); ++t) {
    const int64_t len = cache.tables()[t].len, held = (len + size - 1) / size;
    for (int64_t j = 1; j <= rows; ++j)
      sum += static_cast<double>((len + j + size - 1) / size - held);
  }
  return sum;
}

}  // namespace

ForcedModel::ForcedModel(EngineSetup setup, int64_t most_tokens)
    : setup_(std::move(setup)),
      kv_(kv_model(setup_.model.network->shape(), setup_.config.block_size)),
      shape_(cache_shape(setup_.config, setup_.model.network->shape())),
      pool_(blocks_for(shape_, most_tokens)),
      runner_(kv_, *setup_.model.network, pool_) {
  pool_.log_taken(&taken_);
}

Result<std::unique_ptr<ForcedModel>> ForcedModel::open(const EngineOptions& options,
                                                       int64_t most_tokens) {
  EngineOptions own = options;
  own.kv = {};
  own.max_model_len = most_tokens + 1;
  own.max_num_seqs = 1;
  PF_ASSIGN(EngineSetup setup, load_for_engine(own));
  std::unique_ptr<ForcedModel> m(new ForcedModel(std::move(setup), most_tokens));
  LanguageModel& network = *m->setup_.model.network;
  KvShape kv =
      kv_shape(network.shape(), m->setup_.config.kv_format, m->shape_.block_size, m->pool_.total());
  kv.huge_pages = m->setup_.config.kv_huge_pages;
  m->block_bytes_ = network.block_bytes(kv);
  PF_TRY(network.init(kv, {static_cast<int>(kPromptRows), 1, static_cast<int>(kScoredRows)}));
  m->logits_.resize(static_cast<size_t>(kScoredRows * network.shape().vocab_size));
  return m;
}

Result<std::shared_ptr<const KvPlan>> ForcedModel::plan(const KvOptions& words,
                                                        int64_t n_prompt) const {
  KvLimits limits;
  limits.allow_off = limits.allow_offline = true;
  limits.calibration = setup_.config.find_calibration;
  limits.calibration_names = setup_.config.calibration_names;
  PF_ASSIGN(KvPlan plan, parse_kv_options(words, {}, kv_, limits, n_prompt));
  return std::make_shared<const KvPlan>(std::move(plan));
}

int64_t ForcedModel::rows_of_step(const Sequence& s, int64_t end, const ForcedHooks& hooks) const {
  const bool prompt = s.n_computed < s.n_prompt;
  int64_t rows = end - s.n_computed;
  if (prompt) {
    rows = std::min({rows, s.n_prompt - s.n_computed, kPromptRows});
  } else {
    rows = s.plan->quest_tokens > 0 ? 1 : std::min(rows, kScoredRows);
    if (hooks.stop_every > 0)
      rows = std::min(rows, hooks.stop_every - (s.n_computed - s.n_prompt) % hooks.stop_every);
  }
  if (s.compression) rows = std::min(rows, s.compression->rows_to_stop());
  return rows;
}

void ForcedModel::give_back() {
  std::erase_if(freed_, [&](BlockId b) { return pool_.owners(b) > 0; });
  std::erase_if(taken_, [&](BlockId b) { return pool_.owners(b) == 0; });
  if (!freed_.empty()) setup_.model.network->blocks_freed(freed_);
  // A failure to commit ahead is none: pages are then committed as they are written.
  if (!taken_.empty()) setup_.model.network->blocks_taken(taken_).IgnoreError();
  freed_.clear();
  taken_.clear();
}

void ForcedModel::step(Sequence& s, int64_t rows, const ForcedHooks& hooks) {
  const int64_t first = s.n_computed;
  PF_CHECK(s.cache.reserve(pool_, rows), "the pool holds the longest text");
  give_back();
  const SeqSignals* signals = begin_signals(s, rows);
  SeqSignals observed;
  if (hooks.observe && !s.compression) {
    observed.observe = hooks.observe(first, rows);
    if (observed.observe != nullptr) signals = &observed;
  }
  positions_.resize(static_cast<size_t>(rows));
  std::iota(positions_.begin(), positions_.end(), first);
  const int64_t scored = std::max(first, s.n_prompt - 1);
  wanted_.clear();
  for (int64_t r = scored; hooks.logits && r < first + rows; ++r)
    wanted_.push_back(static_cast<int32_t>(r - first));
  const SeqRows seq{0, static_cast<int>(rows), s.cache.tables(), signals};
  setup_.model.network->forward(
      {std::span(s.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
       positions_,
       {&seq, 1},
       wanted_},
      logits_.data());
  if (!wanted_.empty()) hooks.logits(scored, static_cast<int64_t>(wanted_.size()), logits_.data());
  s.n_computed += rows;
  s.cache.fill(rows);
  s.cache.leave_windows(pool_, freed_);
  end_signals(s, rows);
}

Result<ForcedUsage> ForcedModel::run(const std::shared_ptr<const KvPlan>& plan,
                                     const std::vector<int32_t>& tokens, int64_t n_prompt,
                                     const ForcedHooks& hooks) {
  const auto n = static_cast<int64_t>(tokens.size());
  PF_CHECK(n_prompt >= 1 && n_prompt < n, "a text is longer than its prompt");
  if (plan->quest_tokens > 0 && !page_bounds_) {
    PF_TRY(setup_.model.network->enable_page_bounds());
    page_bounds_ = true;
  }
  Request request;
  request.id = "eval";
  request.tokens.assign(tokens.begin(), tokens.begin() + n_prompt);
  Sequence s(shape_, std::move(request), n - n_prompt);
  s.tokens = tokens;
  s.plan = plan;
  if (plan->evicts())
    s.compression = std::make_unique<SequenceCompression>(kv_, plan, n_prompt, n_prompt, n);
  ForcedUsage usage;
  double block_sum = 0;
  const auto bytes = [&] { return uint64_t{pool_.used_count()} * block_bytes_; };
  while (s.n_computed < n - 1) {
    const int64_t since = s.n_computed - s.n_prompt;
    if (hooks.at_stop && since >= 0 && (hooks.stop_every == 0 || since % hooks.stop_every == 0))
      hooks.at_stop(s);
    const int64_t rows = rows_of_step(s, n - 1, hooks);
    if (since >= 0) block_sum += block_rows(s.cache, rows);
    step(s, rows, hooks);
    usage.bytes_peak = std::max(usage.bytes_peak, bytes());
    if (s.n_computed == n - 1) break;  // an engine retires a sequence before it compacts
    if (s.compression && hooks.before_compaction && s.compression->due(s.cache))
      hooks.before_compaction(*s.compression);
    runner_.run(
        s, freed_, [this] { give_back(); }, [] { return false; });
    give_back();
  }
  give_back();
  if (hooks.at_stop) hooks.at_stop(s);
  usage.bytes_end = bytes();
  usage.bytes_mean = n - 1 > n_prompt ? block_sum * static_cast<double>(block_bytes_) /
                                            static_cast<double>(n - 1 - n_prompt)
                                      : static_cast<double>(bytes());
  if (s.compression) usage.compactions = s.compression->counts().compactions;
  usage.kept_tokens = static_cast<double>(s.cache.held_slots()) / shape_.n_tables();
  s.cache.free_all(pool_, freed_);
  give_back();
  return usage;
}

void ForcedModel::read_cache(const Sequence& s, int table, int64_t n, std::vector<float>& keys,
                             std::vector<float>& values) {
  const auto dim = static_cast<size_t>(shape().head_dim);
  const auto slots = static_cast<size_t>(shape_.block_size);
  PF_CHECK(block_bytes_ == 2 * dim * slots * sizeof(float), "read_cache wants a float32 cache");
  keys.resize(static_cast<size_t>(n) * dim);
  values.resize(static_cast<size_t>(n) * dim);
  std::vector<float> block(2 * dim * slots);
  const TableView& view = s.cache.tables()[table];
  for (size_t t = 0; t < static_cast<size_t>(n); ++t) {
    if (t % slots == 0) {
      const BlockId id = view.blocks[t / slots];
      setup_.model.network->save_blocks({&id, 1}, reinterpret_cast<std::byte*>(block.data()));
    }
    // Strips of 16 slots (kernels/paged.h): K [head_dim][16], then V [16][head_dim].
    const size_t strip = t % slots / 16, lane = t % 16;
    const float* base = block.data() + strip * 2 * dim * 16;
    for (size_t d = 0; d < dim; ++d) {
      keys[t * dim + d] = base[d * 16 + lane];
      values[t * dim + d] = base[16 * dim + lane * dim + d];
    }
  }
}

}  // namespace pagefold::eval
