// Integers packed into 32-bit little-endian words: one bit stream, value i at bits [i * bits, ...).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pagefold {

// Word i of unaligned bytes.
inline uint32_t packed_word(const std::byte* words, int64_t i) {
  uint32_t value;
  std::memcpy(&value, words + i * 4, sizeof value);
  return value;
}

// Value i of a stream; bits: 1..16. Reads the next word only where the value straddles two.
inline int packed_value(const std::byte* words, int64_t i, int bits) {
  const int64_t at = i * bits;
  const auto shift = static_cast<unsigned>(at % 32);
  uint32_t value = packed_word(words, at / 32) >> shift;
  if (shift + static_cast<unsigned>(bits) > 32)
    value |= packed_word(words, at / 32 + 1) << (32 - shift);
  return static_cast<int>(value & ((1u << bits) - 1));
}

}  // namespace pagefold
