#include "grammar/regex.h"

#include <optional>

namespace pagefold::grammar {
namespace {

constexpr int kMaxGroups = 100;  // inside each other

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
uint32_t hex_value(char c) {
  return static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

const CharSet& digits() {
  static const CharSet set({{'0', '9'}});
  return set;
}
const CharSet& word_characters() {
  static const CharSet set({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}});
  return set;
}
const CharSet& spaces() {
  static const CharSet set({{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}});
  return set;
}
const CharSet& line_ends() {
  static const CharSet set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return set;
}

class RegexParser {
 public:
  RegexParser(Grammar& grammar, std::string_view pattern, const RegexOptions& options)
      : g_(grammar), text_(pattern), options_(options) {}

  Result<ExprId> parse() {
    PF_ASSIGN(const ExprId whole, alternatives(0));
    if (at_ < text_.size()) return fault("a closing bracket without its opening one");
    return whole;
  }

 private:
  Status fault(std::string_view what) const {
    return bad_input("the regular expression is not usable at byte {}: {}", at_, what);
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  ExprId character(const CharSet& set) {
    return options_.character ? options_.character(set) : g_.chars(set);
  }
  ExprId anything() { return g_.star(character(CharSet::all())); }

  Result<ExprId> alternatives(int depth) {
    std::vector<ExprId> branches;
    do {
      const bool anchored = depth == 0 && take("^");
      PF_ASSIGN(ExprId branch, sequence(depth));
      const bool closed = depth == 0 && take("$");
      if (closed && more() && peek() != '|') return fault("$ is understood at an end only");
      if (options_.search && depth == 0) {
        branch =
            g_.seq({anchored ? g_.empty() : anything(), branch, closed ? g_.empty() : anything()});
      }
      branches.push_back(branch);
    } while (take("|"));
    return g_.alt(std::move(branches));
  }

  Result<ExprId> sequence(int depth) {
    std::vector<ExprId> parts;
    while (more() && peek() != '|' && peek() != ')' && !(peek() == '$' && depth == 0)) {
      if (g_.full()) return fault("it is too large");
      PF_ASSIGN(const ExprId one, atom(depth));
      PF_ASSIGN(const ExprId repeated, repeats(one));
      parts.push_back(repeated);
    }
    return g_.seq(std::move(parts));
  }

  Result<ExprId> atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) {
      PF_ASSIGN(const CharSet set, bracket());
      return character(set);
    }
    if (take(".")) return character(line_ends().inverted());
    if (peek() == '^' || peek() == '$') return fault("^ and $ are understood at the ends only");
    if (peek() == '*' || peek() == '+' || peek() == '?') return fault("nothing to repeat");
    if (take("\\")) {
      PF_ASSIGN(const CharSet set, escape());
      return character(set);
    }
    PF_ASSIGN(const uint32_t c, plain_character());
    return character(CharSet::one(c));
  }

  Result<ExprId> group(int depth) {
    if (depth >= kMaxGroups) return fault("more than 100 groups inside each other");
    if (take("?")) {
      const bool named = take("P<") || (!text_.substr(at_).starts_with("<=") &&
                                        !text_.substr(at_).starts_with("<!") && take("<"));
      if (named) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return fault("the group's name has no end");
        at_ = end + 1;
      } else if (!take(":")) {
        return fault("looking ahead or behind, flags and other (?...) are not supported");
      }
    }
    PF_ASSIGN(const ExprId inside, alternatives(depth + 1));
    if (!take(")")) return fault("a group has no closing bracket");
    return inside;
  }

  // After an atom: its repeats, one or none.
  Result<ExprId> repeats(ExprId part) {
    int min = 1, max = 1;
    if (take("*")) {
      min = 0, max = kUnbounded;
    } else if (take("+")) {
      max = kUnbounded;
    } else if (take("?")) {
      min = 0;
    } else if (more() && peek() == '{') {
      ++at_;
      const auto low = number();
      if (!low) return fault("{ begins a repeat: {n}, {n,} or {n,m}; write \\{ for the character");
      min = max = *low;
      if (take(",")) {
        const auto high = number();
        max = high.value_or(kUnbounded);
      }
      if (!take("}")) return fault("a repeat has no closing bracket");
      if (max != kUnbounded && max < min) return fault("a repeat ends before it begins");
      if (min > Grammar::kMaxRepeat || max > Grammar::kMaxRepeat) {
        return fault("a repeat is counted to 100000 at most");
      }
    } else {
      return part;
    }
    take("?");  // lazy: the same texts match
    if (more() && peek() == '+') return fault("possessive repeats are not supported");
    if (more() && (peek() == '*' || peek() == '?')) return fault("a repeat of a repeat");
    return g_.repeat(part, min, max);
  }

