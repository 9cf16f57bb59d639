// tokenizer.json and tokenizer_config.json of a Hugging Face folder, from a GGUF file's vocabulary:
// the same ids for the same text. Format: the Hugging Face tokenizers library.
#pragma once

#include <string>

#include "base/json.h"
#include "text/vocab.h"

namespace pagefold {

// Byte-level BPE ("gpt2") with the named pre-tokenizer, and SentencePiece's BPE ("llama"), whose
// merges are made of the scores: every way to cut a piece into two pieces, the best piece first.
// Refused by name: other kinds, unknown pre-tokenizers, a character map.
Result<Json> hf_tokenizer(const GgufTokenizerSpec& spec);
Result<Json> hf_tokenizer_config(const GgufTokenizerSpec& spec, const std::string& chat_template,
                                 int64_t context_length);

}  // namespace pagefold
