// Byte-pair encoding: characters of a piece are merged, best pair first, the leftmost of equals.
// Pairs rank by a list of merges (Hugging Face, GGUF "gpt2") or by the score of the joined piece
// (SentencePiece, GGUF "llama"). O(n log n) for a piece of n characters.
#pragma once

#include <memory>
#include <utility>

#include "text/token_model.h"

namespace pagefold {

struct BpeOptions {
  bool byte_fallback = false;  // unknown characters become their bytes' tokens where all exist
  bool ignore_merges = false;  // a piece that is a token as a whole is not taken apart
  bool fuse_unk = false;       // neighbouring unknown characters give one unk
  int32_t unk = -1;            // -1: unknown characters vanish
};

// Merges are ids; every joined piece must be in the vocabulary (checked).
// A merge that would make a reserved token of ordinary text is left out.
Result<std::unique_ptr<TokenModel>> make_bpe(
    std::shared_ptr<const Vocabulary> vocab,
    const std::vector<std::pair<std::string, std::string>>& merges, const BpeOptions& options);

// Ranks by score. Pieces of kind unused are split up again into what they were merged from.
std::unique_ptr<TokenModel> make_score_bpe(std::shared_ptr<const Vocabulary> vocab,
                                           const BpeOptions& options);

}  // namespace pagefold
