// A conversation becomes one prompt: the model's template writes it, the tokenizer encodes it. The
// server, the library and the command line share this.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/keep_words.h"
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
  // What ChatPrompt::keep is to hold; null: nothing. Its indices count from message `first_index`
  // on; tools_index: the message that tells of the tools where the template does not.
  const KeepWish* keep = nullptr;
  int64_t first_index = 0;
  std::optional<size_t> tools_index;
};

struct ChatPrompt {
  std::vector<int32_t> tokens;
  // From here on the tokens are the template's own, after the last message ("<|im_end|>\n
  // <|im_start|>assistant\n"); tokens.size() when there are none or they cannot be told apart.
  int64_t suffix_begin = 0;
  // Tokens of the messages that the wish names, and its own spans: sorted, none adjacent.
  // keep_status says why there are none.
  std::vector<KeepSpan> keep;
  Status keep_status = ok_status();
};

// context: what the template reads ("messages", "tools", "add_generation_prompt" ...); bos_token
// and eos_token are set here. Text of the conversation never becomes a control token. The ids are
// not empty; errors are the caller's input.
Result<ChatPrompt> chat_prompt(const Tokenizer& tokenizer, const ChatTemplate& chat,
                               const SpecialPieces& special, Json context,
                               const ChatPromptOptions& options);

}  // namespace pagefold
