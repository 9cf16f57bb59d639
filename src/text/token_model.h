// The step from a piece of text to ids, and the vocabulary all its kinds share.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocab.h"

namespace pagefold {

// Ids, pieces and kinds, and pieces to ids. Ids may have holes (empty piece, kind unused).
// Immutable once built; the index refers to the strings of `entries`.
class Vocabulary {
 public:
  // The first of two equal pieces is the one that find() gives.
  explicit Vocabulary(std::vector<VocabEntry> entries);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  const VocabEntry& operator[](int32_t id) const { return entries_[static_cast<size_t>(id)]; }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  int32_t find(std::string_view piece) const;  // -1: none
  // Of "<0x00>" ... "<0xFF>"; -1 where absent.
  const std::array<int32_t, 256>& bytes() const { return bytes_; }
  size_t max_piece_bytes() const { return max_piece_bytes_; }
  // Never the result of encoding ordinary text.
  bool is_reserved(int32_t id) const {
    const TokenKind kind = (*this)[id].kind;
    return kind == TokenKind::control || kind == TokenKind::unknown;
  }

 private:
  std::vector<VocabEntry> entries_;
  absl::flat_hash_map<std::string_view, int32_t> index_;
  std::array<int32_t, 256> bytes_;
  size_t max_piece_bytes_ = 0;
};

// The value of a piece "<0xHH>", or -1.
int byte_piece_value(std::string_view piece);

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one valid UTF-8 piece. Thread-safe. A piece that surely makes ids longer
  // than `limit` may be left unmerged: ids is then longer than `limit`, too, but not what it would
  // be.
  virtual void encode(std::string_view piece, size_t limit, std::vector<int32_t>& ids) const = 0;

 protected:
  // Whether `symbols` pieces, each at least a byte of a token of at most max_piece_bytes, are too
  // many however they merge.
  static bool surely_above(size_t limit, size_t ids, size_t symbols, size_t max_piece_bytes) {
    return ids + symbols / std::max<size_t>(1, max_piece_bytes) > limit;
  }
};

}  // namespace pagefold
