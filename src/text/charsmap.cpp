#include "text/charsmap.h"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr size_t kMaxBlob = 16 << 20;
constexpr size_t kMaxRuleText = 1024;
constexpr size_t kShortGrapheme = 6;

uint32_t little_u32(std::string_view bytes, size_t at) {
  const auto b = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i]));
  };
  return b(0) | b(1) << 8 | b(2) << 16 | b(3) << 24;
}

// A unit of a darts-clone array.
bool has_leaf(uint32_t unit) { return (unit >> 8) & 1u; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

Result<std::shared_ptr<const CharsMap>> CharsMap::parse(std::string_view blob) {
  if (blob.size() < 4 || blob.size() > kMaxBlob) {
    return bad_data("a charsmap of {} bytes (4 to {} are allowed)", blob.size(), kMaxBlob);
  }
  const size_t trie_bytes = little_u32(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size() - 4) {
    return bad_data("a charsmap whose trie has {} bytes of {}", trie_bytes, blob.size() - 4);
  }
  auto map = std::make_shared<CharsMap>();
  map->units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < map->units_.size(); ++i) map->units_[i] = little_u32(blob, 4 + 4 * i);
  map->texts_ = blob.substr(4 + trie_bytes);
  return std::shared_ptr<const CharsMap>(std::move(map));
}

CharsMap::Rule CharsMap::find(std::string_view text, bool longest) const {
  Rule found;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    found = {i + 1, units_[node] & 0x7FFFFFFFu};
    if (!longest) break;
  }
  return found;
}

std::string_view CharsMap::replacement(const Rule& rule) const {
  if (rule.offset >= texts_.size()) return {};
  const std::string_view rest = std::string_view(texts_).substr(rule.offset, kMaxRuleText);
  return rest.substr(0, rest.find('\0'));
}

std::string CharsMap::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Rule rule = find(text.substr(pos), true);
    if (rule.length > 0) {
      out += replacement(rule);
      pos += rule.length;
    } else {
      const size_t begin = pos;
      utf8_next(text, pos);
      out += text.substr(begin, pos - begin);
    }
  }
  return sanitize_utf8(out);
}

bool CharsMap::transform(std::string_view text, std::string& out) const {
  const Rule rule = find(text, false);
  if (rule.length > 0) out += replacement(rule);
  return rule.length > 0;
}

std::string CharsMap::normalize_graphemes(std::string_view text) const {
  UErrorCode status = U_ZERO_ERROR;
  UText source = UTEXT_INITIALIZER;
  utext_openUTF8(&source, text.data(), static_cast<int64_t>(text.size()), &status);
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  if (U_FAILURE(status) || breaks == nullptr) return std::string(text);
  breaks->setText(&source, status);
  std::string out;
  out.reserve(text.size());
  int32_t begin = breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    const std::string_view grapheme =
        text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    begin = end;
    if (grapheme.size() < kShortGrapheme && transform(grapheme, out)) continue;
    for (size_t pos = 0; pos < grapheme.size();) {
      const size_t from = pos;
      utf8_next(grapheme, pos);
      const std::string_view c = grapheme.substr(from, pos - from);
      if (!transform(c, out)) out += c;
    }
  }
  utext_close(&source);
  return sanitize_utf8(out);
}

}  // namespace pagefold
