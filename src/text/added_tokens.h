// Tokens that are found in a text before it is tokenized: the longest at the leftmost place wins,
// as in Hugging Face tokenizers.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pagefold {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false, normalized = false;  // normalized: looked for after normalisation
  bool lstrip = false, rstrip = false;       // takes the white space beside it
  bool single_word = false;                  // only between characters that are no letters
};

class AddedTokenMatcher {
 public:
  // Contents over 512 bytes are refused: they bound the work a place in the text costs.
  Status add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  struct Part {
    size_t begin, end;  // bytes of the text
    int32_t id;         // -1: ordinary text
  };
  // Cuts the text into parts. skip_special: special tokens are text like any other.
  void split(std::string_view text, bool skip_special, std::vector<Part>& parts) const;

 private:
  // The longest token at pos: its index, or -1.
  int32_t longest_at(std::string_view text, size_t pos) const;

  std::vector<AddedToken> tokens_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> token_of_{-1};              // a node's token; node 0 is the root
  std::array<bool, 256> starts_{};
};

}  // namespace pagefold
