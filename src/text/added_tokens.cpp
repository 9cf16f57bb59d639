#include "text/added_tokens.h"

#include <algorithm>

#include "text/char_class.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr size_t kMaxContent = 512;

bool ends_with_word(std::string_view text) {
  size_t pos = text.size();
  return pos > 0 && is_word_char(utf8_prev(text, pos));
}
bool starts_with_word(std::string_view text) {
  size_t pos = 0;
  return !text.empty() && is_word_char(utf8_next(text, pos));
}

}  // namespace

Status AddedTokenMatcher::add(AddedToken token) {
  if (token.content.empty()) return ok_status();
  if (token.content.size() > kMaxContent) {
    return bad_data("added token {} has {} bytes; at most {} are allowed", token.id,
                    token.content.size(), kMaxContent);
  }
  uint64_t node = 0;
  for (const char c : token.content) {
    const auto next = static_cast<uint32_t>(token_of_.size());
    const auto [it, fresh] = edges_.try_emplace(node << 8 | static_cast<unsigned char>(c), next);
    if (fresh) token_of_.push_back(-1);
    node = it->second;
  }
  starts_[static_cast<unsigned char>(token.content[0])] = true;
  token_of_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
  return ok_status();
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, size_t pos) const {
  int32_t best = -1;
  uint64_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto it = edges_.find(node << 8 | static_cast<unsigned char>(text[pos]));
    if (it == edges_.end()) break;
    node = it->second;
    if (token_of_[node] >= 0) best = token_of_[node];
  }
  return best;
}

void AddedTokenMatcher::split(std::string_view text, bool skip_special,
                              std::vector<Part>& parts) const {
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const int32_t found =
        starts_[static_cast<unsigned char>(text[pos])] ? longest_at(text, pos) : -1;
    if (found < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = pos, end = pos + token.content.size();
    pos = end;
    if (skip_special && token.special) continue;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      for (size_t at = begin; at > done && is_space(utf8_prev(text, at));) begin = at;
      begin = std::max(begin, done);
    }
    if (token.rstrip) {
      for (size_t at = end; at < text.size() && is_space(utf8_next(text, at));) end = at;
    }
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token.id});
    done = end;
    pos = std::max(pos, end);
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace pagefold
