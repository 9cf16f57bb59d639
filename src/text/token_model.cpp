#include "text/token_model.h"

#include <algorithm>

namespace pagefold {

int byte_piece_value(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Vocabulary::Vocabulary(std::vector<VocabEntry> entries) : entries_(std::move(entries)) {
  bytes_.fill(-1);
  index_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::string& piece = entries_[i].piece;
    if (piece.empty()) continue;
    const auto id = static_cast<int32_t>(i);
    if (!index_.try_emplace(piece, id).second) continue;
    max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
    if (const int value = byte_piece_value(piece); value >= 0) bytes_[value] = id;
  }
}

int32_t Vocabulary::find(std::string_view piece) const {
  const auto it = index_.find(piece);
  return it == index_.end() ? -1 : it->second;
}

}  // namespace pagefold
