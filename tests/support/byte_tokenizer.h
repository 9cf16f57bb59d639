// A tokenizer of bytes with three special tokens, and a small ChatML template for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace pagefold::test {

// Ids 0..255 are bytes; then the special tokens.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kStart = 256, kEnd = 257, kBos = 258, kVocab = 259;
  explicit ByteTokenizer(bool with_bos = false) : with_bos_(with_bos) {
    for (int i = 0; i < 256; ++i) pieces_.push_back(std::string(1, static_cast<char>(i)));
    pieces_.insert(pieces_.end(), {"<|im_start|>", "<|im_end|>", "<|bos|>"});
  }
  std::vector<int32_t> encode(std::string_view text, bool add_special,
                              bool parse_special) const override {
    std::vector<int32_t> ids;
    if (add_special && with_bos_) ids.push_back(kBos);
    for (size_t i = 0; i < text.size();) {
      int32_t id = static_cast<unsigned char>(text[i]);
      for (int32_t s = kStart; parse_special && s < kVocab; ++s) {
        if (text.substr(i).starts_with(piece(s))) id = s;
      }
      ids.push_back(id);
      i += piece(id).size();
    }
    return ids;
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    return skip_special && is_special(id) ? std::string() : piece(id);
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string out;
    for (const int32_t id : ids) out += token_bytes(id, skip_special);
    return out;
  }
  const std::string& piece(int32_t id) const override {
    return pieces_.at(static_cast<size_t>(id));
  }
  bool is_special(int32_t id) const override { return id >= kStart; }
  int32_t find_piece(std::string_view p) const override {
    for (int32_t i = 0; i < kVocab; ++i) {
      if (piece(i) == p) return i;
    }
    return -1;
  }
  int32_t vocab_size() const override { return kVocab; }
  int32_t bos() const override { return with_bos_ ? kBos : -1; }
  int32_t eos() const override { return kEnd; }
  bool adds_bos() const override { return with_bos_; }
  bool strips_first_space() const override { return false; }

 private:
  bool with_bos_;
  std::vector<std::string> pieces_;
};

inline constexpr std::string_view kChatMl =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace pagefold::test
