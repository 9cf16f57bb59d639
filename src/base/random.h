// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
// The n-th number of a stream depends on (key, n) alone, so a request draws the same numbers
// whatever runs beside it.
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace pagefold {

// Four 32-bit words for one (key, counter).
constexpr std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low,
                                             uint64_t counter_high = 0) {
  std::array<uint32_t, 4> c{
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * c[0];
    const uint64_t b = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// A seed from the system's entropy.
inline uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// Uniform in [0, 1) with 53 random bits: draw `index` of stream `seed`.
constexpr double uniform01(uint64_t seed, uint64_t index) {
  const auto w = philox4x32(seed, index);
  const uint64_t bits = (static_cast<uint64_t>(w[0]) << 32) | w[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace pagefold
