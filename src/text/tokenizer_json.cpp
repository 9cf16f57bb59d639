// tokenizer.json of Hugging Face tokenizers, with the few fields of tokenizer_config.json that
// change ids. Truncation and padding of the file are left out: an engine wants the whole text.
#include <algorithm>
#include <cmath>
#include <optional>

#include "text/bpe.h"
#include "text/byte_map.h"
#include "text/json_steps.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

namespace sj = simdjson::dom;

constexpr size_t kMaxFile = 256 << 20;
constexpr size_t kMaxDepth = 64;

struct Entries {
  std::vector<VocabEntry> list;
  std::vector<double> scores;
  absl::flat_hash_map<std::string, int32_t> ids;

  // Ids far beyond the number of entries would cost memory for nothing.
  Status put(std::string_view piece, int64_t id, size_t expected) {
    const auto limit = static_cast<int64_t>(2 * expected + 65536);
    if (id < 0 || id >= limit) {
      return bad_data("token \"{}\" has the id {}; at most {} fit {} tokens", piece.substr(0, 60),
                      id, limit - 1, expected);
    }
    if (static_cast<size_t>(id) >= list.size()) {
      list.resize(static_cast<size_t>(id) + 1, VocabEntry{"", 0, TokenKind::unused});
    }
    VocabEntry& entry = list[static_cast<size_t>(id)];
    if (!entry.piece.empty() && entry.piece != piece) {
      return bad_data("id {} stands for \"{}\" and for \"{}\"", id, entry.piece.substr(0, 60),
                      piece.substr(0, 60));
    }
    entry = {std::string(piece), 0, TokenKind::normal};
    ids.try_emplace(entry.piece, static_cast<int32_t>(id));
    return ok_status();
  }
};

Status read_bpe_vocab(const JsonNode& model, Entries& entries) {
  PF_ASSIGN(const JsonNode node, need_field(model, "vocab"));
  sj::object vocab;
  if (node.get(vocab) != simdjson::SUCCESS) return bad_data("\"vocab\" is not an object");
  const size_t count = vocab.size();
  // size() saturates at 2^24 - 1; more tokens than that are refused by the id limit.
  entries.list.reserve(count);
  entries.ids.reserve(count);
  for (const auto field : vocab) {
    int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS) {
      return bad_data("the id of \"{}\" is not an integer", field.key.substr(0, 60));
    }
    PF_TRY(entries.put(field.key, id, count));
  }
  return ok_status();
}

Status read_unigram_vocab(const JsonNode& model, Entries& entries) {
  PF_ASSIGN(const sj::array vocab, array_field(model, "vocab"));
  for (const JsonNode item : vocab) {
    std::string_view piece;
    double score = 0;
    sj::array pair;
    if (item.get(pair) != simdjson::SUCCESS || pair.at(0).get(piece) != simdjson::SUCCESS ||
        pair.at(1).get(score) != simdjson::SUCCESS || !std::isfinite(score)) {
      return bad_data("\"vocab\"[{}] is not a piece and a number", entries.list.size());
    }
    const auto id = static_cast<int32_t>(entries.list.size());
    entries.list.push_back({std::string(piece), static_cast<float>(score), TokenKind::normal});
    entries.scores.push_back(score);
    entries.ids.try_emplace(std::string(piece), id);
  }
  return ok_status();
}

// Added tokens: their ids and kinds. Returns what is looked for in texts.
Result<std::vector<AddedToken>> read_added(const JsonNode& root, Entries& entries) {
  std::vector<AddedToken> added;
  if (is_absent(root.at_key("added_tokens"))) return added;
  PF_ASSIGN(const sj::array list, array_field(root, "added_tokens"));
  const size_t expected = entries.list.size() + list.size();
  for (const JsonNode item : list) {
    if (!item.is_object()) return bad_data("\"added_tokens\" holds something else than objects");
    AddedToken token;
    PF_ASSIGN(token.content, string_field(item, "content", ""));
    PF_ASSIGN(int64_t id, int_field(item, "id", -1));
    PF_ASSIGN(token.special, bool_field(item, "special", false));
    PF_ASSIGN(token.normalized, bool_field(item, "normalized", !token.special));
    PF_ASSIGN(token.lstrip, bool_field(item, "lstrip", false));
    PF_ASSIGN(token.rstrip, bool_field(item, "rstrip", false));
    PF_ASSIGN(token.single_word, bool_field(item, "single_word", false));
    if (token.content.empty()) continue;
    // The model's own id for the content wins, as in the reference.
    if (const auto it = entries.ids.find(token.content); it != entries.ids.end()) id = it->second;
    PF_TRY(entries.put(token.content, id, expected));
    token.id = static_cast<int32_t>(id);
    entries.list[static_cast<size_t>(id)].kind =
        token.special ? TokenKind::control : TokenKind::user_defined;
    added.push_back(std::move(token));
  }
  return added;
}

