#include "api/special_pieces.h"

#include <algorithm>

namespace pagefold {

SpecialPieces::SpecialPieces(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id) && !tokenizer.piece(id).empty()) {
      pieces_.push_back(tokenizer.piece(id));
      starts_[static_cast<unsigned char>(pieces_.back()[0])] = true;
    }
  }
  std::sort(pieces_.begin(), pieces_.end());
}

// Narrows the sorted list byte by byte: a text full of near misses costs log(pieces) a byte.
size_t SpecialPieces::match(std::string_view text, size_t at) const {
  if (!starts_[static_cast<unsigned char>(text[at])]) return 0;
  auto low = pieces_.begin(), high = pieces_.end();
  size_t longest = 0;
  for (size_t depth = 0; low != high; ++depth) {
    if (low->size() == depth) {
      longest = depth;
      while (low != high && low->size() == depth) ++low;
      if (low == high) break;
    }
    if (at + depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    low = std::lower_bound(low, high, byte, [depth](const std::string& p, unsigned char b) {
      return static_cast<unsigned char>(p[depth]) < b;
    });
    high = std::upper_bound(low, high, byte, [depth](unsigned char b, const std::string& p) {
      return b < static_cast<unsigned char>(p[depth]);
    });
  }
  return longest;
}

bool SpecialPieces::occurs_in(std::string_view text) const {
  for (size_t i = 0; i < text.size(); ++i) {
    if (match(text, i) > 0) return true;
  }
  return false;
}

std::string SpecialPieces::mark(std::string_view text, std::string_view open,
                                std::string_view close) const {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = match(text, i);
    if (n == 0) {
      out += text[i++];
      continue;
    }
    out += open;
    out += text.substr(i, n);
    out += close;
    i += n;
  }
  return out;
}

}  // namespace pagefold
