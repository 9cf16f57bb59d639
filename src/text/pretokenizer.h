// Cuts a text into the pieces a model tokenizes one by one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace pagefold {

// A text and the pieces of it that are still wanted, in order.
struct Splits {
  std::string text;
  std::vector<TextSpan> spans;
  bool at_start = false;  // the first piece begins the whole text
};
using PreTokenizer = std::function<void(Splits&)>;

// What becomes of the matches of a pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Result<SplitBehavior> parse_split_behavior(std::string_view word);

// invert: the pattern tells what to keep instead of where to cut.
PreTokenizer split_by_pattern(std::shared_ptr<const Regex> pattern, SplitBehavior behavior,
                              bool invert);
// Every character of the class is a match of its own.
PreTokenizer split_by_class(bool (*in_class)(char32_t), SplitBehavior behavior);
PreTokenizer split_by_char(char32_t delimiter, SplitBehavior behavior);
// Words and runs of other characters; white space goes.
PreTokenizer split_words();

// Maps bytes to printable characters; pattern: cut by it first, may be null.
PreTokenizer byte_level(std::shared_ptr<const Regex> pattern, bool add_prefix_space);
std::shared_ptr<const Regex> gpt2_pattern();

enum class PrependScheme { first, never, always };
// Spaces become `replacement`, which also starts each piece when split is set.
PreTokenizer metaspace(std::string replacement, PrependScheme scheme, bool split);

}  // namespace pagefold
