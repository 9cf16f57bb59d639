#include "text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>

#include "text/byte_map.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace pagefold {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const icu::Normalizer2* instance_of(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::nfc:
      return icu::Normalizer2::getNFCInstance(status);
    case NormalForm::nfd:
      return icu::Normalizer2::getNFDInstance(status);
    case NormalForm::nfkc:
      return icu::Normalizer2::getNFKCInstance(status);
    case NormalForm::nfkd:
      return icu::Normalizer2::getNFKDInstance(status);
  }
  return nullptr;
}

// map(c, out) writes what becomes of a character.
template <class Map>
std::string map_chars(std::string_view text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) map(utf8_next(text, pos), out);
  return out;
}

void append_lower(char32_t c, std::string& out) {
  if (c == 0x130) {  // the one character whose lower case is two
    out += "i\xCC\x87";
  } else {
    utf8_append(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
  }
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace

Normalizer unicode_normalizer(NormalForm form) {
  return [form](std::string text) {
    if (is_ascii(text)) return text;
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* normalizer = instance_of(form, status);
    if (U_FAILURE(status)) return text;
    std::string out;
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
    normalizer->normalizeUTF8(0, text, sink, nullptr, status);
    return U_FAILURE(status) ? text : out;
  };
}

Normalizer lowercase_normalizer() {
  return [](std::string text) { return map_chars(text, append_lower); };
}

Normalizer prepend_normalizer(std::string prefix) {
  return [prefix = std::move(prefix)](std::string text) {
    return text.empty() ? text : prefix + text;
  };
}

Normalizer replace_normalizer(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](std::string text) {
    if (from.empty() || text.find(from) == std::string::npos) return text;
    std::string out;
    size_t done = 0;
    for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
      out.append(text, done, at - done);
      out += to;
    }
    return out.append(text, done);
  };
}

Normalizer replace_normalizer(std::shared_ptr<const Regex> from, std::string to) {
  return [from = std::move(from), to = std::move(to)](std::string text) {
    std::vector<TextSpan> matches;
    from->find_all(text, matches);
    std::string out;
    size_t done = 0;
    for (const TextSpan m : matches) {
      out.append(text, done, m.begin - done);
      out += to;
      done = m.end;
    }
    return out.append(text, done);
  };
}

Normalizer strip_normalizer(bool left, bool right) {
  return [left, right](std::string text) {
    size_t begin = 0, end = text.size();
    if (left) {
      for (size_t at = 0; at < text.size() && is_space(utf8_next(text, at));) begin = at;
    }
    if (right) {
      for (size_t at = end; at > begin && is_space(utf8_prev(text, at));) end = at;
    }
    return text.substr(begin, end - begin);
  };
}

Normalizer strip_accents_normalizer() {
  return [](std::string text) {
    return map_chars(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) utf8_append(out, c);
    });
  };
}

Normalizer byte_level_normalizer() {
  return [](std::string text) {
    std::string out;
    append_byte_chars(text, out);
    return out;
  };
}

Normalizer precompiled_normalizer(std::shared_ptr<const CharsMap> map) {
  return [map = std::move(map)](std::string text) { return map->normalize_graphemes(text); };
}

Normalizer nmt_normalizer() {
  return [](std::string text) {
    return map_chars(text, [](char32_t c, std::string& out) {
      const bool gone = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                        c == 0x8F || c == 0x9F;
      if (gone) return;
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      utf8_append(out, space ? U' ' : c);
    });
  };
}

Normalizer bert_normalizer(const BertRules& rules) {
  const Normalizer nfd = unicode_normalizer(NormalForm::nfd);
  return [rules, nfd](std::string text) {
    if (rules.clean_text) {
      text = map_chars(text, [](char32_t c, std::string& out) {
        const bool tab = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (is_control(c) && !tab)) return;
        utf8_append(out, is_space(c) ? U' ' : c);
      });
    }
    if (rules.chinese_chars) {
      text = map_chars(text, [](char32_t c, std::string& out) {
        const bool pad = is_chinese(c);
        if (pad) out += ' ';
        utf8_append(out, c);
        if (pad) out += ' ';
      });
    }
    if (rules.strip_accents) {
      text = map_chars(nfd(std::move(text)), [](char32_t c, std::string& out) {
        if (!is_nonspacing(c)) utf8_append(out, c);
      });
    }
    return rules.lowercase ? map_chars(text, append_lower) : text;
  };
}

Normalizer sentencepiece_normalizer(SentencePieceRules rules) {
  return [rules = std::move(rules)](std::string text) {
    if (rules.map != nullptr) text = rules.map->normalize(text);
    std::string out;
    out.reserve(text.size() + text.size() / 2 + 3);
    bool after_space = rules.remove_extra;
    for (const char c : text) {
      if (c != ' ') {
        out += c;
      } else if (!(rules.remove_extra && after_space)) {
        out += kSpaceMark;
      }
      after_space = c == ' ';
    }
    while (rules.remove_extra && out.ends_with(kSpaceMark)) {
      out.resize(out.size() - kSpaceMark.size());
    }
    if (rules.add_prefix && !out.empty()) out.insert(0, kSpaceMark);
    return out;
  };
}

}  // namespace pagefold
