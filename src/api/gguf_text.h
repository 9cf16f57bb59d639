// What a GGUF file says about text: tokenizer, template, the tokens that end an answer.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "text/vocab.h"

namespace pagefold {

Result<GgufTokenizerSpec> gguf_tokenizer_spec(const GgufFile& file);
// "" when the file has none.
Result<std::string> gguf_chat_template(const GgufFile& file);
// eos, end of turn, end of message; and the usual end-of-turn pieces when they are control tokens
// of the vocabulary.
std::vector<int32_t> gguf_end_tokens(const GgufFile& file, const GgufTokenizerSpec& spec);

}  // namespace pagefold
