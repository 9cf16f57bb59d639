#include "formats/gguf.h"

namespace pagefold {
namespace {

// At most max_chars bytes, cut between UTF-8 characters; control bytes become '\xNN', line feeds
// "\n".
std::string show_text(std::string_view text, size_t max_chars) {
  std::string out = "\"";
  size_t i = 0;
  for (; i < text.size() && out.size() < max_chars; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  for (; i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0u) == 0x80u; ++i) {
    out += text[i];  // the rest of a character
    if (i + 1 < text.size() && out.size() > max_chars + 3) break;
  }
  out += '"';
  if (i < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string show(bool value, size_t) { return value ? "true" : "false"; }
std::string show(uint64_t value, size_t) { return fmt::format("{}", value); }
std::string show(int64_t value, size_t) { return fmt::format("{}", value); }
// Float32 in the file, mostly: eight digits tell any two of them apart without the widening's tail.
std::string show(double value, size_t) { return fmt::format("{:.8g}", value); }
std::string show(const std::string& value, size_t max_chars) { return show_text(value, max_chars); }

template <class T>
std::string show(const std::vector<T>& values, size_t max_chars) {
  std::string out = "[";
  size_t i = 0;
  for (; i < values.size() && out.size() < max_chars; ++i) {
    if (i > 0) out += ", ";
    out += show(static_cast<const T&>(values[i]), max_chars / 2);
  }
  if (i < values.size()) out += ", ...";
  return out + fmt::format("] ({} elements)", values.size());
}

}  // namespace

std::string to_display(const GgufValue& value, size_t max_chars) {
  return std::visit([max_chars](const auto& v) { return show(v, max_chars); }, value);
}

}  // namespace pagefold
