// Anonymous page-aligned memory, zero at first, given back on destruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

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

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  static Result<Pages> map(size_t bytes, int flags);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
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
