// The bounded way from the I/O threads to the engine thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "engine/sequence.h"

namespace pagefold {

// Bounds all requests that were accepted and not yet admitted, those that the engine thread already
// took over included.
class RequestQueue {
 public:
  explicit RequestQueue(int limit) : limit_(limit) {}

  // Numbers the sequence in order of arrival. kResourceExhausted: the queue is full.
  Status push(std::unique_ptr<Sequence> sequence);
  // take() returns once without waiting: there is something else to do.
  void poke();
  // No more waiting: take() returns at once from now on.
  void close();

  // --- engine thread ---
  // Appends what arrived to `out`. Sleeps until something arrives, `until` or close(); time_point
  // min() does not sleep, max() has no end. False: closed.
  bool take(std::vector<std::unique_ptr<Sequence>>& out, Clock::time_point until);
  // `n` requests were admitted or ended before that.
  void left(int n);
  int waiting() const;

 private:
  const int limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Sequence>> arrived_;
  uint64_t next_arrival_ = 0;
  int waiting_ = 0;
  bool closed_ = false, poked_ = false;
};

}  // namespace pagefold
