#include "text/bpe.h"

#include "text/merge_list.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr char32_t kDirect = 0x10000;  // characters below have their id in a table

class RankBpe : public TokenModel {
 public:
  RankBpe(std::shared_ptr<const Vocabulary> vocab, const BpeOptions& options)
      : vocab_(std::move(vocab)), options_(options), direct_(kDirect, -1) {
    for (int32_t id = 0; id < vocab_->size(); ++id) {
      const std::string& piece = (*vocab_)[id].piece;
      if (piece.empty() || piece.size() > 3 || vocab_->find(piece) != id) continue;
      if (!is_valid_utf8(piece) ||
          utf8_length(static_cast<unsigned char>(piece[0])) != piece.size())
        continue;
      size_t pos = 0;
      direct_[utf8_next(piece, pos)] = id;
    }
  }

  Status add_merge(size_t rank, const std::string& left, const std::string& right) {
    const int32_t a = vocab_->find(left), b = vocab_->find(right);
    const int32_t joined = vocab_->find(left + right);
    if (a < 0 || b < 0 || joined < 0) {
      return bad_data("merge {} (\"{}\" + \"{}\"): \"{}\" is not in the vocabulary", rank, left,
                      right,
                      a < 0   ? left
                      : b < 0 ? right
                              : left + right);
    }
    if (vocab_->is_reserved(joined)) return ok_status();
    merges_.try_emplace(key_of(a, b), Merge{static_cast<uint32_t>(rank), joined});
    return ok_status();
  }
  void reserve(size_t n) { merges_.reserve(n); }

  void encode(std::string_view piece, size_t limit, std::vector<int32_t>& ids) const override {
    if (options_.ignore_merges) {
      const int32_t whole = vocab_->find(piece);
      if (whole >= 0 && !vocab_->is_reserved(whole)) return ids.push_back(whole);
    }
    thread_local std::vector<Symbol> symbols;
    thread_local std::vector<MergeCandidate<uint32_t>> heap;
    split(piece, symbols);
    if (surely_above(limit, ids.size(), symbols.size(), vocab_->max_piece_bytes())) {
      for (size_t i = 0; ids.size() <= limit; ++i) ids.push_back(symbols[i].id);
      return;
    }
    merge_symbols(
        symbols, heap,
        [this](const Symbol& a, const Symbol& b, uint32_t& rank) {
          const auto it = merges_.find(key_of(a.id, b.id));
          if (it == merges_.end()) return -1;
          rank = it->second.rank;
          return it->second.joined;
        },
        [](int32_t, const Symbol&, const Symbol&) {});
    for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
      ids.push_back(symbols[i].id);
    }
  }

 private:
  struct Merge {
    uint32_t rank;
    int32_t joined;
  };
  static uint64_t key_of(int32_t a, int32_t b) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32) | static_cast<uint32_t>(b);
  }

  void split(std::string_view piece, std::vector<Symbol>& symbols) const {
    symbols.clear();
    bool after_unk = false;
    const auto add = [&](int32_t id, size_t begin, size_t end) {
      const auto n = static_cast<int32_t>(symbols.size());
      if (n > 0) symbols.back().next = n;
      symbols.push_back({id, n - 1, -1, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    };
    for (size_t pos = 0; pos < piece.size();) {
      const size_t begin = pos;
      const char32_t c = utf8_next(piece, pos);
      const std::string_view text = piece.substr(begin, pos - begin);
      const int32_t id = c < kDirect ? direct_[c] : vocab_->find(text);
      if (id >= 0) {
        add(id, begin, pos);
        after_unk = false;
        continue;
      }
      if (options_.byte_fallback && all_bytes(text)) {
        for (size_t i = begin; i < pos; ++i) {
          add(vocab_->bytes()[static_cast<unsigned char>(piece[i])], i, i + 1);
        }
        after_unk = false;
        continue;
      }
      if (options_.unk < 0) continue;
      if (after_unk && options_.fuse_unk) {
        symbols.back().end = static_cast<uint32_t>(pos);
      } else {
        add(options_.unk, begin, pos);
      }
      after_unk = true;
    }
  }

  bool all_bytes(std::string_view text) const {
    for (const char c : text) {
      if (vocab_->bytes()[static_cast<unsigned char>(c)] < 0) return false;
    }
    return true;
  }

  std::shared_ptr<const Vocabulary> vocab_;
  BpeOptions options_;
  std::vector<int32_t> direct_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> make_bpe(
    std::shared_ptr<const Vocabulary> vocab,
    const std::vector<std::pair<std::string, std::string>>& merges, const BpeOptions& options) {
  auto model = std::make_unique<RankBpe>(std::move(vocab), options);
  model->reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    PF_TRY(model->add_merge(i, merges[i].first, merges[i].second));
  }
  return model;
}

}  // namespace pagefold
