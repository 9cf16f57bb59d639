#include <cmath>
#include <limits>

#include "formats/gguf.h"

namespace pagefold {
namespace {

// About max_chars bytes, cut between UTF-8 characters; line feeds as "\n", other control bytes as
// \xNN.
std::string show_text(std::string_view text, size_t max_chars) {
  std::string out = "\"";
  size_t i = 0;
  const auto append = [&] {
    const auto byte = static_cast<unsigned char>(text[i++]);
    if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += static_cast<char>(byte);
    }
  };
  const auto continues = [&] {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0u) == 0x80u;
  };
  while (i < text.size() && out.size() < max_chars) append();
  for (int rest = 0; rest < 3 && continues(); ++rest) append();  // of the last character
  out += '"';
  if (i < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string show(bool value, size_t) { return value ? "true" : "false"; }
std::string show(uint64_t value, size_t) { return fmt::format("{}", value); }
std::string show(int64_t value, size_t) { return fmt::format("{}", value); }
// Most are float32 in the file: shown as such, without the digits that widening adds.
std::string show(double value, size_t) {
  if (std::abs(value) <= std::numeric_limits<float>::max()) {
    if (const auto narrow = static_cast<float>(value); static_cast<double>(narrow) == value) {
      return fmt::format("{}", narrow);
    }
  }
  return fmt::format("{}", value);
}
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
