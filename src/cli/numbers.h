// Numbers as people write them on a command line. Strict: the whole word must be the number.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

// A count or a size: digits, or digits with a suffix. k m g t are powers of 1000 and may follow a
// decimal (25.6k = 25600); K M G T are powers of 1024 and follow whole numbers only. No sign, no
// scientific notation. Errors say what would be right, and name the range.
Result<uint64_t> parse_human_count(std::string_view text, uint64_t low = 0,
                                   uint64_t high = std::numeric_limits<uint64_t>::max());

// An optional '-', digits. Errors name the range.
Result<int64_t> parse_integer(std::string_view text,
                              int64_t low = std::numeric_limits<int64_t>::min(),
                              int64_t high = std::numeric_limits<int64_t>::max());
Result<double> parse_real(std::string_view text);  // finite, decimal or scientific

// "1234567" -> "1,234,567".
std::string grouped(uint64_t value);
// "1.5 GiB", "640 KiB".
std::string human_bytes(double bytes);

}  // namespace pagefold
