// Sums and products of sizes that may not fit: a value remembers that it overflowed instead of
// wrapping.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace pagefold::calc {

class Checked {
 public:
  // Sizes stay below 2^63, so that whoever reads them as signed numbers is right, too.
  static constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;

  Checked() = default;
  Checked(uint64_t v) : value_(v), bad_(v > kMost) {}                                // NOLINT
  Checked(int64_t v) : value_(v < 0 ? 0 : static_cast<uint64_t>(v)), bad_(v < 0) {}  // NOLINT
  Checked(int v) : Checked(static_cast<int64_t>(v)) {}                               // NOLINT

  Checked operator+(Checked o) const {
    Checked r;
    r.bad_ =
        __builtin_add_overflow(value_, o.value_, &r.value_) || r.value_ > kMost || bad_ || o.bad_;
    return r;
  }
  Checked operator*(Checked o) const {
    Checked r;
    r.bad_ =
        __builtin_mul_overflow(value_, o.value_, &r.value_) || r.value_ > kMost || bad_ || o.bad_;
    return r;
  }
  Checked& operator+=(Checked o) { return *this = *this + o; }
  bool ok() const { return !bad_; }
  uint64_t value() const { return value_; }  // of an ok() one
  // kInvalidArgument naming `what`.
  Result<uint64_t> get(std::string_view what) const {
    if (bad_) return bad_input("{}: beyond 2^63 bytes; no machine holds that", what);
    return value_;
  }

 private:
  uint64_t value_ = 0;
  bool bad_ = false;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace pagefold::calc
