#include "grammar/grammar.h"

#include <algorithm>
#include <array>
#include <string>

namespace pagefold::grammar {
namespace {

struct Utf8 {
  std::array<unsigned char, 4> byte{};
  int n = 0;
};

Utf8 encode(uint32_t c) {
  if (c < 0x80) return {{static_cast<unsigned char>(c)}, 1};
  const auto tail = [c](int shift) {
    return static_cast<unsigned char>(0x80 | ((c >> shift) & 0x3F));
  };
  if (c < 0x800) return {{static_cast<unsigned char>(0xC0 | (c >> 6)), tail(0)}, 2};
  if (c < 0x10000) return {{static_cast<unsigned char>(0xE0 | (c >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<unsigned char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)}, 4};
}

// Alternatives of byte sequences for [first, last], all of one length: split where a leading part
// changes while the rest does not run over its whole range.
void split(Grammar& g, uint32_t first, uint32_t last, std::vector<ExprId>& out) {
  for (int bits = 6; bits <= 18; bits += 6) {
    const uint32_t low = (uint32_t{1} << bits) - 1;
    if ((first | low) == (last | low)) continue;  // the part above is the same
    if ((first & low) != 0) {
      split(g, first, first | low, out);
      split(g, (first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      split(g, first, (last & ~low) - 1, out);
      split(g, last & ~low, last, out);
      return;
    }
  }
  const Utf8 a = encode(first), b = encode(last);
  std::vector<ExprId> parts;
  for (size_t i = 0; i < static_cast<size_t>(a.n); ++i) {
    parts.push_back(g.bytes(byte_range(a.byte[i], b.byte[i])));
  }
  out.push_back(g.seq(std::move(parts)));
}

}  // namespace

ByteSet byte_range(unsigned first, unsigned last) {
  ByteSet set;
  for (unsigned b = first; b <= last; ++b) set.set(b);
  return set;
}

Grammar::Grammar() {
  exprs_.resize(2);
  exprs_[1].kind = Expr::Kind::never;
}

ExprId Grammar::add(Expr expr) {
  if (full()) return never();
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::bytes(const ByteSet& set) {
  if (set.none()) return never();
  if (full()) return never();
  const auto [it, fresh] = set_index_.try_emplace(set, static_cast<int32_t>(byte_sets_.size()));
  if (fresh) byte_sets_.push_back(set);
  return add({.kind = Expr::Kind::bytes, .index = it->second, .parts = {}});
}

ExprId Grammar::literal(std::string_view text) {
  std::vector<ExprId> parts;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    parts.push_back(bytes(byte_range(b, b)));
  }
  return seq(std::move(parts));
}

ExprId Grammar::chars(const CharSet& set) {
  ByteSet ascii;
  std::vector<ExprId> parts;
  for (const CharRange& r : set.ranges()) {
    for (uint32_t c = r.first; c <= r.last && c < 0x80; ++c) ascii.set(c);
    constexpr std::array<CharRange, 3> kLengths = {
        {{0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}}};
    for (const CharRange& length : kLengths) {
      const uint32_t first = std::max(r.first, length.first), last = std::min(r.last, length.last);
      if (first <= last) split(*this, first, last, parts);
    }
  }
  if (ascii.any()) parts.push_back(bytes(ascii));
  return alt(std::move(parts));
}

ExprId Grammar::seq(std::vector<ExprId> parts) {
  std::erase(parts, empty());
  if (std::find(parts.begin(), parts.end(), never()) != parts.end()) return never();
  if (parts.empty()) return empty();
  if (parts.size() == 1) return parts[0];
  return add({.kind = Expr::Kind::seq, .parts = std::move(parts)});
}

ExprId Grammar::alt(std::vector<ExprId> parts) {
  std::erase(parts, never());
  if (parts.empty()) return never();
  if (parts.size() == 1) return parts[0];
  return add({.kind = Expr::Kind::alt, .parts = std::move(parts)});
}

ExprId Grammar::repeat(ExprId part, int min, int max) {
  if (max == 0 || part == empty()) return empty();
  if (part == never()) return min == 0 ? empty() : never();
  if (min == 1 && max == 1) return part;
  return add({.kind = Expr::Kind::repeat, .min = min, .max = max, .parts = {part}});
}

ExprId Grammar::call(RuleId rule) {
  return add({.kind = Expr::Kind::rule, .index = rule, .parts = {}});
}

RuleId Grammar::declare() {
  rules_.push_back(-1);
  return static_cast<RuleId>(rules_.size() - 1);
}

ExprId Grammar::choice(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return choice_rest(texts, 0, 0);
}

// texts: sorted, different, equal in their first `from` bytes.
ExprId Grammar::choice_rest(std::span<const std::string> texts, size_t from, int depth) {
  if (texts.empty() || full()) return never();
  size_t shared = from;
  while (shared < texts.front().size() && shared < texts.back().size() &&
         texts.front()[shared] == texts.back()[shared]) {
    ++shared;
  }
  const ExprId head = literal(std::string_view(texts.front()).substr(from, shared - from));
  if (texts.size() == 1) return head;
  std::vector<ExprId> branches;
  for (size_t i = 0; i < texts.size();) {
    if (texts[i].size() == shared) {
      branches.push_back(empty());
      ++i;
      continue;
    }
    size_t end = i;
    while (end < texts.size() && texts[end][shared] == texts[i][shared]) ++end;
    // Beyond a few hundred beginnings of each other they are listed one by one.
    if (depth < 300) {
      branches.push_back(choice_rest(texts.subspan(i, end - i), shared, depth + 1));
    } else {
      for (size_t k = i; k < end; ++k) {
        branches.push_back(literal(std::string_view(texts[k]).substr(shared)));
      }
    }
    i = end;
  }
  return seq({head, call_of(alt(std::move(branches)))});
}

// State i: the last i characters read are the first i of `end` (Knuth, Morris, Pratt). One rule a
// state; each calls the next one last, so no depth is used up.
ExprId Grammar::until(std::string_view end) {
  const size_t n = end.size();
  std::vector<RuleId> states;
  for (size_t i = 0; i < n; ++i) states.push_back(declare());
  for (size_t i = 0; i < n; ++i) {
    std::vector<ByteSet> to(n);
    std::vector<ExprId> branches;
    for (unsigned b = 0; b < 128; ++b) {
      std::string seen(end.substr(0, i));
      seen += static_cast<char>(b);
      size_t k = std::min(seen.size(), n);
      while (k > 0 && !end.starts_with(std::string_view(seen).substr(seen.size() - k))) --k;
      if (k == n) {
        branches.push_back(bytes(byte_range(b, b)));
      } else {
        to[k].set(b);
      }
    }
    for (size_t k = 0; k < n; ++k) branches.push_back(seq({bytes(to[k]), call(states[k])}));
    const ExprId other = chars(CharSet({{0x80, 0x10FFFF}}));
    branches.push_back(seq({other, call(states[0])}));
    define(states[i], alt(std::move(branches)));
  }
  return call(states[0]);
}

}  // namespace pagefold::grammar
