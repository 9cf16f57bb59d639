#include "backend/cpu/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace pagefold::cpu {
namespace {

TEST(LastingMemory, PiecesAreZeroAlignedAndFollowEachOther) {
  LastingMemory memory;
  const std::byte* end = nullptr;
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100}, kHugePage - 256, kHugePage,
                             5 * kHugePage + 1, size_t{4096}}) {
    std::byte* const data = memory.take(bytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    if (end != nullptr) {
      EXPECT_EQ(data, end);
    }
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(data, 0xff, bytes);
    end = data + (bytes + 63) / 64 * 64;
  }
}

TEST(LastingMemory, APieceMayBeLargerThanARegion) {
  LastingMemory memory;
  std::byte* const first = memory.take(1000).value();
  const size_t bytes = (size_t{100} << 20) + 12345;
  std::byte* const large = memory.take(bytes).value();
  std::byte* const small = memory.take(1000).value();
  for (std::byte* at : {first, large, large + bytes - 1, small, small + 999}) *at = std::byte{1};
  EXPECT_EQ(large[bytes - 1], std::byte{1});
}

TEST(LastingMemory, WhatNoMachineHasIsRefused) {
  LastingMemory memory;
  const auto refused = memory.take(size_t{1} << 60);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(message_of(refused.status()).find("no memory"), std::string::npos);
  EXPECT_TRUE(memory.take(64).ok());
}

}  // namespace
}  // namespace pagefold::cpu
