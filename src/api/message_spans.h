// Which tokens of a prompt come from which message of a conversation.
//
// The template is run a second time with a private-use character of its own at the end of every
// message; without them the text must be the first run's, so the marks show where each message's
// text ends. What the template writes after it (its end marker) is learnt from runs that stop after
// a message. A message thus begins where the one before it ends, its header included; what the
// template writes before the first one belongs to that. Bytes become tokens by the bytes that each
// token stands for: a token that straddles a border belongs to both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/keep_words.h"
#include "base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagefold {

struct ByteSpan {
  size_t begin = 0, end = 0;
};

// The character U+100000 + offset as UTF-8: private use.
std::string private_use_character(uint32_t offset);
std::string without_piece(std::string text, const std::string& piece);

// A conversation that was written.
struct WrittenChat {
  const ChatTemplate& chat;
  const Json& context;                // what was rendered
  std::string_view text;              // what came of it, without `noise`
  std::vector<std::string> noise;     // characters in the context that are no text of it
  std::string cut_at;                 // the text ends before this character; empty: it does not
  std::optional<size_t> tools_index;  // the message that tells of the tools, if one does
  int64_t first_index = 0;            // messages before this one are not the request's own
};

// The bytes of what is to be kept. Spans of tokens in the wish are not looked at.
// kInvalidArgument: there is no such message, or the template does not show where messages are.
Result<std::vector<ByteSpan>> kept_bytes(const WrittenChat& written, const KeepWish& wish);

// The tokens of `ids` that stand for these bytes of `text`. forged: the text contains special
// pieces that are no special tokens in `ids`. nullopt: bytes and tokens cannot be matched.
std::optional<std::vector<KeepSpan>> tokens_of_bytes(const Tokenizer& tokenizer,
                                                     const std::vector<int32_t>& ids,
                                                     std::string_view text, bool forged,
                                                     const std::vector<ByteSpan>& bytes);

}  // namespace pagefold
