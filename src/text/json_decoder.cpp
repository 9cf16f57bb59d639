// Decoders work on the list of a text's tokens; here each becomes a rule for one token, so that a
// stream and a whole answer decode alike. What would need more than one token is refused.
#include "text/byte_map.h"
#include "text/json_steps.h"
#include "text/normalizer.h"
#include "text/token_model.h"

namespace pagefold {
namespace {

constexpr size_t kMaxDecoderText = 256;

Status read_replace(const JsonNode& node, DecodeRules& rules) {
  PF_ASSIGN(const JsonNode pattern, need_field(node, "pattern"));
  PF_ASSIGN(const std::string_view content, string_field(node, "content", ""));
  if (content.size() > kMaxDecoderText)
    return bad_data("a replacement of {} bytes", content.size());
  if (!pattern.is_object() || is_absent(pattern.at_key("String"))) {
    return unsupported("decoder Replace with a pattern that is not a plain string");
  }
  if (rules.fused) return unsupported("decoder Replace after Fuse");
  PF_ASSIGN(const std::string_view literal, string_field(pattern, "String", ""));
  const Normalizer replace = replace_normalizer(std::string(literal), std::string(content));
  rules.steps.push_back([replace](std::string& text) { text = replace(std::move(text)); });
  return ok_status();
}

Status read_strip(const JsonNode& node, DecodeRules& rules) {
  PF_ASSIGN(const std::string_view content, string_field(node, "content", " "));
  PF_ASSIGN(const int64_t start, int_field(node, "start", 0));
  PF_ASSIGN(const int64_t stop, int_field(node, "stop", 0));
  if (rules.fused) {
    if (content != " " || start > 1 || start < 0 || stop != 0) {
      return unsupported("decoder Strip after Fuse that strips more than one leading space");
    }
    rules.strips_first_space = start == 1;
    return ok_status();
  }
  if (start < 0 || stop < 0 || content.empty()) return bad_data("decoder Strip is malformed");
  rules.steps.push_back([mark = std::string(content), start, stop](std::string& text) {
    for (int64_t i = 0; i < start && text.starts_with(mark); ++i) text.erase(0, mark.size());
    for (int64_t i = 0; i < stop && text.ends_with(mark); ++i) {
      text.resize(text.size() - mark.size());
    }
  });
  return ok_status();
}

Status read_metaspace(const JsonNode& node, DecodeRules& rules) {
  PF_ASSIGN(const std::string_view mark, string_field(node, "replacement", "\xE2\x96\x81"));
  PF_ASSIGN(const bool add_prefix, bool_field(node, "add_prefix_space", true));
  PF_ASSIGN(const std::string_view scheme,
            string_field(node, "prepend_scheme", add_prefix ? "always" : "never"));
  const Normalizer replace = replace_normalizer(std::string(mark), " ");
  rules.steps.push_back([replace](std::string& text) { text = replace(std::move(text)); });
  rules.strips_first_space = scheme != "never";
  return ok_status();
}

}  // namespace

Status read_decoder(const JsonNode& node, DecodeRules& rules) {
  PF_ASSIGN(const std::string_view type, type_of(node));
  if (type == "Sequence") {
    PF_ASSIGN(const simdjson::dom::array list, array_field(node, "decoders"));
    for (const JsonNode step : list) PF_TRY(read_decoder(step, rules));
    return ok_status();
  }
  if (type == "Replace") return read_replace(node, rules);
  if (type == "Strip") return read_strip(node, rules);
  if (type == "Metaspace") return read_metaspace(node, rules);
  if (type == "Fuse") {
    rules.fused = true;
  } else if (type == "ByteLevel") {
    rules.byte_level = true;
  } else if (type == "ByteFallback") {
    rules.steps.push_back([](std::string& text) {
      if (const int value = byte_piece_value(text); value >= 0) {
        text.assign(1, static_cast<char>(value));
      }
    });
  } else {
    return unsupported("decoder \"{}\" is not supported", type.substr(0, 60));
  }
  return ok_status();
}

}  // namespace pagefold
