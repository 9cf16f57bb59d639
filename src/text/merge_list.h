// The one loop both kinds of BPE share: a linked list of symbols and a heap of mergeable pairs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pagefold {

struct Symbol {
  int32_t id;
  int32_t prev, next;   // -1: none
  uint32_t begin, end;  // bytes of the piece; begin == end: merged away
};

// Key: lower is better. Key must be totally ordered by <.
template <class Key>
struct MergeCandidate {
  Key key;
  int32_t left;
  int32_t joined;
  uint32_t begin, end;  // the bytes both cover: tells whether the candidate is still current
  uint32_t middle;
  bool operator<(const MergeCandidate& o) const {  // for a max-heap that pops the best
    return key != o.key ? o.key < key : o.left < left;
  }
};

// lookup(left symbol, right symbol, key&) -> joined id or -1. on_merge(joined, left, right) is told
// of every merge.
template <class Key, class Lookup, class OnMerge>
void merge_symbols(std::vector<Symbol>& symbols, std::vector<MergeCandidate<Key>>& heap,
                   Lookup&& lookup, OnMerge&& on_merge) {
  heap.clear();
  const auto consider = [&](int32_t left) {
    if (left < 0) return false;
    const Symbol& a = symbols[left];
    if (a.next < 0) return false;
    const Symbol& b = symbols[a.next];
    Key key;
    const int32_t joined = lookup(a, b, key);
    if (joined < 0) return false;
    heap.push_back({key, left, joined, a.begin, b.end, a.end});
    return true;
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const MergeCandidate<Key> best = heap.back();
    heap.pop_back();
    Symbol& a = symbols[best.left];
    if (a.begin == a.end || a.next < 0 || a.end != best.middle) continue;
    Symbol& b = symbols[a.next];
    if (a.begin != best.begin || b.end != best.end) continue;
    on_merge(best.joined, a, b);
    a.id = best.joined;
    a.end = b.end;
    a.next = b.next;
    if (b.next >= 0) symbols[b.next].prev = best.left;
    b.begin = b.end;
    if (consider(a.prev)) std::push_heap(heap.begin(), heap.end());
    if (consider(best.left)) std::push_heap(heap.begin(), heap.end());
  }
}

}  // namespace pagefold
