#include "text/char_class.h"
#include "text/json_steps.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr size_t kMaxMark = 16;  // bytes of what stands for a space

Status read_split(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  PF_ASSIGN(const JsonNode pattern, need_field(node, "pattern"));
  PF_ASSIGN(const std::string_view word, string_field(node, "behavior", "Isolated"));
  PF_ASSIGN(const SplitBehavior behavior, parse_split_behavior(word));
  PF_ASSIGN(const bool invert, bool_field(node, "invert", false));
  if (!pattern.is_object()) return bad_data("\"pattern\" is not an object");
  std::string source;
  if (!is_absent(pattern.at_key("String"))) {
    PF_ASSIGN(const std::string_view literal, string_field(pattern, "String", ""));
    source = Regex::escape(literal);
  } else {
    PF_ASSIGN(source, string_field(pattern, "Regex", ""));
  }
  PF_ASSIGN(auto regex, Regex::compile(source));
  steps.push_back(split_by_pattern(std::move(regex), behavior, invert));
  return ok_status();
}

Status read_byte_level(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  PF_ASSIGN(const bool prefix_space, bool_field(node, "add_prefix_space", true));
  PF_ASSIGN(const bool use_regex, bool_field(node, "use_regex", true));
  steps.push_back(byte_level(use_regex ? gpt2_pattern() : nullptr, prefix_space));
  return ok_status();
}

Status read_metaspace(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  PF_ASSIGN(const std::string_view mark, string_field(node, "replacement", "\xE2\x96\x81"));
  if (mark.empty() || mark.size() > kMaxMark) {
    return bad_data("\"replacement\" has {} bytes (1 to {} are allowed)", mark.size(), kMaxMark);
  }
  PF_ASSIGN(const bool add_prefix, bool_field(node, "add_prefix_space", true));
  PF_ASSIGN(const std::string_view scheme,
            string_field(node, "prepend_scheme", add_prefix ? "always" : "never"));
  PF_ASSIGN(const bool split, bool_field(node, "split", true));
  PrependScheme prepend = PrependScheme::always;
  if (scheme == "first") {
    prepend = PrependScheme::first;
  } else if (scheme == "never") {
    prepend = PrependScheme::never;
  } else if (scheme != "always") {
    return unsupported("Metaspace prepend_scheme \"{}\" is not supported", scheme.substr(0, 60));
  }
  steps.push_back(metaspace(std::string(mark), prepend, split));
  return ok_status();
}

Status read_delimiter(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  PF_ASSIGN(const std::string_view delimiter, string_field(node, "delimiter", ""));
  size_t pos = 0;
  if (delimiter.empty()) return bad_data("\"delimiter\" is empty");
  const char32_t c = utf8_next(delimiter, pos);
  if (pos != delimiter.size()) return bad_data("\"delimiter\" is not one character");
  steps.push_back(split_by_char(c, SplitBehavior::removed));
  return ok_status();
}

Status read_one(std::string_view type, const JsonNode& node, std::vector<PreTokenizer>& steps) {
  if (type == "ByteLevel") return read_byte_level(node, steps);
  if (type == "Split") return read_split(node, steps);
  if (type == "Metaspace") return read_metaspace(node, steps);
  if (type == "CharDelimiterSplit") return read_delimiter(node, steps);
  if (type == "Digits") {
    PF_ASSIGN(const bool individual, bool_field(node, "individual_digits", false));
    steps.push_back(split_by_class(
        is_numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (type == "Punctuation") {
    PF_ASSIGN(const std::string_view word, string_field(node, "behavior", "Isolated"));
    PF_ASSIGN(const SplitBehavior behavior, parse_split_behavior(word));
    steps.push_back(split_by_class(is_punctuation, behavior));
  } else if (type == "Whitespace") {
    steps.push_back(split_words());
  } else if (type == "WhitespaceSplit") {
    steps.push_back(split_by_class(is_space, SplitBehavior::removed));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(split_by_class(is_space, SplitBehavior::removed));
    steps.push_back(split_by_class(is_punctuation, SplitBehavior::isolated));
  } else {
    return unsupported("pre-tokenizer \"{}\" is not supported", type.substr(0, 60));
  }
  return ok_status();
}

}  // namespace

Status read_pre_tokenizers(const JsonNode& node, std::vector<PreTokenizer>& steps) {
  PF_ASSIGN(const std::string_view type, type_of(node));
  if (type != "Sequence") return read_one(type, node, steps);
  PF_ASSIGN(const simdjson::dom::array list, array_field(node, "pretokenizers"));
  for (const JsonNode step : list) PF_TRY(read_pre_tokenizers(step, steps));
  return ok_status();
}

}  // namespace pagefold
