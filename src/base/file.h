// Files: read-only maps and whole reads, with errors that name the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace pagefold {

// A private read-only map of a whole file. An empty file gives an empty span.
// A file that shrinks while mapped makes reads fault (SIGBUS), as with every mmap reader.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  static Result<MappedFile> open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel the pages are no longer wanted: they leave this process's RSS.
  void drop_pages() const;
  // The same for the whole pages inside [offset, offset + bytes), cut to the file: for loaders that
  // release a file as they go. Reading them again is allowed and brings them back.
  void drop_range(size_t offset, size_t bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// drop_range for a span that lies in a live MappedFile (a tensor's data). Any other memory is left
// alone, so that readers of in-memory bytes may call it too. Thread-safe.
void drop_mapped(std::span<const std::byte> bytes);

// The whole file as a string; more than max_bytes is an error before anything is read.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes);
// Writes beside the target, then renames: readers see the old or the new file, never half of one.
Status write_file_atomic(const std::filesystem::path& path, std::string_view content);

}  // namespace pagefold
