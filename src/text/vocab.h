// A vocabulary: ids, pieces and kinds. The only header of text/ that lower-level code (the model
// loader) includes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagefold {

enum class TokenKind : uint8_t { normal, unknown, control, user_defined, unused, byte };

struct VocabEntry {
  std::string piece;  // as the file writes it (byte-level BPE: mapped characters; SentencePiece:
                      // U+2581 for spaces)
  float score = 0;    // SentencePiece log-probability or merge rank
  TokenKind kind = TokenKind::normal;
};

// What a tokenizer is built from when it comes from a GGUF file.
struct GgufTokenizerSpec {
  std::string model;  // "gpt2", "llama", "t5"
  std::string pre;    // name of the pre-tokenizer; "" when the file has none
  std::vector<VocabEntry> tokens;
  std::vector<std::string> merges;  // "a b"
  int32_t bos = -1, eos = -1, eot = -1, unk = -1, pad = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = true, remove_extra_whitespaces = false;
  bool has_add_bos = false;          // the file said so
  std::string precompiled_charsmap;  // t5/unigram normaliser bytes
};

}  // namespace pagefold
