// What becomes of a paused sequence's cache: its bytes go to the spill file and come back into
// other blocks, bit for bit. Where there is no room for them the sequence is computed again from
// its tokens, through the same compactions: slower, and the same answer.
//
// The engine's thread only copies: blocks to buffers, which the spill thread writes, and buffers
// that it has read to blocks, over as many steps as the file takes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "engine/spill_file.h"
#include "engine/spill_thread.h"
#include "model/model.h"

namespace pagefold {

class Pausing {
 public:
  struct Counts {
    uint64_t spilled = 0, recomputed = 0;  // pauses
    uint64_t written = 0, read = 0;        // bytes
  };

  // file: null: every paused sequence is computed again.
  Pausing(LanguageModel& model, BlockPool& pool, uint64_t block_bytes,
          std::unique_ptr<SpillFile> file);

  // Takes the blocks away from a sequence that is not part of a running step.
  void pause(Sequence& s, std::vector<BlockId>& freed);
  // A spilled sequence whose bytes, as it turned out, could not be written will be computed again.
  void give_up_unwritten(Sequence& s);
  // Gives a spilled sequence its blocks, those of the hit and others that are still without
  // contents. False: the pool is short.
  [[nodiscard]] bool take_blocks(Sequence& s, const PrefixIndex::Hit& hit);
  // Fills them, once the model knows that they are taken, as far as they were read by now; until
  // all are, s.spilled stays. wait: at least one piece. After an error: lost().
  Status fill_blocks(Sequence& s, bool wait);
  // The spilled bytes are gone: the sequence will be computed again.
  void lost(Sequence& s, std::vector<BlockId>& freed);

  // The last pause found no room in the file, and nothing has left it since, nor has everything
  // else ended.
  bool full();
  void nothing_runs() { full_ = false; }
  uint64_t used_bytes() const { return file_ ? file_->used_bytes() : 0; }
  Counts counts() const {
    Counts now = counts_;
    now.written = written_->load(std::memory_order_relaxed);
    return now;
  }

 private:
  Status spill(Sequence& s);
  void begin_filling(Sequence& s);
  void read_on(SpilledCache& away);
  void set_full(const std::string& why);

  LanguageModel& model_;
  BlockPool& pool_;
  const uint64_t block_bytes_;
  const std::unique_ptr<SpillFile> file_;
  const std::unique_ptr<SpillThread> thread_;  // ends before the file does
  std::vector<BlockId> ids_;
  std::vector<int32_t> filled_;
  uint64_t used_when_full_ = 0;
  bool full_ = false;
  Counts counts_;  // but for what was written: the spill thread counts that
  const std::shared_ptr<std::atomic<uint64_t>> written_ =
      std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace pagefold
