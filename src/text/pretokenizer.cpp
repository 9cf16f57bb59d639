#include "text/pretokenizer.h"

#include "base/check.h"
#include "text/byte_map.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

struct Cut {
  TextSpan span;
  bool match;
};

// Joins cuts (which cover a piece without gaps) as the behaviour says.
void apply_behavior(std::vector<Cut>& cuts, SplitBehavior behavior, std::vector<TextSpan>& out) {
  const auto push = [&](TextSpan s) {
    if (s.end > s.begin) out.push_back(s);
  };
  switch (behavior) {
    case SplitBehavior::removed:
      for (const Cut& c : cuts) {
        if (!c.match) push(c.span);
      }
      return;
    case SplitBehavior::isolated:
      for (const Cut& c : cuts) push(c.span);
      return;
    case SplitBehavior::contiguous:
      for (size_t i = 0; i < cuts.size();) {
        TextSpan run = cuts[i].span;
        const bool match = cuts[i].match;
        for (++i; i < cuts.size() && cuts[i].match == match; ++i) run.end = cuts[i].span.end;
        push(run);
      }
      return;
    case SplitBehavior::merged_with_previous:
      for (size_t i = 0; i < cuts.size(); ++i) {
        TextSpan s = cuts[i].span;
        if (!cuts[i].match && i + 1 < cuts.size() && cuts[i + 1].match) s.end = cuts[++i].span.end;
        push(s);
      }
      return;
    case SplitBehavior::merged_with_next:
      for (size_t i = 0; i < cuts.size(); ++i) {
        TextSpan s = cuts[i].span;
        if (cuts[i].match && i + 1 < cuts.size() && !cuts[i + 1].match) s.end = cuts[++i].span.end;
        push(s);
      }
      return;
  }
}

// Cuts every span; find(piece, matches) reports matches relative to the piece.
template <class Find>
void cut_all(Splits& splits, SplitBehavior behavior, bool invert, Find&& find) {
  std::vector<TextSpan> out, matches;
  std::vector<Cut> cuts;
  out.reserve(splits.spans.size() * 2);
  const std::string_view text = splits.text;
  for (const TextSpan piece : splits.spans) {
    matches.clear();
    cuts.clear();
    find(text.substr(piece.begin, piece.end - piece.begin), matches);
    size_t done = piece.begin;
    for (const TextSpan m : matches) {
      const TextSpan at{piece.begin + m.begin, piece.begin + m.end};
      if (at.begin > done) cuts.push_back({{done, at.begin}, invert});
      cuts.push_back({at, !invert});
      done = at.end;
    }
    if (done < piece.end) cuts.push_back({{done, piece.end}, invert});
    apply_behavior(cuts, behavior, out);
  }
  splits.spans = std::move(out);
}

// Rebuilds the text piece by piece; write(index, piece, out) appends the new piece.
template <class Write>
void rewrite(Splits& splits, Write&& write) {
  std::string out;
  out.reserve(splits.text.size() + splits.text.size() / 2 + 8);
  const std::string_view text = splits.text;
  for (size_t i = 0; i < splits.spans.size(); ++i) {
    TextSpan& s = splits.spans[i];
    const size_t begin = out.size();
    write(i, text.substr(s.begin, s.end - s.begin), out);
    s = {begin, out.size()};
  }
  splits.text = std::move(out);
}

template <class Match>
PreTokenizer split_by_match(Match in_class, SplitBehavior behavior) {
  return [in_class, behavior](Splits& splits) {
    cut_all(splits, behavior, false, [&](std::string_view piece, std::vector<TextSpan>& matches) {
      for (size_t pos = 0; pos < piece.size();) {
        const size_t begin = pos;
        if (in_class(utf8_next(piece, pos))) matches.push_back({begin, pos});
      }
    });
  };
}

int word_class(char32_t c) { return is_word_char(c) ? 1 : is_space(c) ? 0 : 2; }

}  // namespace