Result<std::vector<std::pair<std::string, std::string>>> read_merges(const JsonNode& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  PF_ASSIGN(const sj::array list, array_field(model, "merges"));
  merges.reserve(list.size());
  for (const JsonNode item : list) {
    std::string_view text, right;
    sj::array pair;
    if (item.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return bad_data("\"merges\"[{}] is not two pieces with a space between", merges.size());
      }
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (item.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
               pair.at(0).get(text) == simdjson::SUCCESS &&
               pair.at(1).get(right) == simdjson::SUCCESS) {
      merges.emplace_back(text, right);
    } else {
      return bad_data("\"merges\"[{}] is neither a string nor a pair", merges.size());
    }
  }
  return merges;
}

Status refuse_bpe_options(const JsonNode& model) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    PF_ASSIGN(const std::string_view value, string_field(model, key, ""));
    if (!value.empty()) return unsupported("BPE with \"{}\" is not supported", key);
  }
  PF_ASSIGN(const double dropout, field_or<double>(model, "dropout", 0, "a number"));
  if (dropout != 0) return unsupported("BPE with dropout is not supported: ids would be random");
  return ok_status();
}

Status make_bpe_model(const JsonNode& model, const Entries& entries, Pipeline& p) {
  BpeOptions options;
  PF_ASSIGN(options.byte_fallback, bool_field(model, "byte_fallback", false));
  PF_ASSIGN(options.ignore_merges, bool_field(model, "ignore_merges", false));
  PF_ASSIGN(options.fuse_unk, bool_field(model, "fuse_unk", false));
  PF_ASSIGN(const std::string_view unk, string_field(model, "unk_token", ""));
  if (const auto it = entries.ids.find(std::string(unk)); it != entries.ids.end())
    options.unk = it->second;
  PF_ASSIGN(const auto merges, read_merges(model));
  PF_ASSIGN(p.model, make_bpe(p.vocab, merges, options));
  return ok_status();
}

Status make_unigram_model(const JsonNode& model, const Entries& entries, Pipeline& p) {
  UnigramOptions options;
  PF_ASSIGN(const int64_t unk, int_field(model, "unk_id", -1));
  if (unk < -1 || unk >= static_cast<int64_t>(entries.list.size())) {
    return bad_data("\"unk_id\" is {}, the vocabulary has {} tokens", unk, entries.list.size());
  }
  options.unk = static_cast<int32_t>(unk);
  PF_ASSIGN(options.byte_fallback, bool_field(model, "byte_fallback", false));
  std::vector<double> scores = entries.scores;
  scores.resize(entries.list.size());
  p.model = make_unigram(p.vocab, std::move(scores), options);
  return ok_status();
}

Status check_id(int64_t id, const Pipeline& p, std::string_view where) {
  if (id >= 0 && id < p.vocab->size()) return ok_status();
  return bad_data("{} names the id {}, the vocabulary has {} tokens", where, id, p.vocab->size());
}

