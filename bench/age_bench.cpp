// Does a token late in a long answer cost what an early one costs?
//
//   age_bench MODEL [tokens=32000] [young=4000] [window=1000] [kv=auto] [threads=0] [kv.KEY=VALUE
//   ...]
//
// Two engines of one process: an old answer runs to `tokens` less `window`, a young one to `young`.
// Then they take turns, 50 tokens each, until both have made `window` more. Whatever else the
// machine does meets both, so the median quotient of neighbouring slices needs no bandwidth probe.
// Resident bytes are those of the whole process when the old answer is as long as the young one,
// and when it has come to the turns: no other engine runs until then.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <vector>

#include "bench/bandwidth.h"
#include "long_answer.h"

namespace pagefold {
namespace {

constexpr int64_t kSlice = 50;
enum { kYoung = 0, kOld = 1 };

using bench::median;

class Turns {
 public:
  Turns(int64_t young, int64_t old, int64_t window) : begin_{young, old}, window_(window) {}

  // Blocks the answer's engine while it is the other's turn.
  void before_step(int who, int64_t step) {
    if (who == kOld && (step == begin_[kYoung] || step == begin_[kOld]))
      resident_[step == begin_[kOld]] = resident_bytes();
    const int64_t at = step - begin_[who];
    if (at < 0 || at > window_ || at % kSlice != 0) return;
    std::unique_lock lock(mutex_);
    arrived_[who] = true;
    if (at > 0) {
      slices_[who].push_back(seconds_since(start_));
      turn_ = 1 - who;
    }
    done_[who] = at == window_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_[who] || (arrived_[1 - who] && may_go(who)); });
    start_ = Clock::now();
  }

  void wait_for(int who) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_[who]; });
  }

  void print() const {
    std::vector<double> ratios, ms[2];
    for (size_t i = 0; i < std::min(slices_[0].size(), slices_[1].size()); ++i) {
      ratios.push_back(slices_[kOld][i] / slices_[kYoung][i]);
      for (int w = 0; w < 2; ++w) ms[w].push_back(slices_[w][i] * 1e3 / kSlice);
    }
    std::printf(
        "{\"young_ms_per_token\": %.3f, \"old_ms_per_token\": %.3f, \"old_to_young\": %.3f, "
        "\"slices\": %zu, \"resident_mib_young\": %.1f, \"resident_mib_old\": %.1f}\n",
        median(ms[kYoung]), median(ms[kOld]), median(ratios), ratios.size(),
        static_cast<double>(resident_[0]) / 1048576, static_cast<double>(resident_[1]) / 1048576);
  }

 private:
  bool may_go(int who) const { return turn_ == who || done_[1 - who]; }

  int64_t begin_[2], window_;
  uint64_t resident_[2] = {};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_[2] = {}, done_[2] = {};
  int turn_ = kYoung;
  Clock::time_point start_;
  std::vector<double> slices_[2];  // seconds
};

Status run(int argc, char** argv) {
  PF_ASSIGN(const LongOptions o, parse_long_options(argc, argv));
  if (o.window % kSlice != 0 || o.tokens < o.young + 2 * o.window || o.young < 1)
    return bad_input("window must be a multiple of {}, tokens at least young + 2 x window", kSlice);
  // A step more than the window ends the last slice.
  Turns turns(o.young, o.tokens - o.window, o.window);
  PF_ASSIGN(
      const std::unique_ptr<LongAnswer> old,
      LongAnswer::start(o, o.tokens + 1, [&](int64_t step) { turns.before_step(kOld, step); }));
  turns.wait_for(kOld);
  PF_ASSIGN(const std::unique_ptr<LongAnswer> young,
            LongAnswer::start(o, o.young + o.window + 1,
                              [&](int64_t step) { turns.before_step(kYoung, step); }));
  PF_TRY(young->wait());
  PF_TRY(old->wait());
  turns.print();
  return ok_status();
}

}  // namespace
}  // namespace pagefold

int main(int argc, char** argv) {
  return pagefold::report_status([&] { return pagefold::run(argc, argv); });
}
