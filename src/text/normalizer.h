// Changes to a text before it is cut into pieces. All take and give valid UTF-8.
#pragma once

#include <memory>
#include <string>

#include "text/charsmap.h"
#include "text/pipeline.h"
#include "text/regex.h"

namespace pagefold {

enum class NormalForm { nfc, nfd, nfkc, nfkd };
Normalizer unicode_normalizer(NormalForm form);
// Character by character, so without the rule for a final sigma.
Normalizer lowercase_normalizer();
Normalizer prepend_normalizer(std::string prefix);  // leaves an empty text empty
Normalizer replace_normalizer(std::string from, std::string to);
Normalizer replace_normalizer(std::shared_ptr<const Regex> from, std::string to);
Normalizer strip_normalizer(bool left, bool right);  // white space
Normalizer strip_accents_normalizer();               // removes combining marks
Normalizer byte_level_normalizer();                  // bytes to printable characters
Normalizer precompiled_normalizer(std::shared_ptr<const CharsMap> map);
// SentencePiece's rules for machine translation: control characters go, odd spaces become spaces.
Normalizer nmt_normalizer();
struct BertRules {
  bool clean_text = true, chinese_chars = true, strip_accents = true, lowercase = true;
};
Normalizer bert_normalizer(const BertRules& rules);

// What SentencePiece does to a text: rules (may be null), spaces to U+2581.
struct SentencePieceRules {
  std::shared_ptr<const CharsMap> map;
  bool add_prefix = true;     // a space before a text that is not empty
  bool remove_extra = false;  // spaces at the ends and repeated ones
};
Normalizer sentencepiece_normalizer(SentencePieceRules rules);

}  // namespace pagefold
