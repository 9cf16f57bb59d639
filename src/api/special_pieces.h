// The special tokens of a tokenizer as text, to find where untrusted text would forge one.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace pagefold {

class SpecialPieces {
 public:
  SpecialPieces() = default;
  explicit SpecialPieces(const Tokenizer& tokenizer);

  // Length of the longest special piece that starts at `at`; 0: none.
  size_t match(std::string_view text, size_t at) const;
  bool occurs_in(std::string_view text) const;
  // `text` with every special piece put between `open` and `close`.
  std::string mark(std::string_view text, std::string_view open, std::string_view close) const;

 private:
  std::vector<std::string> pieces_;  // sorted
  std::array<bool, 256> starts_{};
};

}  // namespace pagefold
