#include "engine/queue.h"

#include <iterator>
#include <utility>

namespace pagefold {

Status RequestQueue::push(std::unique_ptr<Sequence> sequence) {
  {
    std::lock_guard lock(mutex_);
    if (waiting_ >= limit_) {
      return exhausted(
          "the queue is full: {} requests are waiting (--max-queued-requests {}); try again later",
          waiting_, limit_);
    }
    ++waiting_;
    sequence->arrival = next_arrival_++;
    arrived_.push_back(std::move(sequence));
  }
  changed_.notify_one();
  return ok_status();
}

void RequestQueue::poke() {
  {
    std::lock_guard lock(mutex_);
    poked_ = true;
  }
  changed_.notify_one();
}

void RequestQueue::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

bool RequestQueue::take(std::vector<std::unique_ptr<Sequence>>& out, Clock::time_point until) {
  std::unique_lock lock(mutex_);
  const auto news = [this] { return closed_ || poked_ || !arrived_.empty(); };
  if (until == Clock::time_point::max()) {
    changed_.wait(lock, news);
  } else if (until > Clock::time_point::min()) {
    changed_.wait_until(lock, until, news);
  }
  std::move(arrived_.begin(), arrived_.end(), std::back_inserter(out));
  arrived_.clear();
  poked_ = false;
  return !closed_;
}

void RequestQueue::left(int n) {
  std::lock_guard lock(mutex_);
  waiting_ -= n;
}

int RequestQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace pagefold
