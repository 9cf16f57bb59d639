#include "grammar/char_set.h"

#include <algorithm>

namespace pagefold::grammar {
namespace {

constexpr uint32_t kLast = 0x10FFFF, kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

void append(std::vector<CharRange>& out, uint32_t first, uint32_t last) {
  if (first > last) return;
  if (!out.empty() && first <= out.back().last + 1) {
    out.back().last = std::max(out.back().last, last);
  } else {
    out.push_back({first, last});
  }
}

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CharRange& a, const CharRange& b) { return a.first < b.first; });
  std::vector<CharRange> merged;
  for (const CharRange& r : ranges) append(merged, r.first, std::min(r.last, kLast));
  for (const CharRange& r : merged) {
    if (r.first < kSurrogateFirst) {
      append(ranges_, r.first, std::min(r.last, kSurrogateFirst - 1));
    }
    if (r.last > kSurrogateLast) append(ranges_, std::max(r.first, kSurrogateLast + 1), r.last);
  }
}

CharSet CharSet::all() { return CharSet({{0, kLast}}); }

bool CharSet::contains(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CharRange& r) { return r.first <= c && c <= r.last; });
}

CharSet CharSet::inverted() const {
  std::vector<CharRange> out;
  uint32_t next = 0;
  for (const CharRange& r : ranges_) {
    if (r.first > next) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLast) out.push_back({next, kLast});
  return CharSet(std::move(out));
}

CharSet CharSet::united(const CharSet& other) const {
  std::vector<CharRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::intersected(const CharSet& other) const {
  std::vector<CharRange> out;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const uint32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) out.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return CharSet(std::move(out));
}

}  // namespace pagefold::grammar
