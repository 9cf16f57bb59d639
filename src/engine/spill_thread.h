// The thread that reads and writes the spill file, so that nobody's next token waits for a disk.
// Tasks run one after another in the order they were posted: what is read comes after what was
// written there, and space that was given back is emptied before it is written again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace pagefold {

class SpillThread {
 public:
  // most_held: bytes that unfinished tasks may hold together; post() waits for room.
  explicit SpillThread(uint64_t most_held);
  ~SpillThread();  // after everything that was posted

  // held: bytes of memory that the task keeps until it is done; 0: never waits. Tasks must not
  // throw. When there is nothing more to do, what the allocator keeps of their buffers goes back to
  // the operating system: a pause holds many times the memory of a step.
  void post(uint64_t held, std::function<void()> task);

 private:
  struct Task {
    uint64_t held = 0;
    std::function<void()> work;
  };
  void loop();

  const uint64_t most_held_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t held_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

// A cache on its way to the file and back. The engine's thread and the spill thread share it.
class SpillTransfer {
 public:
  struct Piece {
    size_t first = 0, blocks = 0;        // of the blocks of the cache
    std::shared_ptr<std::byte[]> bytes;  // null: it could not be read
  };

  void fail(std::string why);  // the first reason stays
  bool failed() const;
  std::string reason() const;
  // Read pieces, in order.
  void give(Piece piece);
  bool take(Piece& piece);  // false: none is there now
  void wait();              // until one is there, or it failed

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::string reason_;
};

}  // namespace pagefold
