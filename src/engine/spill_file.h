// Where the caches of paused sequences lie: one file without a name, so that a process that dies,
// however it dies, leaves nothing behind. Space is handed out in extents and given back to the disk
// when it is free. Not thread-safe: the engine thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace pagefold {

class SpillFile {
 public:
  // Where an extent lies: for a thread that reads and writes it while the file is open. Whoever
  // writes must know that the extent was not given back and taken again in between.
  struct Place {
    int fd = -1;
    uint64_t offset = 0, bytes = 0;
    // [at, at + data.size()) of the extent. kResourceExhausted: the disk is full.
    Status write(uint64_t at, std::span<const std::byte> data) const;
    Status read(uint64_t at, std::span<std::byte> data) const;
  };

  // A piece of the file; its space is free again when the last owner lets go. Outlived by the file.
  class Extent {
   public:
    Extent(SpillFile& file, uint64_t offset, uint64_t bytes)
        : file_(file), offset_(offset), bytes_(bytes) {}
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    ~Extent() { file_.release(offset_, bytes_); }
    uint64_t bytes() const { return bytes_; }
    Place place() const { return {file_.fd_, offset_, bytes_}; }

   private:
    SpillFile& file_;
    const uint64_t offset_, bytes_;
  };

  // Makes the file in `folder`. most_bytes: what all extents may take together.
  static Result<std::unique_ptr<SpillFile>> create(const std::string& folder, uint64_t most_bytes);
  ~SpillFile();

  // kResourceExhausted: not within most_bytes.
  Result<std::unique_ptr<Extent>> take(uint64_t bytes);
  uint64_t used_bytes() const { return used_; }
  // Giving space back to the disk takes a while: `run` is called with that work and may do it
  // later, in order and before what is written there after it. Without, it is done at once.
  void give_back_by(std::function<void(std::function<void()>)> run) { run_ = std::move(run); }

 private:
  SpillFile(int fd, uint64_t most_bytes) : fd_(fd), most_(most_bytes) {}
  void release(uint64_t offset, uint64_t bytes);

  const int fd_;
  const uint64_t most_;
  std::function<void(std::function<void()>)> run_;
  uint64_t used_ = 0, end_ = 0;
  std::map<uint64_t, uint64_t> holes_;  // offset -> bytes, before end_, none adjacent
};

}  // namespace pagefold
