// Unigram: the pieces whose summed log-probability is highest (Viterbi; Kudo, "Subword
// Regularization", ACL 2018). Linear in the text for a given longest piece.
#pragma once

#include <memory>

#include "text/token_model.h"

namespace pagefold {

struct UnigramOptions {
  int32_t unk = -1;            // -1: unknown characters vanish
  bool byte_fallback = false;  // unknown characters become their bytes' tokens where all exist
  // SentencePiece keeps path scores in 32 bits and always takes user-defined pieces; Hugging Face
  // works in 64 bits and knows no such pieces. Only ties show it.
  bool sentencepiece = false;
};

std::unique_ptr<TokenModel> make_unigram(std::shared_ptr<const Vocabulary> vocab,
                                         std::vector<double> scores, const UnigramOptions& options);

}  // namespace pagefold
