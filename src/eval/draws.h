// The random numbers of one made-up case: they depend on the seed and the case alone.
#pragma once

#include "base/random.h"

namespace pagefold::eval {

class Draws {
 public:
  Draws(uint64_t seed, int64_t i) : key_(seed * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(i)) {}
  // Uniform in [0, n).
  int64_t below(int64_t n) {
    return static_cast<int64_t>(uniform01(key_, draw_++) * static_cast<double>(n));
  }
  bool chance(double p) { return uniform01(key_, draw_++) < p; }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_, draw_ = 0;
};

}  // namespace pagefold::eval
