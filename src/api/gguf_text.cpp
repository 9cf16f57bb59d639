#include "api/gguf_text.h"

#include <algorithm>
#include <array>
#include <set>

namespace pagefold {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string key(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }

// Arrays of integers come signed or unsigned.
Result<std::vector<int64_t>> int_array(const GgufFile& file, std::string_view name) {
  const GgufValue* v = file.get(key(name));
  std::vector<int64_t> out;
  if (!v) return out;
  if (const auto* i = std::get_if<std::vector<int64_t>>(v)) return *i;
  if (const auto* u = std::get_if<std::vector<uint64_t>>(v)) {
    for (const uint64_t x : *u) out.push_back(static_cast<int64_t>(x));
    return out;
  }
  return bad_data("{}: key '{}' must be an array of integers", file.name(), key(name));
}

Result<std::vector<std::string>> string_array(const GgufFile& file, std::string_view name) {
  const GgufValue* v = file.get(key(name));
  if (!v) return std::vector<std::string>{};
  if (const auto* s = std::get_if<std::vector<std::string>>(v)) return *s;
  return bad_data("{}: key '{}' must be an array of strings", file.name(), key(name));
}

Result<std::vector<double>> float_array(const GgufFile& file, std::string_view name) {
  const GgufValue* v = file.get(key(name));
  if (!v) return std::vector<double>{};
  if (const auto* f = std::get_if<std::vector<double>>(v)) return *f;
  return bad_data("{}: key '{}' must be an array of floats", file.name(), key(name));
}

// llama.cpp's numbers of token types.
TokenKind kind_of(int64_t type) {
  switch (type) {
    case 2:
      return TokenKind::unknown;
    case 3:
      return TokenKind::control;
    case 4:
      return TokenKind::user_defined;
    case 5:
      return TokenKind::unused;
    case 6:
      return TokenKind::byte;
    default:
      return TokenKind::normal;
  }
}

Status read_vocabulary(const GgufFile& file, GgufTokenizerSpec& spec) {
  PF_ASSIGN(std::vector<std::string> pieces, string_array(file, "tokens"));
  PF_ASSIGN(const std::vector<int64_t> types, int_array(file, "token_type"));
  PF_ASSIGN(const std::vector<double> scores, float_array(file, "scores"));
  if (pieces.empty())
    return bad_data("{}: key '{}' is missing or empty", file.name(), key("tokens"));
  if (!types.empty() && types.size() != pieces.size()) {
    return bad_data("{}: {} token types for {} tokens", file.name(), types.size(), pieces.size());
  }
  if (!scores.empty() && scores.size() != pieces.size()) {
    return bad_data("{}: {} token scores for {} tokens", file.name(), scores.size(), pieces.size());
  }
  spec.tokens.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    spec.tokens.push_back({std::move(pieces[i]),
                           scores.empty() ? 0.0f : static_cast<float>(scores[i]),
                           types.empty() ? TokenKind::normal : kind_of(types[i])});
  }
  return ok_status();
}

Result<int32_t> token_id(const GgufFile& file, std::string_view name, size_t vocabulary) {
  PF_ASSIGN(const int64_t id, file.get_int(key(name), -1));
  if (id < -1 || id >= static_cast<int64_t>(vocabulary)) {
    // 2^32 - 1 is how some converters write "none".
    if (id == 0xffffffff) return -1;
    return bad_data("{}: key '{}' is {}, outside the vocabulary of {}", file.name(), key(name), id,
                    vocabulary);
  }
  return static_cast<int32_t>(id);
}

}  // namespace

Result<GgufTokenizerSpec> gguf_tokenizer_spec(const GgufFile& file) {
  GgufTokenizerSpec s;
  PF_ASSIGN(s.model, file.get_string(key("model"), ""));
  if (s.model.empty())
    return bad_data("{}: key '{}' is missing: the file has no tokenizer", file.name(),
                    key("model"));
  PF_ASSIGN(s.pre, file.get_string(key("pre"), ""));
  PF_TRY(read_vocabulary(file, s));
  PF_ASSIGN(s.merges, string_array(file, "merges"));
  PF_ASSIGN(s.bos, token_id(file, "bos_token_id", s.tokens.size()));
  PF_ASSIGN(s.eos, token_id(file, "eos_token_id", s.tokens.size()));
  PF_ASSIGN(s.eot, token_id(file, "eot_token_id", s.tokens.size()));
  PF_ASSIGN(s.unk, token_id(file, "unknown_token_id", s.tokens.size()));
  PF_ASSIGN(s.pad, token_id(file, "padding_token_id", s.tokens.size()));
  s.has_add_bos = file.get(key("add_bos_token")) != nullptr;
  PF_ASSIGN(s.add_bos, file.get_bool(key("add_bos_token"), s.model == "llama"));
  PF_ASSIGN(s.add_eos, file.get_bool(key("add_eos_token"), false));
  PF_ASSIGN(s.add_space_prefix,
            file.get_bool(key("add_space_prefix"), s.model == "llama" || s.model == "t5"));
  PF_ASSIGN(s.remove_extra_whitespaces, file.get_bool(key("remove_extra_whitespaces"), false));
  PF_ASSIGN(const std::vector<int64_t> charsmap, int_array(file, "precompiled_charsmap"));
  for (const int64_t b : charsmap) s.precompiled_charsmap.push_back(static_cast<char>(b));
  return s;
}

Result<std::string> gguf_chat_template(const GgufFile& file) {
  return file.get_string("tokenizer.chat_template", "");
}

std::vector<int32_t> gguf_end_tokens(const GgufFile& file, const GgufTokenizerSpec& spec) {
  std::set<int32_t> ids{spec.eos, spec.eot};
  if (auto eom = token_id(file, "eom_token_id", spec.tokens.size()); eom.ok()) ids.insert(*eom);
  static constexpr std::array<std::string_view, 6> kTurnEnds = {
      "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"};
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const VocabEntry& e = spec.tokens[i];
    if (e.kind != TokenKind::control) continue;
    if (std::find(kTurnEnds.begin(), kTurnEnds.end(), e.piece) != kTurnEnds.end())
      ids.insert(static_cast<int32_t>(i));
  }
  ids.erase(-1);
  return {ids.begin(), ids.end()};
}

}  // namespace pagefold
