// Which pieces begin at a place of a text: a byte trie in flat arrays.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefold {

class PieceTrie {
 public:
  // Non-empty, distinct pieces and the values to report. Nodes: at most one a byte of the pieces.
  explicit PieceTrie(std::vector<std::pair<std::string_view, int32_t>> pieces);

  // fn(length, value) for every piece that text begins with at `pos`, shortest first.
  template <class F>
  void for_each_prefix(std::string_view text, size_t pos, F&& fn) const {
    if (pos >= text.size()) return;
    int32_t node = roots_[static_cast<unsigned char>(text[pos])];
    for (size_t at = pos + 1; node >= 0; ++at) {
      if (nodes_[node].value >= 0) fn(at - pos, nodes_[node].value);
      if (at >= text.size()) return;
      node = child(node, static_cast<unsigned char>(text[at]));
    }
  }

 private:
  struct Node {
    int32_t value;
    uint32_t first_child;
    uint16_t children;
    uint8_t label;
  };
  int32_t child(int32_t node, unsigned char label) const {
    uint32_t low = nodes_[node].first_child, high = low + nodes_[node].children;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].label < label) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool found =
        low < nodes_[node].first_child + nodes_[node].children && nodes_[low].label == label;
    return found ? static_cast<int32_t>(low) : -1;
  }

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_;
};

}  // namespace pagefold