// The "single" template: special tokens before and after the text.
Status read_template(const JsonNode& node, Pipeline& p) {
  PF_ASSIGN(const sj::array items, array_field(node, "single"));
  bool after_text = false;
  for (const JsonNode item : items) {
    if (!item.is_object()) return bad_data("TemplateProcessing \"single\" is malformed");
    if (!is_absent(item.at_key("Sequence"))) {
      if (std::exchange(after_text, true)) return unsupported("a template with the text twice");
      continue;
    }
    PF_ASSIGN(const JsonNode special, need_field(item, "SpecialToken"));
    PF_ASSIGN(const std::string_view name, string_field(special, "id", ""));
    PF_ASSIGN(const JsonNode table, need_field(node, "special_tokens"));
    PF_ASSIGN(const JsonNode entry, need_field(table, name));
    PF_ASSIGN(const sj::array ids, array_field(entry, "ids"));
    for (const JsonNode value : ids) {
      int64_t id = -1;
      if (value.get(id) != simdjson::SUCCESS) return bad_data("\"ids\" of \"{}\"", name);
      PF_TRY(check_id(id, p, "TemplateProcessing"));
      (after_text ? p.suffix : p.prefix).push_back(static_cast<int32_t>(id));
    }
  }
  return ok_status();
}

// ["<s>", 0] of BertProcessing and RobertaProcessing.
Status read_pair_id(const JsonNode& node, std::string_view key, Pipeline& p,
                    std::vector<int32_t>& ids) {
  PF_ASSIGN(const sj::array pair, array_field(node, key));
  int64_t id = -1;
  if (pair.at(1).get(id) != simdjson::SUCCESS) return bad_data("\"{}\" holds no id", key);
  PF_TRY(check_id(id, p, key));
  ids.push_back(static_cast<int32_t>(id));
  return ok_status();
}

Status read_post_processor(const JsonNode& node, Pipeline& p) {
  PF_ASSIGN(const std::string_view type, type_of(node));
  if (type == "ByteLevel") return ok_status();  // changes offsets only
  if (type == "TemplateProcessing") return read_template(node, p);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PF_TRY(read_pair_id(node, "cls", p, p.prefix));
    return read_pair_id(node, "sep", p, p.suffix);
  }
  if (type == "Sequence") {
    PF_ASSIGN(const sj::array list, array_field(node, "processors"));
    for (const JsonNode step : list) PF_TRY(read_post_processor(step, p));
    return ok_status();
  }
  return unsupported("post-processor \"{}\" is not supported", type.substr(0, 60));
}

Status fill_bytes(const JsonNode& root, Pipeline& p) {
  DecodeRules rules;
  if (const auto node = root.at_key("decoder"); !is_absent(node)) {
    const Status read = read_decoder(node.value_unsafe(), rules);
    if (!read.ok()) return with_context(read, "decoder");
  }
  p.strips_first_space = rules.strips_first_space;
  p.bytes.resize(static_cast<size_t>(p.vocab->size()));
  for (int32_t id = 0; id < p.vocab->size(); ++id) {
    const VocabEntry& entry = (*p.vocab)[id];
    const bool added = entry.kind == TokenKind::control || entry.kind == TokenKind::user_defined;
    std::string text = entry.piece;
    for (const auto& step : rules.steps) step(text);
    std::string& bytes = p.bytes[static_cast<size_t>(id)];
    // An added token is text as it stands, even where its characters could mean bytes.
    if (!rules.byte_level || added || !append_char_bytes(text, bytes)) bytes = std::move(text);
  }
  return ok_status();
}

// A token of tokenizer_config.json: a string or {"content": ...}.
int32_t config_token(const JsonNode& config, std::string_view key, const Pipeline& p) {
  auto node = config.at_key(key);
  if (is_absent(node)) return -1;
  if (node.value_unsafe().is_object()) node = node.value_unsafe().at_key("content");
  std::string_view text;
  if (node.get(text) != simdjson::SUCCESS) return -1;
  return p.vocab->find(text);
}

Status apply_config(std::string_view text, Pipeline& p) {
  if (text.empty()) return ok_status();
  sj::parser parser;
  if (parser.allocate(text.size() + 1, kMaxDepth) != simdjson::SUCCESS) {
    return exhausted("no memory for a JSON text of {} bytes", text.size());
  }
  JsonNode config;
  if (const auto error = parser.parse(text.data(), text.size()).get(config); error) {
    return bad_data("invalid JSON: {}", simdjson::error_message(error));
  }
  if (!config.is_object()) return bad_data("not a JSON object");
  p.bos = config_token(config, "bos_token", p);
  p.eos = config_token(config, "eos_token", p);
  // These classes rebuild the template from add_bos_token; the others ignore it.
  PF_ASSIGN(const std::string_view name, string_field(config, "tokenizer_class", "Llama"));
  const bool obeys = name.starts_with("Llama") || name.starts_with("CodeLlama") ||
                     name.starts_with("Gemma") || name.starts_with("Cohere");
  if (!obeys || is_absent(config.at_key("add_bos_token")) || p.bos < 0) return ok_status();
  PF_ASSIGN(const bool add_bos, bool_field(config, "add_bos_token", false));
  std::erase(p.prefix, p.bos);
  if (add_bos) p.prefix.insert(p.prefix.begin(), p.bos);
  return ok_status();
}

