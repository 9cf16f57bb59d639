// Anonymous page-aligned memory, zero at first, given back on destruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pagefold::cpu {

constexpr size_t kSmallPage = 4096, kHugePage = size_t{2} << 20;

class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  static Result<Pages> allocate(size_t bytes);
  // Address space without a promise of memory, aligned to `page`. kSmallPage: huge pages are
  // forbidden, or what is freed could not leave; kHugePage: they are asked for.
  static Result<Pages> reserve(size_t bytes, size_t page);
  // The same in huge pages, which must be made usable; until then the system counts nothing.
  static Result<Pages> reserve_unusable(size_t bytes);
  // at: in what reserve_unusable gave, as are the bytes; whole pages.
  static Status make_usable(std::byte* at, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  static Result<Pages> map(size_t bytes, size_t page, int protection, int flags);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of which nothing is freed before all of it: weights. One piece follows the other in huge
// pages, where the system gives them: a core fetches ahead no further than to the end of a page, so
// that small ones cost a tenth of the speed and more. Each of its few regions, of which every one
// is as large as all before, leaves less than one huge page unused.
class LastingMemory {
 public:
  // Zeros, 64-byte aligned.
  Result<std::byte*> take(size_t bytes);

 private:
  std::vector<Pages> regions_;
  size_t reserved_ = 0;                                                 // bytes of all regions
  std::byte *free_ = nullptr, *usable_end_ = nullptr, *end_ = nullptr;  // in the last region
};

// A growable float buffer, 64-byte aligned. Growth loses the contents.
class FloatBuffer {
 public:
  float* data() const { return reinterpret_cast<float*>(pages_.data()); }
  // At least n floats.
  Status ensure(size_t n);

 private:
  Pages pages_;
};

}  // namespace pagefold::cpu
