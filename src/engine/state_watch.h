// Who wants to see the engine, and the picture they get. Costs the engine thread one relaxed load a
// step while nobody asks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/scheduler.h"
#include "engine/state.h"

namespace pagefold {

class StateWatch {
 public:
  using Callback = std::function<void(std::shared_ptr<const EngineState>)>;
  static constexpr int kMostCells = 4096;
  static constexpr int64_t kMostSequences = 256;  // in a picture
  static constexpr size_t kMostWaiters = 256;     // beyond: the last picture is given at once

  // --- other threads ---
  // The callback is called once, by the engine thread at the end of a step; it must not block.
  // True: the engine must be woken.
  [[nodiscard]] bool ask(Callback callback);

  // --- engine thread ---
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }
  void give(const EngineMetrics& metrics, Scheduler& scheduler, const BlockPool& pool,
            const CacheShape& shape);

 private:
  void paint(EngineState& state, Scheduler& scheduler, const BlockPool& pool,
             const CacheShape& shape);
  void add_blocks(const SequenceCache& cache, uint16_t owner, EngineState& state);

  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  // waiters_, last_
  std::vector<Callback> waiters_;
  std::shared_ptr<const EngineState> last_;

  // The engine thread's own, kept between pictures.
  uint64_t serial_ = 0;
  double not_before_ = 0;  // of the steady clock
  int64_t extent_ = 0;     // blocks
  std::vector<const SequenceCache*> caches_;
  std::vector<int32_t> slots_, most_, mine_;  // by cell: all, of the owner, of the sequence at work
};

}  // namespace pagefold
