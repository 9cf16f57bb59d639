// The tokenizer that both file formats are read into: added tokens, normalisers, pre-tokenizers, a
// model, special tokens around the text; and a table of bytes for the way back.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/pretokenizer.h"
#include "text/token_model.h"
#include "text/tokenizer.h"

namespace pagefold {

// Valid UTF-8 to valid UTF-8.
using Normalizer = std::function<std::string(std::string)>;

struct Pipeline {
  std::shared_ptr<const Vocabulary> vocab;
  std::unique_ptr<TokenModel> model;
  AddedTokenMatcher raw_tokens;         // found in the text as it is
  AddedTokenMatcher normalized_tokens;  // found in normalised text
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::vector<int32_t> prefix, suffix;  // ids around a text
  std::vector<std::string> bytes;       // what an id decodes to; one for each id
  int32_t bos = -1, eos = -1;
  bool strips_first_space = false;
};

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(Pipeline pipeline);

}  // namespace pagefold