Result<SplitBehavior> parse_split_behavior(std::string_view word) {
  if (word == "Removed" || word == "removed") return SplitBehavior::removed;
  if (word == "Isolated" || word == "isolated") return SplitBehavior::isolated;
  if (word == "MergedWithPrevious" || word == "merged_with_previous")
    return SplitBehavior::merged_with_previous;
  if (word == "MergedWithNext" || word == "merged_with_next")
    return SplitBehavior::merged_with_next;
  if (word == "Contiguous" || word == "contiguous") return SplitBehavior::contiguous;
  return unsupported("split behavior \"{}\" is not supported", word.substr(0, 60));
}

PreTokenizer split_by_pattern(std::shared_ptr<const Regex> pattern, SplitBehavior behavior,
                              bool invert) {
  return [pattern = std::move(pattern), behavior, invert](Splits& splits) {
    cut_all(splits, behavior, invert, [&](std::string_view piece, std::vector<TextSpan>& matches) {
      pattern->find_all(piece, matches);
    });
  };
}

PreTokenizer split_by_class(bool (*in_class)(char32_t), SplitBehavior behavior) {
  return split_by_match(in_class, behavior);
}
PreTokenizer split_by_char(char32_t delimiter, SplitBehavior behavior) {
  return split_by_match([delimiter](char32_t c) { return c == delimiter; }, behavior);
}

PreTokenizer split_words() {
  return [](Splits& splits) {
    cut_all(splits, SplitBehavior::removed, true,
            [](std::string_view piece, std::vector<TextSpan>& matches) {
              for (size_t pos = 0; pos < piece.size();) {
                const size_t begin = pos;
                const int kind = word_class(utf8_next(piece, pos));
                size_t end = pos;
                while (pos < piece.size() && word_class(utf8_next(piece, pos)) == kind) end = pos;
                pos = end;
                if (kind != 0) matches.push_back({begin, end});
              }
            });
  };
}

std::shared_ptr<const Regex> gpt2_pattern() {
  static const std::shared_ptr<const Regex> pattern = [] {
    auto compiled = Regex::compile(
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    PF_CHECK(compiled.ok());
    return *compiled;
  }();
  return pattern;
}

PreTokenizer byte_level(std::shared_ptr<const Regex> pattern, bool add_prefix_space) {
  return [pattern = std::move(pattern), add_prefix_space](Splits& splits) {
    if (add_prefix_space) {
      rewrite(splits, [](size_t, std::string_view piece, std::string& out) {
        if (!piece.starts_with(' ')) out += ' ';
        out += piece;
      });
    }
    if (pattern != nullptr) {
      cut_all(splits, SplitBehavior::isolated, false,
              [&](std::string_view piece, std::vector<TextSpan>& matches) {
                pattern->find_all(piece, matches);
              });
    }
    rewrite(splits, [](size_t, std::string_view piece, std::string& out) {
      append_byte_chars(piece, out);
    });
  };
}

PreTokenizer metaspace(std::string replacement, PrependScheme scheme, bool split) {
  return [replacement = std::move(replacement), scheme, split](Splits& splits) {
    const bool at_start = splits.at_start;
    rewrite(splits, [&](size_t i, std::string_view piece, std::string& out) {
      const bool wanted =
          scheme == PrependScheme::always || (scheme == PrependScheme::first && at_start && i == 0);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(replacement)) out += replacement;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement;
        } else {
          out += c;
        }
      }
    });
    if (!split) return;
    cut_all(splits, SplitBehavior::merged_with_next, false,
            [&](std::string_view piece, std::vector<TextSpan>& matches) {
              for (size_t at = 0; (at = piece.find(replacement, at)) != std::string_view::npos;
                   at += replacement.size()) {
                matches.push_back({at, at + replacement.size()});
              }
            });
  };
}

}  // namespace pagefold
