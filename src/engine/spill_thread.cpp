#include "engine/spill_thread.h"

#include <chrono>
#include <utility>

#include "base/system.h"

namespace pagefold {
namespace {

// Without a task for so long, the buffers of those before are free, and not wanted soon.
constexpr std::chrono::milliseconds kRest{200};

}  // namespace

SpillThread::SpillThread(uint64_t most_held) : most_held_(most_held) {
  thread_ = std::thread([this] { loop(); });
}

SpillThread::~SpillThread() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SpillThread::post(uint64_t held, std::function<void()> task) {
  std::unique_lock lock(mutex_);
  if (held > 0) {
    changed_.wait(lock, [&] { return held_ == 0 || held_ + held <= most_held_; });
  }
  held_ += held;
  tasks_.push_back({held, std::move(task)});
  lock.unlock();
  changed_.notify_all();
}

void SpillThread::loop() {
  std::unique_lock lock(mutex_);
  const auto wanted = [&] { return closed_ || !tasks_.empty(); };
  bool worked = false;  // since memory was given back
  for (;;) {
    if (!worked) {
      changed_.wait(lock, wanted);
    } else if (!changed_.wait_for(lock, kRest, wanted)) {
      lock.unlock();
      return_free_memory();
      lock.lock();
      worked = false;
      continue;
    }
    if (tasks_.empty()) return;
    worked = true;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task.work();
    task.work = nullptr;  // its memory goes before it counts as gone
    lock.lock();
    held_ -= task.held;
    changed_.notify_all();
  }
}

void SpillTransfer::fail(std::string why) {
  {
    std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = std::move(why);
  }
  changed_.notify_all();
}

bool SpillTransfer::failed() const {
  std::lock_guard lock(mutex_);
  return !reason_.empty();
}

std::string SpillTransfer::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

void SpillTransfer::give(Piece piece) {
  {
    std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
  }
  changed_.notify_all();
}

bool SpillTransfer::take(Piece& piece) {
  std::lock_guard lock(mutex_);
  if (pieces_.empty()) return false;
  piece = std::move(pieces_.front());
  pieces_.pop_front();
  return true;
}

void SpillTransfer::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !pieces_.empty() || !reason_.empty(); });
}

}  // namespace pagefold
