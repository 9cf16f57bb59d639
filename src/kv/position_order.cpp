#include "kv/position_order.h"

#include <algorithm>
#include <array>

namespace pagefold {
namespace {

constexpr int kDigitBits = 11;
constexpr uint64_t kDigits = uint64_t{1} << kDigitBits;

// One pass of a radix sort: stable by the digit of the position at bit `shift`.
void sort_by_digit(const std::vector<uint64_t>& from, int shift, std::vector<uint64_t>& to) {
  std::array<uint32_t, kDigits> at = {};
  for (const uint64_t key : from) ++at[key >> shift & (kDigits - 1)];
  uint32_t before = 0;
  for (uint32_t& n : at) {
    const uint32_t here = n;
    n = before;
    before += here;
  }
  for (const uint64_t key : from) to[at[key >> shift & (kDigits - 1)]++] = key;
}

}  // namespace

void sort_by_position(std::vector<uint64_t>& keys) {
  const auto before = [](uint64_t a, uint64_t b) { return a >> 32 < b >> 32; };
  if (std::is_sorted(keys.begin(), keys.end(), before)) return;
  const uint64_t largest = *std::max_element(keys.begin(), keys.end()) >> 32;
  std::vector<uint64_t> other(keys.size());
  for (int bit = 0; bit < 32 && largest >> bit != 0; bit += kDigitBits) {
    sort_by_digit(keys, 32 + bit, other);
    keys.swap(other);
  }
}

}  // namespace pagefold
