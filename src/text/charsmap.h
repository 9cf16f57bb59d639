// SentencePiece's compiled normalisation rules: u32 length of a double-array trie (darts-clone
// units, little-endian), the trie, then the replacements, each ended by a zero byte.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

class CharsMap {
 public:
  static Result<std::shared_ptr<const CharsMap>> parse(std::string_view blob);
  // The longest rule at every place (SentencePiece).
  std::string normalize(std::string_view text) const;
  // By grapheme, the shortest rule a short grapheme begins with replaces it whole; otherwise
  // character by character (Hugging Face's Precompiled).
  std::string normalize_graphemes(std::string_view text) const;

 private:
  struct Rule {
    size_t length = 0;  // bytes it replaces; 0: none
    uint32_t offset = 0;
  };
  Rule find(std::string_view text, bool longest) const;
  std::string_view replacement(const Rule& rule) const;
  // Replaces text by the rule it begins with.
  bool transform(std::string_view text, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace pagefold
