#include "text/pipeline.h"

#include <algorithm>

#include "base/check.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

class PipelineTokenizer : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline) : p_(std::move(pipeline)) {
    PF_CHECK(p_.bytes.size() == static_cast<size_t>(p_.vocab->size()));
  }

  std::vector<int32_t> encode(std::string_view text, bool add_special,
                              bool parse_special) const override {
    return encode_up_to(text, add_special, parse_special, SIZE_MAX);
  }

  std::vector<int32_t> encode_up_to(std::string_view text, bool add_special, bool parse_special,
                                    size_t limit) const override {
    std::string repaired;
    if (!is_valid_utf8(text)) text = repaired = sanitize_utf8(text);
    std::vector<int32_t> ids;
    if (add_special) ids = p_.prefix;
    std::vector<AddedTokenMatcher::Part> parts;
    if (p_.raw_tokens.empty()) {
      if (!text.empty()) parts.push_back({0, text.size(), -1});
    } else {
      p_.raw_tokens.split(text, !parse_special, parts);
    }
    for (const auto& part : parts) {
      if (ids.size() > limit) break;
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_part(std::string(text.substr(part.begin, part.end - part.begin)), part.begin == 0,
                    parse_special, limit, ids);
      }
    }
    if (add_special) ids.insert(ids.end(), p_.suffix.begin(), p_.suffix.end());
    return ids;
  }

  std::string token_bytes(int32_t id, bool skip_special) const override {
    if (!p_.vocab->contains(id) || (skip_special && is_special(id))) return {};
    return p_.bytes[static_cast<size_t>(id)];
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string raw;
    for (const int32_t id : ids) {
      if (!p_.vocab->contains(id) || (skip_special && is_special(id))) continue;
      raw += p_.bytes[static_cast<size_t>(id)];
    }
    std::string_view text = raw;
    if (p_.strips_first_space && text.starts_with(' ')) text.remove_prefix(1);
    return sanitize_utf8(text);
  }

  const std::string& piece(int32_t id) const override {
    static const std::string none;
    return p_.vocab->contains(id) ? (*p_.vocab)[id].piece : none;
  }
  bool is_special(int32_t id) const override {
    return p_.vocab->contains(id) && p_.vocab->is_reserved(id);
  }
  int32_t find_piece(std::string_view piece) const override { return p_.vocab->find(piece); }
  int32_t vocab_size() const override { return p_.vocab->size(); }
  int32_t bos() const override { return p_.bos; }
  int32_t eos() const override { return p_.eos; }
  bool adds_bos() const override {
    return p_.bos >= 0 && std::find(p_.prefix.begin(), p_.prefix.end(), p_.bos) != p_.prefix.end();
  }
  bool strips_first_space() const override { return p_.strips_first_space; }

 private:
  // One stretch of text between added tokens.
  void encode_part(std::string text, bool at_start, bool parse_special, size_t limit,
                   std::vector<int32_t>& ids) const {
    for (const Normalizer& normalize : p_.normalizers) text = normalize(std::move(text));
    if (p_.normalized_tokens.empty()) return encode_text(std::move(text), at_start, limit, ids);
    std::vector<AddedTokenMatcher::Part> parts;
    p_.normalized_tokens.split(text, !parse_special, parts);
    for (const auto& part : parts) {
      if (ids.size() > limit) break;
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_text(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0,
                    limit, ids);
      }
    }
  }

  void encode_text(std::string text, bool at_start, size_t limit, std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    Splits splits{std::move(text), {}, at_start};
    splits.spans.push_back({0, splits.text.size()});
    for (const PreTokenizer& step : p_.pre_tokenizers) step(splits);
    const std::string_view all = splits.text;
    for (const TextSpan s : splits.spans) {
      if (ids.size() > limit) break;
      p_.model->encode(all.substr(s.begin, s.end - s.begin), limit, ids);
    }
  }

  Pipeline p_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline_tokenizer(Pipeline pipeline) {
  return std::make_unique<PipelineTokenizer>(std::move(pipeline));
}

}  // namespace pagefold
