#include "text/unigram.h"

#include <algorithm>

#include "text/piece_trie.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr double kUnkPenalty = 10.0;

std::vector<std::pair<std::string_view, int32_t>> text_pieces(const Vocabulary& vocab) {
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const VocabEntry& entry = vocab[id];
    if (entry.piece.empty() || vocab.find(entry.piece) != id || vocab.is_reserved(id)) continue;
    if (entry.kind == TokenKind::byte || entry.kind == TokenKind::unused) continue;
    pieces.emplace_back(entry.piece, id);
  }
  return pieces;
}

class Unigram : public TokenModel {
 public:
  Unigram(std::shared_ptr<const Vocabulary> vocab, std::vector<double> scores,
          const UnigramOptions& options)
      : vocab_(std::move(vocab)),
        scores_(std::move(scores)),
        options_(options),
        trie_(text_pieces(*vocab_)) {
    for (const int32_t id : vocab_->bytes()) {
      if (id < 0) options_.byte_fallback = false;
    }
    bool any = false;
    double low = 0;
    for (int32_t id = 0; id < vocab_->size(); ++id) {
      if ((*vocab_)[id].kind != TokenKind::normal || (*vocab_)[id].piece.empty()) continue;
      const double score = scores_[static_cast<size_t>(id)];
      low = any ? std::min(low, score) : score;
      max_score_ = any ? std::max(max_score_, score) : score;
      any = true;
    }
    unk_score_ = low - kUnkPenalty;
  }

  void encode(std::string_view piece, size_t /*limit*/, std::vector<int32_t>& ids) const override {
    thread_local std::vector<Node> best;
    best.assign(piece.size() + 1, Node{});
    best[0].score = 0;
    for (size_t at = 0; at < piece.size();) {
      const size_t width = utf8_length(static_cast<unsigned char>(piece[at]));
      const double here = best[at].score;
      bool whole_char = false;
      trie_.for_each_prefix(piece, at, [&](size_t length, int32_t id) {
        improve(best[at + length], here + score_of(id, length), at, id);
        whole_char |= length == width;
      });
      if (!whole_char) improve(best[at + width], here + unk_score_, at, -1);
      at += width;
    }
    emit(piece, best, ids);
  }

 private:
  struct Node {
    double score = 0;
    size_t from = std::string_view::npos;  // npos: not reached
    int32_t id = -1;                       // -1: unknown
  };

  double score_of(int32_t id, size_t length) const {
    if (options_.sentencepiece && (*vocab_)[id].kind == TokenKind::user_defined) {
      return static_cast<double>(length) * max_score_ - 0.1;
    }
    return scores_[static_cast<size_t>(id)];
  }
  void improve(Node& node, double score, size_t from, int32_t id) const {
    if (node.from != std::string_view::npos && !(score > node.score)) return;
    node = {options_.sentencepiece ? static_cast<float>(score) : score, from, id};
  }

  void emit(std::string_view piece, const std::vector<Node>& best,
            std::vector<int32_t>& ids) const {
    const size_t first = ids.size();
    bool after_unk = false;
    for (size_t end = piece.size(); end > 0; end = best[end].from) {
      const Node& node = best[end];
      if (node.id >= 0) {
        ids.push_back(node.id);
      } else if (options_.byte_fallback) {
        for (size_t i = end; i > node.from; --i) {
          ids.push_back(vocab_->bytes()[static_cast<unsigned char>(piece[i - 1])]);
        }
      } else if (options_.unk >= 0 && !after_unk) {
        ids.push_back(options_.unk);
      }
      after_unk = node.id < 0;
    }
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  }

  std::shared_ptr<const Vocabulary> vocab_;
  std::vector<double> scores_;
  UnigramOptions options_;
  PieceTrie trie_;
  double max_score_ = 0, unk_score_ = 0;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(std::shared_ptr<const Vocabulary> vocab,
                                         std::vector<double> scores,
                                         const UnigramOptions& options) {
  return std::make_unique<Unigram>(std::move(vocab), std::move(scores), options);
}

}  // namespace pagefold
