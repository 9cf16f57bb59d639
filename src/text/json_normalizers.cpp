#include <optional>

#include "text/json_steps.h"
#include "text/normalizer.h"

namespace pagefold {
namespace {

constexpr size_t kMaxReplacement = 256;  // bounds how much a text can grow

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return bad_data("\"precompiled_charsmap\" is not base64");
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFFFFu;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    out += static_cast<char>((bits >> n_bits) & 0xFFu);
  }
  return out;
}

Result<Normalizer> read_replace(const JsonNode& node) {
  PF_ASSIGN(const JsonNode pattern, need_field(node, "pattern"));
  PF_ASSIGN(const std::string_view content, string_field(node, "content", ""));
  if (content.size() > kMaxReplacement) {
    return bad_data("a replacement of {} bytes; at most {} are allowed", content.size(),
                    kMaxReplacement);
  }
  if (!pattern.is_object()) return bad_data("\"pattern\" is not an object");
  if (!is_absent(pattern.at_key("String"))) {
    PF_ASSIGN(const std::string_view literal, string_field(pattern, "String", ""));
    return replace_normalizer(std::string(literal), std::string(content));
  }
  PF_ASSIGN(const std::string_view source, string_field(pattern, "Regex", ""));
  PF_ASSIGN(auto regex, Regex::compile(source));
  return replace_normalizer(std::move(regex), std::string(content));
}

Result<Normalizer> read_bert(const JsonNode& node) {
  BertRules rules;
  PF_ASSIGN(rules.clean_text, bool_field(node, "clean_text", true));
  PF_ASSIGN(rules.chinese_chars, bool_field(node, "handle_chinese_chars", true));
  PF_ASSIGN(rules.lowercase, bool_field(node, "lowercase", true));
  PF_ASSIGN(rules.strip_accents, bool_field(node, "strip_accents", rules.lowercase));
  return bert_normalizer(rules);
}

Result<Normalizer> read_strip(const JsonNode& node) {
  PF_ASSIGN(const bool left, bool_field(node, "strip_left", true));
  PF_ASSIGN(const bool right, bool_field(node, "strip_right", true));
  return strip_normalizer(left, right);
}

Result<Normalizer> read_prepend(const JsonNode& node) {
  PF_ASSIGN(const std::string_view prefix, string_field(node, "prepend", ""));
  if (prefix.size() > kMaxReplacement) return bad_data("a prefix of {} bytes", prefix.size());
  return prepend_normalizer(std::string(prefix));
}

Result<Normalizer> read_precompiled(const JsonNode& node) {
  PF_ASSIGN(const std::string_view encoded, string_field(node, "precompiled_charsmap", ""));
  PF_ASSIGN(const std::string blob, decode_base64(encoded));
  PF_ASSIGN(auto map, CharsMap::parse(blob));
  return precompiled_normalizer(std::move(map));
}

Result<Normalizer> read_one(std::string_view type, const JsonNode& node) {
  if (type == "NFC") return unicode_normalizer(NormalForm::nfc);
  if (type == "NFD") return unicode_normalizer(NormalForm::nfd);
  if (type == "NFKC") return unicode_normalizer(NormalForm::nfkc);
  if (type == "NFKD") return unicode_normalizer(NormalForm::nfkd);
  if (type == "Lowercase") return lowercase_normalizer();
  if (type == "StripAccents") return strip_accents_normalizer();
  if (type == "ByteLevel") return byte_level_normalizer();
  if (type == "Nmt") return nmt_normalizer();
  if (type == "Prepend") return read_prepend(node);
  if (type == "Replace") return read_replace(node);
  if (type == "Strip") return read_strip(node);
  if (type == "Precompiled") return read_precompiled(node);
  if (type == "BertNormalizer") return read_bert(node);
  return unsupported("normalizer \"{}\" is not supported", type.substr(0, 60));
}

}  // namespace

Status read_normalizers(const JsonNode& node, std::vector<Normalizer>& steps) {
  PF_ASSIGN(const std::string_view type, type_of(node));
  if (type == "Sequence") {
    PF_ASSIGN(const simdjson::dom::array list, array_field(node, "normalizers"));
    for (const JsonNode step : list) PF_TRY(read_normalizers(step, steps));
    return ok_status();
  }
  PF_ASSIGN(Normalizer step, read_one(type, node));
  steps.push_back(std::move(step));
  return ok_status();
}

}  // namespace pagefold
