// One long answer: does the time per token stay flat, and does memory stop growing?
//
//   long_bench MODEL [tokens=32000] [window=1000] [kv=auto] [threads=0] [kv.KEY=VALUE ...]
//
// Prints one JSON object a window: tokens/s, the read bandwidth probed between two steps while the
// engine waits, their quotient (tokens per GB read), resident bytes, and the share of the time that
// went into scoring and moving.
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "long_answer.h"

namespace pagefold {
namespace {

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
    sink_ = sink_ + sums[0];
    return static_cast<double>(kBytes) / seconds_since(start) * 1e-9;
  }

 private:
  static constexpr size_t kBytes = size_t{512} << 20;
  int threads_;
  std::vector<uint64_t> words_;
  volatile uint64_t sink_ = 0;
};

// Stops for a look after each `window` of decode steps.
class Windows {
 public:
  Windows(int64_t window, int threads) : window_(window), bandwidth_(threads) {}

  void watch(const LongAnswer* answer) { answer_ = answer; }
  void before_step(int64_t step) {
    steps_ = step;
    if (step % window_ == 0) look();
  }

  void look() {
    const double seconds = seconds_since(last_);
    const EngineMetrics m = answer_ != nullptr ? answer_.load()->metrics() : EngineMetrics{};
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
  std::atomic<const LongAnswer*> answer_ = nullptr;
  int64_t window_, steps_ = 0;
  Bandwidth bandwidth_;
  double before_ = 0, scoring_ = 0, moving_ = 0;
  Clock::time_point last_ = Clock::now();
};

Status run(int argc, char** argv) {
  PF_ASSIGN(const LongOptions o, parse_long_options(argc, argv));
  Windows windows(o.window, o.threads());
  PF_ASSIGN(const std::unique_ptr<LongAnswer> answer,
            LongAnswer::start(o, o.tokens, [&](int64_t step) { windows.before_step(step); }));
  windows.watch(answer.get());
  return answer->wait();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
