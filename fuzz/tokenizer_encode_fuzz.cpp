// deps: pagefold_text
// Any bytes as text for small tokenizers of each kind: ids are valid, forged special tokens stay
// text, and the stream gives what the whole answer gives.
#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "text/byte_map.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

GgufTokenizerSpec byte_level() {
  GgufTokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "llama-bpe";
  for (int b = 0; b < 256; ++b) {
    spec.tokens.push_back({utf8_of(byte_to_char(static_cast<unsigned char>(b))), 0, {}});
  }
  for (const char* piece : {"ab", "aa", "aaaa", "abab",
                            "\xC4\xA0"
                            "a"}) {
    spec.tokens.push_back({piece, 0, {}});
  }
  spec.merges = {"a b", "a a", "aa aa", "ab ab", "\xC4\xA0 a"};
  spec.tokens.push_back({"<s>", 0, TokenKind::control});
  spec.tokens.push_back({"  ", 0, TokenKind::user_defined});
  return spec;
}

GgufTokenizerSpec sentencepiece(const char* model) {
  GgufTokenizerSpec spec;
  spec.model = model;
  spec.unk = 0;
  spec.tokens = {{"<unk>", 0, TokenKind::unknown}, {"<s>", 0, TokenKind::control}};
  for (int b = 0; b < 256; ++b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    spec.tokens.push_back(
        {std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 0, TokenKind::byte});
  }
  float score = -1;
  for (const char* piece : {"a", "b", "aa", "ab", "aab", "\xE2\x96\x81",
                            "\xE2\x96\x81"
                            "a"}) {
    spec.tokens.push_back({piece, score--, {}});
  }
  spec.tokens.push_back({"abab", -2, TokenKind::unused});
  spec.tokens.push_back({"[X]", 0, TokenKind::user_defined});
  return spec;
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer.encode(text, false, parse);
    StreamDecoder decoder(tokenizer, {.skip_special = false, .at_text_start = true});
    std::string streamed;
    for (const int32_t id : ids) {
      PF_CHECK(id >= 0 && id < tokenizer.vocab_size());
      PF_CHECK(parse || !tokenizer.is_special(id));
      streamed += decoder.push(id);
    }
    streamed += decoder.finish();
    const std::string whole = tokenizer.decode(ids, false);
    PF_CHECK(streamed == whole);
    PF_CHECK(tokenizer.strips_first_space() || whole == sanitize_utf8(text));
  }
}

}  // namespace
}  // namespace pagefold

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagefold;
  static const auto bpe = *tokenizer_from_gguf(byte_level());
  static const auto score_bpe = *tokenizer_from_gguf(sentencepiece("llama"));
  static const auto unigram = *tokenizer_from_gguf(sentencepiece("t5"));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(*bpe, text);
  check(*score_bpe, text);
  check(*unigram, text);
  return 0;
}
