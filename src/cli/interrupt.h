// Ctrl-C while an answer is generated stops the answer, not the program.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace pagefold {

// Takes SIGINT and SIGTERM away from the process for its lifetime and hands it to a callback on its
// own thread. Make it before any other thread, so that they inherit the blocked signal.
class InterruptWatcher {
 public:
  InterruptWatcher();
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

  // What the signals do from now on. The callback runs under the watcher's lock: when set() has
  // returned, the former one is not running and will not run again.
  void set(std::function<void()> on_interrupt);

 private:
  void watch();
  std::mutex mutex_;
  std::function<void()> on_interrupt_;
  int signal_fd_ = -1, stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace pagefold
