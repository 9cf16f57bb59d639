#include "cli/numbers.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/integer_range.h"

namespace pagefold {
namespace {

struct Suffix {
  uint64_t factor = 1;
  int digits = 0;  // decimal digits the factor can absorb; 0: whole numbers only
};

std::optional<Suffix> suffix_of(char c) {
  switch (c) {
    case 'k':
      return Suffix{1000, 3};
    case 'm':
      return Suffix{1000000, 6};
    case 'g':
      return Suffix{1000000000, 9};
    case 't':
      return Suffix{1000000000000, 12};
    case 'K':
      return Suffix{1ull << 10, 0};
    case 'M':
      return Suffix{1ull << 20, 0};
    case 'G':
      return Suffix{1ull << 30, 0};
    case 'T':
      return Suffix{1ull << 40, 0};
    default:
      return std::nullopt;
  }
}

bool all_digits(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<uint64_t> digits_value(std::string_view text) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Nullopt: beyond 64 bits. fraction: no more digits than the suffix absorbs.
std::optional<uint64_t> scaled(std::string_view whole, std::string_view fraction, Suffix suffix) {
  const auto units = digits_value(whole);
  uint64_t value = 0;
  if (!units || __builtin_mul_overflow(*units, suffix.factor, &value)) return std::nullopt;
  if (fraction.empty()) return value;
  uint64_t rest = *digits_value(fraction);
  for (int i = static_cast<int>(fraction.size()); i < suffix.digits; ++i) rest *= 10;
  if (__builtin_add_overflow(value, rest, &value)) return std::nullopt;
  return value;
}

}  // namespace

Result<uint64_t> parse_human_count(std::string_view text, uint64_t low, uint64_t high) {
  const auto fault = [&](std::string_view why) { return bad_input("'{}': {}", text, why); };
  constexpr std::string_view kForm =
      "expected a number such as 4096, 32k (thousands) or 8K (1024s)";
  if (text.empty()) return fault(kForm);
  Suffix suffix;
  std::string_view number = text;
  const auto last = suffix_of(text.back());
  if (last) {
    suffix = *last;
    number.remove_suffix(1);
  }
  const size_t dot = number.find('.');
  const std::string_view whole = number.substr(0, dot);
  std::string_view fraction =
      dot == std::string_view::npos ? std::string_view() : number.substr(dot + 1);
  if (whole.empty() || !all_digits(whole) || !all_digits(fraction) ||
      (dot != std::string_view::npos && fraction.empty())) {
    return fault(kForm);
  }
  if (dot != std::string_view::npos && suffix.digits == 0) {
    if (!last) return fault("decimals need a suffix k, m, g or t");
    return fault(fmt::format("decimals go with '{}' (powers of 1000) only",
                             static_cast<char>(text.back() - 'A' + 'a')));
  }
  while (fraction.ends_with('0')) fraction.remove_suffix(1);
  if (fraction.size() > static_cast<size_t>(suffix.digits)) return fault("not a whole number");
  const auto value = scaled(whole, fraction, suffix);
  if (!value || *value < low || *value > high) return fault("must be " + integer_range(low, high));
  return *value;
}

Result<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size() || value < low ||
      value > high) {
    return bad_input("'{}': must be {}", text, integer_range(low, high));
  }
  return value;
}

Result<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value)) {
    return bad_input("'{}': expected a number", text);
  }
  return value;
}

std::string grouped(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

std::string human_bytes(double bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return bytes == std::floor(bytes) ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                                    : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace pagefold