  std::optional<int> number() {
    const size_t begin = at_;
    int value = 0;
    while (more() && peek() >= '0' && peek() <= '9') {
      value = value > Grammar::kMaxRepeat ? value : value * 10 + (peek() - '0');
      ++at_;
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }

  Result<uint32_t> plain_character() {
    const auto lead = static_cast<unsigned char>(peek());
    const size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (at_ + n > text_.size()) return fault("not UTF-8");
    uint32_t c = n == 1 ? lead : lead & (0x7Fu >> n);
    for (size_t i = 1; i < n; ++i) {
      const auto tail = static_cast<unsigned char>(text_[at_ + i]);
      if ((tail & 0xC0) != 0x80) return fault("not UTF-8");
      c = (c << 6) | (tail & 0x3F);
    }
    at_ += n;
    return c;
  }

  Result<uint32_t> hex(size_t low, size_t high) {
    uint32_t c = 0;
    size_t n = 0;
    for (; n < high && more() && is_hex(peek()); ++n) c = c * 16 + hex_value(text_[at_++]);
    if (n < low) return fault("hexadecimal digits are missing");
    return c;
  }

  // After "\": a set of one or more characters.
  Result<CharSet> escape() {
    if (!more()) return fault("a lone \\ at the end");
    const char c = text_[at_];
    switch (c) {
      case 'd':
        return step(digits());
      case 'D':
        return step(digits().inverted());
      case 'w':
        return step(word_characters());
      case 'W':
        return step(word_characters().inverted());
      case 's':
        return step(spaces());
      case 'S':
        return step(spaces().inverted());
      case 'n':
        return step(CharSet::one('\n'));
      case 't':
        return step(CharSet::one('\t'));
      case 'r':
        return step(CharSet::one('\r'));
      case 'f':
        return step(CharSet::one('\f'));
      case 'v':
        return step(CharSet::one('\v'));
      case '0':
        return step(CharSet::one(0));
      case 'x':
      case 'u':
        return hex_escape(c == 'x' ? 2 : 4);
      default:
        break;
    }
    if ((c >= '1' && c <= '9') || c == 'k') return fault("references to groups are not supported");
    if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z' || c == 'G') {
      return fault("boundaries are not supported");
    }
    if (c == 'p' || c == 'P') return fault("\\p{...} is not supported; list the characters");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fault("an unknown escape");
    PF_ASSIGN(const uint32_t plain, plain_character());
    return CharSet::one(plain);
  }
  CharSet step(CharSet set) {
    ++at_;
    return set;
  }
  Result<CharSet> hex_escape(size_t digit_count) {
    ++at_;
    const bool braces = take("{");
    PF_ASSIGN(const uint32_t c, hex(braces ? 1 : digit_count, braces ? 6 : digit_count));
    if (braces && !take("}")) return fault("\\u{ has no closing bracket");
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return fault("not a character");
    return CharSet::one(c);
  }

  // After "[".
  Result<CharSet> bracket() {
    const bool inverted = take("^");
    std::vector<CharRange> ranges;
    while (more() && peek() != ']') {
      PF_ASSIGN(const CharSet low, bracket_item());
      if (text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        if (!more()) break;
        PF_ASSIGN(const CharSet high, bracket_item());
        if (!single(low) || !single(high)) return fault("a range goes from character to character");
        const uint32_t first = low.ranges()[0].first, last = high.ranges()[0].first;
        if (first > last) return fault("a range ends before it begins");
        ranges.push_back({first, last});
      } else {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
      }
    }
    if (!take("]")) return fault("a class has no closing bracket");
    CharSet set(std::move(ranges));
    return inverted ? set.inverted() : set;
  }
  Result<CharSet> bracket_item() {
    if (take("\\")) {
      if (more() && peek() == 'b') return step(CharSet::one('\b'));
      return escape();
    }
    if (text_.substr(at_).starts_with("[:")) return fault("classes like [:alpha:]");
    PF_ASSIGN(const uint32_t c, plain_character());
    return CharSet::one(c);
  }
  static bool single(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  Grammar& g_;
  const std::string_view text_;
  const RegexOptions& options_;
  size_t at_ = 0;
};

}  // namespace

Result<ExprId> regex_expr(Grammar& grammar, std::string_view pattern, const RegexOptions& options) {
  if (pattern.size() > kMaxRegexBytes) {
    return bad_input("the regular expression has {} bytes, at most {} are accepted", pattern.size(),
                     kMaxRegexBytes);
  }
  return RegexParser(grammar, pattern, options).parse();
}

}  // namespace pagefold::grammar
