// One long answer: does the time per token stay flat, and does memory stop growing?
//
//   long_bench MODEL [tokens=32000] [window=1000] [kv=auto] [threads=0] [kv.KEY=VALUE ...]
//
// Prints one JSON object a window: tokens/s, the read bandwidth probed between two steps while the
// engine waits, their quotient (tokens per GB read), resident bytes, and the share of the time that
// went into scoring and moving.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "api/loaded_model.h"
#include "base/log.h"
#include "base/system.h"
#include "base/threads.h"
#include "engine/engine.h"

namespace pagefold {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Reads more memory than any cache holds, over all threads.
class Bandwidth {
 public:
  explicit Bandwidth(int threads) : threads_(threads), words_(kBytes / 8, 1) {}

  double gb_per_s() {
    const auto start = Clock::now();
    std::vector<std::thread> all;
    std::vector<uint64_t> sums(static_cast<size_t>(threads_));
    const size_t share = words_.size() / static_cast<size_t>(threads_);
    for (int t = 0; t < threads_; ++t) {
      all.emplace_back([&, t] {
        const uint64_t* at = words_.data() + share * static_cast<size_t>(t);
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t i = 0; i + 32 <= share; i += 32) {
          __builtin_prefetch(at + i + 512), __builtin_prefetch(at + i + 520);
          __builtin_prefetch(at + i + 528), __builtin_prefetch(at + i + 536);
          for (size_t j = 0; j < 32; j += 4)
            a += at[i + j], b += at[i + j + 1], c += at[i + j + 2], d += at[i + j + 3];
        }
        sums[static_cast<size_t>(t)] = a + b + c + d;
      });
    }
    for (std::thread& t : all) t.join();
    sink_ += sums[0];
    return static_cast<double>(kBytes) / seconds_since(start) * 1e-9;
  }

 private:
  static constexpr size_t kBytes = size_t{512} << 20;
  int threads_;
  std::vector<uint64_t> words_;
  volatile uint64_t sink_ = 0;
};

uint64_t resident_bytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr) return 0;
  unsigned long size = 0, resident = 0;
  const int n = std::fscanf(f, "%lu %lu", &size, &resident);
  std::fclose(f);
  return n == 2 ? resident * 4096 : 0;
}

// Passes every call on; stops for a look after each `window` of decode steps.
class WatchedModel final : public LanguageModel {
 public:
  WatchedModel(LanguageModel& model, int64_t window, int threads)
      : model_(model), window_(window), bandwidth_(threads) {}

  void watch(const EngineCore* core) { core_ = core; }

  const ModelShape& shape() const override { return model_.shape(); }
  Status init(const KvShape& kv, const StepLimits& limits) override {
    return model_.init(kv, limits);
  }
  uint64_t block_bytes(const KvShape& kv) const override { return model_.block_bytes(kv); }
  void forward(const StepBatch& batch, float* logits) override {
    if (steps_ % window_ == 0) look();
    ++steps_;
    model_.forward(batch, logits);
  }
  void blocks_freed(std::span<const BlockId> b) override { model_.blocks_freed(b); }
  Status blocks_taken(std::span<const BlockId> b) override { return model_.blocks_taken(b); }
  void copy_blocks(std::span<const BlockCopy> c) override { model_.copy_blocks(c); }
  void score_tables(const KeyScoreQuery& q, const TableView* t, ScoredKeys* out) override {
    model_.score_tables(q, t, out);
  }
  void move_slots(const MovePlan& p, const TableView* t) override { model_.move_slots(p, t); }
  Status enable_page_bounds() override { return model_.enable_page_bounds(); }
  uint64_t release_kv(uint64_t reserve, uint64_t least) override {
    return model_.release_kv(reserve, least);
  }
  KvMemory kv_memory() const override { return model_.kv_memory(); }
  uint64_t weight_bytes() const override { return model_.weight_bytes(); }
  uint64_t kv_resident_bytes() const override { return model_.kv_resident_bytes(); }

  void look() {
    const double seconds = seconds_since(last_);
    const EngineMetrics m = core_ != nullptr ? core_->metrics() : EngineMetrics{};
    const uint64_t resident = resident_bytes();
    const double after = bandwidth_.gb_per_s();
    if (steps_ > 0) {
      const double rate = static_cast<double>(window_) / seconds;
      std::printf(
          "{\"tokens\": %ld, \"tokens_per_s\": %.1f, \"read_gb_per_s\": %.1f, "
          "\"tokens_per_gb\": %.2f, \"resident_mib\": %.1f, \"kv_mib\": %.1f, \"scoring\": %.4f, "
          "\"moving\": %.4f}\n",
          steps_, rate, after, rate / ((before_ + after) / 2),
          static_cast<double>(resident) / 1048576,
          static_cast<double>(m.kv_resident_bytes) / 1048576, (m.scoring_s - scoring_) / seconds,
          (m.moving_s - moving_) / seconds);
      std::fflush(stdout);
    }
    before_ = after, scoring_ = m.scoring_s, moving_ = m.moving_s;
    last_ = Clock::now();
  }

 private:
  LanguageModel& model_;
  const EngineCore* core_ = nullptr;
  int64_t window_, steps_ = 0;
  Bandwidth bandwidth_;
  double before_ = 0, scoring_ = 0, moving_ = 0;
  Clock::time_point last_ = Clock::now();
};

Status run(int argc, char** argv) {
  if (argc < 2) return bad_input("usage: long_bench MODEL [key=value ...]");
  EngineOptions options;
  options.model = argv[1];
  int64_t tokens = 32000, window = 1000;
  KvOptions kv;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t eq = std::min(word.find('='), word.size() - 1);
    const std::string key = word.substr(0, eq), value = word.substr(eq + 1);
    if (key.starts_with("kv."))
      kv[key.substr(3)] = value;
    else if (key == "tokens")
      tokens = std::stoll(value);
    else if (key == "window")
      window = std::max<int64_t>(1, std::stoll(value));
    else if (key == "kv")
      options.kv_cache_dtype = value;
    else if (key == "threads")
      options.threads = std::stoi(value);
    else
      return bad_input("unknown option '{}'", word);
  }
  log::set_level(log::Level::error);
  options.max_model_len = tokens + 64;
  options.allow_long_context = true;
  options.max_num_seqs = 1;
  PF_ASSIGN(const LoadedModel model, load_model(options));
  WatchedModel watched(*model.network, window,
                       options.threads > 0 ? options.threads : usable_cores());
  PF_ASSIGN(const EngineConfig config,
            resolve_config(options, watched.shape(), model.kv, available_memory()));
  PF_ASSIGN(const std::unique_ptr<EngineCore> core, EngineCore::start(watched, config));
  watched.watch(core.get());
  Request r;
  r.id = "long";
  r.kv = kv;
  r.tokens = {1, 28, 339, 12};
  r.sampling.temperature = 0;
  r.sampling.max_tokens = tokens;
  r.sampling.ignore_eos = true;
  PF_ASSIGN(const std::shared_ptr<Generation> g, core->submit(std::move(r)));
  std::vector<TokenEvent> events;
  while (!g->finished()) {
    g->wait();
    events.clear();
    g->poll(events);
  }
  if (g->result().reason != FinishReason::length)
    return bad_data("the answer ended early: {}", g->result().error);
  watched.look();
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  const pagefold::Status s = pagefold::run(argc, argv);
  if (s.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", pagefold::message_of(s).c_str());
  return 1;
}
