#include "quantize/hf_tokenizer.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "text/pre_names.h"

namespace pagefold {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json sequence(std::string_view list, Json steps) {
  return {{"type", "Sequence"}, {std::string(list), std::move(steps)}};
}

Json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"},
          {"pattern", {{"String", std::string(from)}}},
          {"content", std::string(to)}};
}

std::string with_spaces(std::string text) {
  for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
    text.replace(at, kSpaceMark.size(), " ");
  return text;
}

Json added_tokens(const GgufTokenizerSpec& spec) {
  Json out = Json::array();
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const VocabEntry& e = spec.tokens[i];
    // SentencePiece's unknown piece is special too: it never comes from text.
    const bool special = e.kind == TokenKind::control ||
                         (e.kind == TokenKind::unknown && static_cast<int32_t>(i) == spec.unk);
    if ((!special && e.kind != TokenKind::user_defined) || e.piece.empty()) continue;
    out.push_back({{"id", i},
                   {"content", spec.model == "llama" && !special ? with_spaces(e.piece) : e.piece},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", false},
                   {"special", special}});
  }
  return out;
}

// The first of two equal pieces is the one that texts become; a JSON object has room for no other.
Json vocabulary(const GgufTokenizerSpec& spec) {
  Json::object_t out;
  // Appended to the container below: the map's own insert looks through all entries each time.
  Json::object_t::Container& items = out;
  absl::flat_hash_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& piece = spec.tokens[i].piece;
    if (seen.emplace(piece, i).second) {
      items.emplace_back(piece, i);
    } else {
      log::warn("token {} repeats the piece of token {} and is left out of tokenizer.json", i,
                seen[piece]);
    }
  }
  return Json(std::move(out));
}

Json post_processor(const GgufTokenizerSpec& spec, bool add_bos) {
  Json single = Json::array(), special = Json::object(), pair = Json::array();
  const auto token = [&](int32_t id, int type) {
    const std::string& piece = spec.tokens[static_cast<size_t>(id)].piece;
    special[piece] = {{"id", piece}, {"ids", Json::array({id})}, {"tokens", Json::array({piece})}};
    return Json{{"SpecialToken", {{"id", piece}, {"type_id", type}}}};
  };
  for (const auto& [name, type] : {std::pair{"A", 0}, std::pair{"B", 1}}) {
    std::vector<Json> part;
    if (add_bos && spec.bos >= 0) part.push_back(token(spec.bos, type));
    part.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (spec.add_eos && spec.eos >= 0) part.push_back(token(spec.eos, type));
    for (const Json& item : part) {
      if (type == 0) single.push_back(item);
      pair.push_back(item);
    }
  }
  if (special.empty()) return spec.model == "gpt2" ? byte_level(true) : Json(nullptr);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json bpe_model(const GgufTokenizerSpec& spec, Json merges) {
  const bool sentencepiece = spec.model == "llama";
  Json unk = nullptr;
  if (sentencepiece && spec.unk >= 0) unk = spec.tokens[static_cast<size_t>(spec.unk)].piece;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", std::move(unk)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", sentencepiece},
          {"byte_fallback", sentencepiece},
          {"ignore_merges", false},
          {"vocab", vocabulary(spec)},
          {"merges", std::move(merges)}};
}

Status byte_level_bpe(const GgufTokenizerSpec& spec, Json& out) {
  PF_ASSIGN(const NamedPre pre, find_named_pre(spec.pre));
  Json steps = Json::array();
  for (const std::string_view pattern : pre.patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level(false));
  Json merges = Json::array();
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string& merge = spec.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size())
      return bad_data("tokenizer.ggml.merges[{}] is not a pair", i);
    merges.push_back(Json::array({merge.substr(0, space), merge.substr(space + 1)}));
  }
  out["pre_tokenizer"] = sequence("pretokenizers", std::move(steps));
  out["post_processor"] = post_processor(spec, spec.has_add_bos ? spec.add_bos : pre.adds_bos);
  out["decoder"] = byte_level(true);
  out["model"] = bpe_model(spec, std::move(merges));
  out["model"]["ignore_merges"] = pre.ignore_merges;
  return ok_status();
}

