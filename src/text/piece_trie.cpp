#include "text/piece_trie.h"

#include <algorithm>

namespace pagefold {

PieceTrie::PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces) {
  roots_.fill(-1);
  std::sort(pieces.begin(), pieces.end());
  struct Range {
    size_t begin, end, depth;
    int32_t node;  // -1: the root
  };
  // Level by level, so that the children of a node lie side by side.
  std::vector<Range> level{{0, pieces.size(), 0, -1}};
  while (!level.empty()) {
    std::vector<Range> next;
    for (const Range& r : level) {
      size_t at = r.begin;
      if (at < r.end && pieces[at].first.size() == r.depth) {
        if (r.node >= 0) nodes_[r.node].value = pieces[at].second;
        while (at < r.end && pieces[at].first.size() == r.depth) ++at;
      }
      if (r.node >= 0) nodes_[r.node].first_child = static_cast<uint32_t>(nodes_.size());
      while (at < r.end) {
        const auto label = static_cast<uint8_t>(pieces[at].first[r.depth]);
        size_t stop = at;
        while (stop < r.end && static_cast<uint8_t>(pieces[stop].first[r.depth]) == label) ++stop;
        const auto node = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({-1, 0, 0, label});
        if (r.node >= 0) {
          ++nodes_[r.node].children;
        } else {
          roots_[label] = node;
        }
        next.push_back({at, stop, r.depth + 1, node});
        at = stop;
      }
    }
    level = std::move(next);
  }
}

}  // namespace pagefold
