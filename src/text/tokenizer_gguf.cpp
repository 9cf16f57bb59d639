// Tokenizers from GGUF metadata: "gpt2" (byte-level BPE); "llama" and "t5" (SentencePiece).
#include <cmath>

#include "text/bpe.h"
#include "text/byte_map.h"
#include "text/normalizer.h"
#include "text/pipeline.h"
#include "text/pre_names.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr size_t kMaxTokens = 1 << 22;

Status check_spec(const GgufTokenizerSpec& spec) {
  if (spec.tokens.empty()) return bad_data("tokenizer.ggml.tokens is empty");
  if (spec.tokens.size() > kMaxTokens) {
    return bad_data("tokenizer.ggml.tokens has {} entries; at most {} are allowed",
                    spec.tokens.size(), kMaxTokens);
  }
  const auto size = static_cast<int32_t>(spec.tokens.size());
  const auto check_id = [&](int32_t id, std::string_view name) {
    if (id < -1 || id >= size) {
      return bad_data("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", name, id,
                      size);
    }
    return ok_status();
  };
  PF_TRY(check_id(spec.bos, "bos"));
  PF_TRY(check_id(spec.eos, "eos"));
  PF_TRY(check_id(spec.eot, "eot"));
  PF_TRY(check_id(spec.unk, "unknown"));
  PF_TRY(check_id(spec.pad, "padding"));
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!std::isfinite(spec.tokens[i].score)) {
      return bad_data("tokenizer.ggml.scores[{}] is not a number", i);
    }
  }
  return ok_status();
}

bool is_added(TokenKind kind) {
  return kind == TokenKind::control || kind == TokenKind::user_defined;
}

void surround(const GgufTokenizerSpec& spec, bool add_bos, Pipeline& p) {
  p.bos = spec.bos;
  p.eos = spec.eos;
  if (add_bos && spec.bos >= 0) p.prefix.push_back(spec.bos);
  if (spec.add_eos && spec.eos >= 0) p.suffix.push_back(spec.eos);
}

Result<std::unique_ptr<Tokenizer>> byte_level_bpe(GgufTokenizerSpec spec) {
  PF_ASSIGN(const NamedPre pre, find_named_pre(spec.pre));
  Pipeline p;
  p.vocab = std::make_shared<Vocabulary>(std::move(spec.tokens));
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(spec.merges.size());
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string& merge = spec.merges[i];
    // Not the first character: a piece may begin with a space, but not be empty.
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return bad_data("tokenizer.ggml.merges[{}] is not a pair", i);
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  PF_ASSIGN(p.model, make_bpe(p.vocab, merges, options));
  for (size_t i = 0; i < pre.patterns.size(); ++i) {
    PF_ASSIGN(auto pattern, Regex::compile(pre.patterns[i]));
    p.pre_tokenizers.push_back(split_by_pattern(pattern, SplitBehavior::isolated, false));
  }
  p.pre_tokenizers.push_back(byte_level(nullptr, false));
  p.bytes.resize(static_cast<size_t>(p.vocab->size()));
  for (int32_t id = 0; id < p.vocab->size(); ++id) {
    const VocabEntry& entry = (*p.vocab)[id];
    std::string& bytes = p.bytes[static_cast<size_t>(id)];
    if (is_added(entry.kind)) {
      PF_TRY(p.raw_tokens.add(
          {.content = entry.piece, .id = id, .special = entry.kind == TokenKind::control}));
      bytes = entry.piece;
    } else if (!append_char_bytes(entry.piece, bytes)) {
      bytes = entry.piece;
    }
  }
  surround(spec, spec.has_add_bos ? spec.add_bos : pre.adds_bos, p);
  return make_pipeline_tokenizer(std::move(p));
}

// What a SentencePiece token decodes to.
std::string sentencepiece_bytes(const VocabEntry& entry, const Normalizer& unescape) {
  if (entry.kind == TokenKind::control || entry.kind == TokenKind::unknown) return entry.piece;
  const int value = entry.kind == TokenKind::byte ? byte_piece_value(entry.piece) : -1;
  return value >= 0 ? std::string(1, static_cast<char>(value)) : unescape(entry.piece);
}

Result<std::unique_ptr<Tokenizer>> sentencepiece(GgufTokenizerSpec spec) {
  const bool unigram = spec.model == "t5";
  Pipeline p;
  SentencePieceRules rules{nullptr, spec.add_space_prefix, spec.remove_extra_whitespaces};
  if (!spec.precompiled_charsmap.empty()) {
    auto map = CharsMap::parse(spec.precompiled_charsmap);
    if (!map.ok()) return with_context(map.status(), "tokenizer.ggml.precompiled_charsmap");
    rules.map = *map;
  }
  p.normalizers.push_back(sentencepiece_normalizer(std::move(rules)));
  p.vocab = std::make_shared<Vocabulary>(std::move(spec.tokens));
  const Normalizer escape = replace_normalizer(" ", "\xE2\x96\x81");
  const Normalizer unescape = replace_normalizer("\xE2\x96\x81", " ");
  std::vector<double> scores;
  p.bytes.resize(static_cast<size_t>(p.vocab->size()));
  for (int32_t id = 0; id < p.vocab->size(); ++id) {
    const VocabEntry& entry = (*p.vocab)[id];
    if (entry.kind == TokenKind::control) {
      PF_TRY(p.raw_tokens.add({.content = entry.piece, .id = id, .special = true}));
    } else if (entry.kind == TokenKind::user_defined) {
      // Looked for after the prefix space was added: such a token does not start a text anew.
      PF_TRY(p.normalized_tokens.add({.content = escape(entry.piece), .id = id}));
    }
    p.bytes[static_cast<size_t>(id)] = sentencepiece_bytes(entry, unescape);
    scores.push_back(entry.score);
  }
  if (unigram) {
    p.model = make_unigram(p.vocab, std::move(scores), {spec.unk, true, true});
  } else {
    p.model = make_score_bpe(p.vocab, {.byte_fallback = true, .fuse_unk = true, .unk = spec.unk});
  }
  p.strips_first_space = spec.add_space_prefix;
  surround(spec, spec.has_add_bos ? spec.add_bos : !unigram, p);
  return make_pipeline_tokenizer(std::move(p));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_gguf(GgufTokenizerSpec spec) {
  PF_TRY(check_spec(spec));
  if (spec.model == "gpt2") return byte_level_bpe(std::move(spec));
  if (spec.model == "llama" || spec.model == "t5") return sentencepiece(std::move(spec));
  return unsupported("tokenizer model \"{}\" (tokenizer.ggml.model); known are: gpt2, llama, t5",
                     spec.model.substr(0, 60));
}

}  // namespace pagefold
