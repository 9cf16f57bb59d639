// Reads little-endian numbers and strings off the front of a span, refusing what is not there.
// Private to src/formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"

namespace pagefold {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  // false: not enough bytes, nothing is read.
  template <class T>
  [[nodiscard]] bool read(T& value) {
    static_assert(std::endian::native == std::endian::little);
    if (left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // u64 length, then that many bytes.
  Status read_string(std::string_view& value) {
    uint64_t length = 0;
    if (!read(length)) return bad_data("the file ends inside a string's length");
    if (length > left()) {
      return bad_data("a string of {} bytes, but the file has only {} more", length, left());
    }
    value = {reinterpret_cast<const char*>(bytes_.data()) + position_, static_cast<size_t>(length)};
    position_ += static_cast<size_t>(length);
    return ok_status();
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace pagefold
