// A conversation becomes one prompt: the model's template writes it, the tokenizer encodes it. The
// server, the library and the command line share this.
#pragma once

#include <cstdint>
#include <vector>

#include "api/special_pieces.h"
#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pagefold {

struct ChatPromptOptions {
  // The prompt ends inside the last message, whose content is a string: the answer goes on from it.
  bool continues = false;
  // The tokenizer adds its own beginning; the template usually writes it.
  bool add_special = false;
  // ChatPrompt::suffix_begin is wanted: the template runs twice.
  bool find_suffix = false;
  // A prompt of more tokens than this is of no use: it may come cut, still longer than this.
  size_t limit = SIZE_MAX;
};

struct ChatPrompt {
  std::vector<int32_t> tokens;
  // From here on the tokens are the template's own, after the last message ("<|im_end|>\n
  // <|im_start|>assistant\n"); tokens.size() when there are none or they cannot be told apart.
  int64_t suffix_begin = 0;
};

// context: what the template reads ("messages", "tools", "add_generation_prompt" ...); bos_token
// and eos_token are set here. Text of the conversation never becomes a control token. The ids are
// not empty; errors are the caller's input.
Result<ChatPrompt> chat_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                               const SpecialPieces& special, Json context,
                               const ChatPromptOptions& options);

}  // namespace pagefold
