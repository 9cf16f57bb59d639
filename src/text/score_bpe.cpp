// SentencePiece's BPE: two neighbours merge when their joined text is a piece, the highest score
// first. Method: Kudo and Richardson, "SentencePiece", EMNLP 2018, section 3.1.
#include "text/bpe.h"
#include "text/merge_list.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

class ScoreBpe : public TokenModel {
 public:
  ScoreBpe(std::shared_ptr<const Vocabulary> vocab, const BpeOptions& options)
      : vocab_(std::move(vocab)), options_(options) {
    for (const int32_t id : vocab_->bytes()) {
      if (id < 0) options_.byte_fallback = false;
    }
    for (int32_t id = 0; id < vocab_->size(); ++id) {
      if ((*vocab_)[id].kind == TokenKind::unused) has_unused_ = true;
    }
  }

  void encode(std::string_view piece, size_t limit, std::vector<int32_t>& ids) const override {
    thread_local std::vector<Symbol> symbols;
    thread_local std::vector<MergeCandidate<float>> heap;
    split(piece, symbols);
    // Without bytes unknown characters may come to fewer ids than symbols, or to none.
    if (options_.byte_fallback &&
        surely_above(limit, ids.size(), symbols.size(), vocab_->max_piece_bytes())) {
      ids.resize(limit + 1, vocab_->bytes()[0]);
      return;
    }
    Origins origins;
    merge_symbols(
        symbols, heap,
        [&](const Symbol& a, const Symbol& b, float& key) {
          if (b.end - a.begin > vocab_->max_piece_bytes()) return -1;
          const std::string_view joined = piece.substr(a.begin, b.end - a.begin);
          const int32_t id = text_piece(joined);
          if (id < 0) return -1;
          key = -(*vocab_)[id].score;
          if (has_unused_ && (*vocab_)[id].kind == TokenKind::unused) {
            origins[joined] = a.end - a.begin;
          }
          return id;
        },
        [](int32_t, const Symbol&, const Symbol&) {});
    bool after_unk = false;
    for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
      emit(piece.substr(symbols[i].begin, symbols[i].end - symbols[i].begin), origins, ids,
           after_unk);
    }
  }

 private:
  using Origins =
      absl::flat_hash_map<std::string_view, uint32_t>;  // text -> bytes of its left half

  // The id ordinary text may become: byte and reserved tokens are not made of characters.
  int32_t text_piece(std::string_view text) const {
    const int32_t id = vocab_->find(text);
    if (id < 0 || vocab_->is_reserved(id) || (*vocab_)[id].kind == TokenKind::byte) return -1;
    return id;
  }

  static void split(std::string_view piece, std::vector<Symbol>& symbols) {
    symbols.clear();
    for (size_t pos = 0; pos < piece.size();) {
      const auto begin = static_cast<uint32_t>(pos);
      utf8_next(piece, pos);
      const auto n = static_cast<int32_t>(symbols.size());
      if (n > 0) symbols.back().next = n;
      symbols.push_back({-1, n - 1, -1, begin, static_cast<uint32_t>(pos)});
    }
  }

  // Unused pieces fall apart into their halves, unknown characters into bytes or unk.
  void emit(std::string_view text, const Origins& origins, std::vector<int32_t>& ids,
            bool& after_unk) const {
    std::vector<std::string_view> todo{text};
    while (!todo.empty()) {
      const std::string_view part = todo.back();
      todo.pop_back();
      const int32_t id = text_piece(part);
      if (id >= 0 && (*vocab_)[id].kind == TokenKind::unused) {
        if (const auto it = origins.find(part); it != origins.end()) {
          todo.push_back(part.substr(it->second));
          todo.push_back(part.substr(0, it->second));
          continue;
        }
      }
      if (id >= 0) {
        ids.push_back(id);
        after_unk = false;
      } else if (options_.byte_fallback) {
        for (const char c : part) ids.push_back(vocab_->bytes()[static_cast<unsigned char>(c)]);
      } else if (options_.unk >= 0 && !(after_unk && options_.fuse_unk)) {
        ids.push_back(options_.unk);
        after_unk = true;
      }
    }
  }

  std::shared_ptr<const Vocabulary> vocab_;
  BpeOptions options_;
  bool has_unused_ = false;
};

}  // namespace

std::unique_ptr<TokenModel> make_score_bpe(std::shared_ptr<const Vocabulary> vocab,
                                           const BpeOptions& options) {
  return std::make_unique<ScoreBpe>(std::move(vocab), options);
}

}  // namespace pagefold
