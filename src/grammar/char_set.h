// Sets of Unicode characters as sorted ranges. Surrogates (U+D800 ... U+DFFF) are never members:
// they are no characters and have no UTF-8 form.
#pragma once

#include <cstdint>
#include <vector>

namespace pagefold::grammar {

struct CharRange {
  uint32_t first, last;  // inclusive
};

class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::vector<CharRange> ranges);  // any order, overlaps allowed
  static CharSet all();
  static CharSet one(uint32_t c) { return CharSet({{c, c}}); }

  const std::vector<CharRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t c) const;
  CharSet inverted() const;
  CharSet united(const CharSet& other) const;
  CharSet intersected(const CharSet& other) const;
  CharSet without(const CharSet& other) const { return intersected(other.inverted()); }

 private:
  std::vector<CharRange> ranges_;  // sorted, disjoint, not adjacent
};

}  // namespace pagefold::grammar