// Cuts between characters only: a piece never begins within one.
bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

Json score_merges(const GgufTokenizerSpec& spec) {
  absl::flat_hash_map<std::string_view, int32_t> ids;
  const auto is_text = [&](const VocabEntry& e) {
    return e.kind == TokenKind::normal || e.kind == TokenKind::user_defined;
  };
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (is_text(spec.tokens[i])) ids.emplace(spec.tokens[i].piece, static_cast<int32_t>(i));
  }
  struct Merge {
    float score;
    int32_t whole, left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [piece, whole] : ids) {
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (!starts_character(piece[cut])) continue;
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back(
          {spec.tokens[static_cast<size_t>(whole)].score, whole, left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::tie(a.whole, a.left, a.right) < std::tie(b.whole, b.left, b.right);
  });
  Json out = Json::array();
  for (const Merge& m : merges) {
    out.push_back(Json::array({spec.tokens[static_cast<size_t>(m.left)].piece,
                               spec.tokens[static_cast<size_t>(m.right)].piece}));
  }
  return out;
}

Status sentencepiece(const GgufTokenizerSpec& spec, Json& out) {
  if (!spec.precompiled_charsmap.empty())
    return unsupported("a SentencePiece tokenizer with a character map is not converted");
  Json steps = Json::array();
  if (spec.remove_extra_whitespaces) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  if (spec.add_space_prefix)
    steps.push_back({{"type", "Prepend"}, {"prepend", std::string(kSpaceMark)}});
  steps.push_back(replace(" ", kSpaceMark));
  Json back =
      Json::array({replace(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (spec.add_space_prefix)
    back.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  out["normalizer"] = sequence("normalizers", std::move(steps));
  out["post_processor"] = post_processor(spec, spec.has_add_bos ? spec.add_bos : true);
  out["decoder"] = sequence("decoders", std::move(back));
  out["model"] = bpe_model(spec, score_merges(spec));
  return ok_status();
}

}  // namespace

Result<Json> hf_tokenizer(const GgufTokenizerSpec& spec) {
  if (spec.model != "gpt2" && spec.model != "llama") {
    return unsupported(
        "tokenizer model \"{}\" (tokenizer.ggml.model) is not converted; known are: gpt2, llama",
        spec.model.substr(0, 60));
  }
  Json out = {{"version", "1.0"},          {"truncation", nullptr},
              {"padding", nullptr},        {"added_tokens", added_tokens(spec)},
              {"normalizer", nullptr},     {"pre_tokenizer", nullptr},
              {"post_processor", nullptr}, {"decoder", nullptr},
              {"model", nullptr}};
  PF_TRY(spec.model == "gpt2" ? byte_level_bpe(spec, out) : sentencepiece(spec, out));
  return out;
}

Result<Json> hf_tokenizer_config(const GgufTokenizerSpec& spec, const std::string& chat_template,
                                 int64_t context_length) {
  const auto piece = [&](int32_t id) {
    return id >= 0 ? Json(spec.tokens[static_cast<size_t>(id)].piece) : Json(nullptr);
  };
  bool add_bos = spec.add_bos;
  if (!spec.has_add_bos && spec.model == "gpt2") {
    PF_ASSIGN(const NamedPre pre, find_named_pre(spec.pre));
    add_bos = pre.adds_bos;
  }
  Json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"model_max_length", context_length},
              {"clean_up_tokenization_spaces", false},
              {"add_bos_token", add_bos && spec.bos >= 0},
              {"add_eos_token", spec.add_eos && spec.eos >= 0},
              {"bos_token", piece(spec.bos)},
              {"eos_token", piece(spec.eos)},
              {"unk_token", piece(spec.unk)},
              {"pad_token", piece(spec.pad)}};
  if (!chat_template.empty()) out["chat_template"] = chat_template;
  return out;
}

}  // namespace pagefold
