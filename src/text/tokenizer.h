// Text to token ids and back, equal to Hugging Face tokenizers / SentencePiece id for id.
// Immutable after construction; all methods are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/vocab.h"

namespace pagefold {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // add_special: what the model wants around a text (BOS ...). parse_special: special tokens
  // written in the text become their ids; false: they are ordinary characters (untrusted text).
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special,
                                      bool parse_special) const = 0;
  // The same, but where more than `limit` ids come of it, perhaps not all of them: still more than
  // `limit`, found without the work for the rest. Bounds what a hostile text costs.
  virtual std::vector<int32_t> encode_up_to(std::string_view text, bool add_special,
                                            bool parse_special, size_t limit) const {
    static_cast<void>(limit);
    return encode(text, add_special, parse_special);
  }
  // Bytes of one token in the middle of a text (may be half a character). Special tokens give "" if
  // skip_special.
  virtual std::string token_bytes(int32_t id, bool skip_special) const = 0;
  // The whole sequence as text: SentencePiece's leading space is dropped; invalid UTF-8 becomes
  // U+FFFD.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // The token as the vocabulary writes it.
  virtual const std::string& piece(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t find_piece(std::string_view piece) const = 0;  // -1: none
  virtual int32_t vocab_size() const = 0;
  virtual int32_t bos() const = 0;  // -1: none
  virtual int32_t eos() const = 0;
  virtual bool adds_bos() const = 0;
  // SentencePiece: the first piece of an answer loses its leading space when the text starts with
  // it.
  virtual bool strips_first_space() const = 0;
};

// tokenizer.json (Hugging Face). config: tokenizer_config.json text or "" (bos/eos names,
// add_bos_token).
Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json,
                                                       std::string_view config);
Result<std::unique_ptr<Tokenizer>> tokenizer_from_gguf(GgufTokenizerSpec spec);

}  // namespace pagefold
