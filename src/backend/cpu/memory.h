// Anonymous page-aligned memory, zero at first, given back on destruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace pagefold::cpu {

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
  // reserve_only: address space without a promise of memory; never huge pages, so that freed blocks
  // can really leave.
  static Result<Pages> allocate(size_t bytes, bool reserve_only = false);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
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
