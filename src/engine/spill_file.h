// Where the caches of paused sequences lie: one file without a name, so that a process that dies,
// however it dies, leaves nothing behind. Space is handed out in extents and given back to the disk
// when it is free. Not thread-safe: the engine thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace pagefold {

class SpillFile {
 public:
  // A piece of the file; its space is free again when the last owner lets go. Outlived by the file.
  class Extent {
   public:
    Extent(SpillFile& file, uint64_t offset, uint64_t bytes)
        : file_(file), offset_(offset), bytes_(bytes) {}
    Extent(const Extent&) = delete;
    Extent& operator=(const Extent&) = delete;
    ~Extent() { file_.release(offset_, bytes_); }
    uint64_t bytes() const { return bytes_; }
    // [at, at + data.size()) of the extent. kResourceExhausted: the disk is full.
    Status write(uint64_t at, std::span<const std::byte> data);
    Status read(uint64_t at, std::span<std::byte> data) const;

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

 private:
  SpillFile(int fd, uint64_t most_bytes) : fd_(fd), most_(most_bytes) {}
  void release(uint64_t offset, uint64_t bytes);

  const int fd_;
  const uint64_t most_;
  uint64_t used_ = 0, end_ = 0;
  std::map<uint64_t, uint64_t> holes_;  // offset -> bytes, before end_, none adjacent
};

}  // namespace pagefold