Status add_matchers(std::vector<AddedToken> added, Pipeline& p) {
  for (AddedToken& token : added) {
    if (!token.normalized) {
      PF_TRY(p.raw_tokens.add(std::move(token)));
      continue;
    }
    for (const Normalizer& normalize : p.normalizers) {
      token.content = normalize(std::move(token.content));
    }
    PF_TRY(p.normalized_tokens.add(std::move(token)));
  }
  return ok_status();
}

Result<std::unique_ptr<Tokenizer>> build(const JsonNode& root, std::string_view config) {
  if (!root.is_object()) return bad_data("not a JSON object");
  PF_ASSIGN(const JsonNode model, need_field(root, "model"));
  if (!model.is_object()) return bad_data("\"model\" is not an object");
  // Old files name no type: only BPE has merges.
  const std::string_view guess = is_absent(model.at_key("merges")) ? "" : "BPE";
  PF_ASSIGN(const std::string_view type, string_field(model, "type", guess));
  const bool bpe = type == "BPE";
  if (!bpe && type != "Unigram") {
    return unsupported("model \"{}\" is not supported; known are: BPE, Unigram",
                       type.substr(0, 60));
  }
  Entries entries;
  PF_TRY(bpe ? read_bpe_vocab(model, entries) : read_unigram_vocab(model, entries));
  if (bpe) PF_TRY(refuse_bpe_options(model));
  PF_ASSIGN(std::vector<AddedToken> added, read_added(root, entries));
  if (entries.list.empty()) return bad_data("the vocabulary is empty");
  Pipeline p;
  p.vocab = std::make_shared<Vocabulary>(entries.list);
  PF_TRY(bpe ? make_bpe_model(model, entries, p) : make_unigram_model(model, entries, p));
  const auto read_step = [&](const char* key, auto&& read) {
    const auto node = root.at_key(key);
    if (is_absent(node)) return ok_status();
    const Status status = read(node.value_unsafe());
    return status.ok() ? status : with_context(status, key);
  };
  PF_TRY(read_step("normalizer",
                   [&](const JsonNode& n) { return read_normalizers(n, p.normalizers); }));
  PF_TRY(read_step("pre_tokenizer",
                   [&](const JsonNode& n) { return read_pre_tokenizers(n, p.pre_tokenizers); }));
  PF_TRY(read_step("post_processor", [&](const JsonNode& n) { return read_post_processor(n, p); }));
  PF_TRY(add_matchers(std::move(added), p));
  PF_TRY(fill_bytes(root, p));
  const Status configured = apply_config(config, p);
  if (!configured.ok()) return with_context(configured, "tokenizer_config.json");
  return make_pipeline_tokenizer(std::move(p));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view tokenizer_json,
                                                       std::string_view config) {
  if (tokenizer_json.size() > kMaxFile) {
    return bad_data("tokenizer.json has {} bytes; at most {} are read", tokenizer_json.size(),
                    kMaxFile);
  }
  sj::parser parser;
  if (parser.allocate(tokenizer_json.size() + 1, kMaxDepth) != simdjson::SUCCESS) {
    return exhausted("no memory for a JSON text of {} bytes", tokenizer_json.size());
  }
  JsonNode root;
  if (const auto error = parser.parse(tokenizer_json.data(), tokenizer_json.size()).get(root);
      error) {
    return bad_data("tokenizer.json: invalid JSON: {}", simdjson::error_message(error));
  }
  auto made = build(root, config);
  if (!made.ok()) return with_context(made.status(), "tokenizer.json");
  return made;
}

}  // namespace pagefold
