// Small tokenizers for tests of what happens around the model.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pagefold::testing {

// A token is exactly one of these byte strings: `pieces[i]` has the id i, special ones as told.
class FixedTokens : public Tokenizer {
 public:
  explicit FixedTokens(std::vector<std::string> pieces, int32_t first_special = 1 << 30,
                       bool strips = false)
      : pieces_(std::move(pieces)), first_special_(first_special), strips_(strips) {}

  std::vector<int32_t> encode(std::string_view, bool, bool) const override { return {}; }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    return skip_special && is_special(id) ? "" : pieces_[static_cast<size_t>(id)];
  }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }
  const std::string& piece(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
  bool is_special(int32_t id) const override { return id >= first_special_; }
  int32_t find_piece(std::string_view) const override { return -1; }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return -1; }
  bool adds_bos() const override { return false; }
  bool strips_first_space() const override { return strips_; }

 private:
  std::vector<std::string> pieces_;
  int32_t first_special_;
  bool strips_;
};

}  // namespace pagefold::testing
