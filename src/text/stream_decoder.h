// Tokens to text as they come. Never emits half a character, never emits text that may still become
// a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace pagefold {

class StreamDecoder {
 public:
  struct Options {
    bool skip_special = true;
    std::vector<std::string> stop;
    bool include_stop = false;
    std::vector<int32_t> shown_special;  // special tokens that are text all the same
    bool at_text_start = false;  // the answer begins a text: SentencePiece's first space is dropped
  };
  StreamDecoder(const Tokenizer& tokenizer, Options options);

  // Text that is final after this token ("" if it must wait). After stopped() everything returns
  // "".
  std::string push(int32_t token);
  // The rest at the end of the answer; a lone half character becomes U+FFFD (which may complete a
  // stop string).
  std::string finish();
  bool stopped() const { return !matched_.empty(); }
  const std::string& stop_string() const { return matched_; }

 private:
  std::string release(size_t half);
  const Tokenizer& tokenizer_;
  Options options_;
  std::string pending_;  // bytes not emitted yet
  std::string matched_;
  bool first_ = true;
};

}  // namespace pagefold
