#include "text/jinja/lexer.h"

#include <array>

#include "text/jinja/utf8.h"

namespace pagefold::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_dec(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_dec(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// \r\n and \r become \n; one newline at the very end goes (Jinja's keep_trailing_newline is off).
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalise(source)), s_(text_) {}

  Result<std::vector<Token>> run() {
    while (at_ < s_.size()) PF_TRY(root());
    push(Tok::end, "");
    return std::move(tokens_);
  }

 private:
  Status fail(std::string_view what) const { return bad_input("line {}: {}", line_, what); }
  bool starts(std::string_view w, size_t at) const { return s_.substr(at, w.size()) == w; }
  void push(Tok type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }
  void advance_to(size_t to) {
    for (; at_ < to; ++at_) line_ += s_[at_] == '\n';
  }
  size_t skip_space(size_t at) const {
    return at + (s_.size() - at - trim_left(s_.substr(at)).size());
  }
  char sign_at(size_t at) const {
    return at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? s_[at] : '\0';
  }

  // The data before a tag at `end`, with what the tag's sign and lstrip_blocks take off its end.
  void emit_data(size_t end, char sign, bool variable) {
    std::string_view data = s_.substr(at_, end - at_);
    if (sign == '-') {
      data = trim_right(data);
    } else if (sign != '+' && !variable) {
      const size_t start = data.rfind('\n') + 1;  // npos + 1 == 0
      if ((start > 0 || line_starting_) && trim_left(data.substr(start)).empty()) {
        data = data.substr(0, start);
      }
    }
    if (!data.empty()) push(Tok::data, std::string(data));
    advance_to(end);
  }

  // Position after a block end ("%}", "-%}", "+%}", with the white space it eats), 0 if none here.
  size_t block_end_at(size_t at, std::string_view close, bool plus, bool trim) const {
    if (at < s_.size() && s_[at] == '-' && starts(close, at + 1)) return skip_space(at + 3);
    if (plus && at < s_.size() && s_[at] == '+' && starts(close, at + 1)) return at + 3;
    if (!starts(close, at)) return 0;
    return at + 2 + (trim && at + 2 < s_.size() && s_[at + 2] == '\n');
  }
  void finish_tag(size_t to) {
    advance_to(to);
    line_starting_ = s_[to - 1] == '\n';
  }

  Status root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = s_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= s_.size()) {
        push(Tok::data, std::string(s_.substr(at_)));
        advance_to(s_.size());
        return ok_status();
      }
      if (s_[tag + 1] == '{' || s_[tag + 1] == '%' || s_[tag + 1] == '#') break;
    }
    const char type = s_[tag + 1];
    const char sign = sign_at(tag + 2);
    const size_t body = tag + 2 + (sign != '\0');
    emit_data(tag, sign, type == '{');
    line_starting_ = false;
    if (type == '#') return comment(body);
    if (type == '%') {
      if (const size_t after = raw_begin_at(body)) return raw(after);
    }
    push(type == '{' ? Tok::print_begin : Tok::block_begin, "");
    advance_to(body);
    return type == '{' ? inside("}}") : inside("%}");
  }

  Status comment(size_t body) {
    for (size_t i = body; i < s_.size(); ++i) {
      i = s_.find('#', i);
      if (i == std::string_view::npos) break;
      if (!starts("#}", i)) continue;
      if (i > body && s_[i - 1] == '-') {
        finish_tag(skip_space(i + 2));
      } else if (i > body && s_[i - 1] == '+') {
        finish_tag(i + 2);
      } else {
        finish_tag(block_end_at(i, "#}", false, true));
      }
      return ok_status();
    }
    return fail("a comment is not closed");
  }

  size_t raw_begin_at(size_t at) const {
    at = skip_space(at);
    if (!starts("raw", at)) return 0;
    return block_end_at(skip_space(at + 3), "%}", false, false);
  }

  Status raw(size_t body) {
    advance_to(body);
    for (size_t i = body; (i = s_.find("{%", i)) != std::string_view::npos; i += 2) {
      const char sign = sign_at(i + 2);
      size_t word = skip_space(i + 2 + (sign != '\0'));
      if (!starts("endraw", word)) continue;
      const size_t after = block_end_at(skip_space(word + 6), "%}", true, true);
      if (after == 0) continue;
      emit_data(i, sign, false);
      finish_tag(after);
      return ok_status();
    }
    return fail("a raw block is not closed");
  }

  Status inside(std::string_view close) {
    const bool block = close == "%}";
    std::string open;  // brackets that wait for their partner
    while (true) {
      if (at_ >= s_.size()) return fail(block ? "a block tag is not closed" : "'{{' is not closed");
      if (open.empty()) {
        if (const size_t after = block_end_at(at_, close, block, block)) {
          push(block ? Tok::block_end : Tok::print_end, "");
          finish_tag(after);
          return ok_status();
        }
      }
      const char c = s_[at_];
      if (is_space(decode_utf8(s_, at_))) {
        advance_to(skip_space(at_));
      } else if (c == '"' || c == '\'') {
        PF_TRY(string_literal());
      } else if (is_dec(c)) {
        PF_TRY(number());
      } else if (is_name_start(c)) {
        size_t end = at_;
        while (end < s_.size() && is_name_char(s_[end])) ++end;
        push(Tok::name, std::string(s_.substr(at_, end - at_)));
        at_ = end;
      } else {
        PF_TRY(operator_token(open));
      }
    }
  }

  Status operator_token(std::string& open) {
    static constexpr std::array<std::string_view, 25> kOps = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view op : kOps) {
      if (!starts(op, at_)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) return fail(fmt::format("unexpected '{}'", op));
        open.pop_back();
      }
      push(Tok::op, std::string(op));
      at_ += op.size();
      return ok_status();
    }
    return fail(fmt::format("unexpected character '{}'", s_.substr(at_, utf8_width(s_[at_]))));
  }

  // Digits with single underscores between them.
  size_t digits(size_t at, std::string& out) const {
    while (at < s_.size()) {
      if (is_dec(s_[at])) {
        out += s_[at++];
      } else if (s_[at] == '_' && at + 1 < s_.size() && is_dec(s_[at + 1]) && !out.empty()) {
        ++at;
      } else {
        break;
      }
    }
    return at;
  }

  Status number() {
    if (s_[at_] == '0' && at_ + 1 < s_.size()) {
      const char p = static_cast<char>(s_[at_ + 1] | 32);
      const int base = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
      if (base != 0) return based_integer(base);
    }
    std::string text;
    size_t end = digits(at_, text);
    bool real = false;
    if (end + 1 < s_.size() && s_[end] == '.' && is_dec(s_[end + 1])) {
      text += '.';
      end = digits(end + 1, text);
      real = true;
    }
    if (end < s_.size() && (s_[end] | 32) == 'e') {
      size_t e = end + 1 + (sign_at(end + 1) != '\0');
      if (e < s_.size() && is_dec(s_[e])) {
        text.append(s_.substr(end, e - end));
        end = digits(e, text);
        real = true;
      }
    }
    if (!real && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != text.npos) {
      return fail("an integer cannot start with 0");
    }
    push(real ? Tok::real : Tok::integer, std::move(text));
    at_ = end;
    return ok_status();
  }

  Status based_integer(int base) {
    uint64_t n = 0;
    size_t i = at_ + 2;
    bool any = false;
    for (; i < s_.size(); ++i) {
      if (s_[i] == '_') continue;
      const int d = hex_digit(s_[i]);
      if (d < 0 || d >= base) break;
      if (n > (static_cast<uint64_t>(INT64_MAX) - d) / base) return fail("an integer is too large");
      n = n * base + d;
      any = true;
    }
    if (!any) return fail("an integer has no digits");
    push(Tok::integer, std::to_string(n));
    at_ = i;
    return ok_status();
  }

  Status string_literal() {
    const char quote = s_[at_];
    const int line = line_;
    std::string out;
    size_t i = at_ + 1;
    while (true) {
      if (i >= s_.size()) return fail("a string is not closed");
      if (s_[i] == quote) break;
      if (s_[i] != '\\') {
        out += s_[i++];
        continue;
      }
      PF_ASSIGN(i, escape(i + 1, out));
    }
    advance_to(i + 1);
    tokens_.push_back({Tok::string, std::move(out), line});
    return ok_status();
  }

  // Python's escapes; returns the position after the one whose letter is at `i`.
  Result<size_t> escape(size_t i, std::string& out) const {
    if (i >= s_.size()) return fail("a string is not closed");
    static constexpr std::string_view kFrom = "ntr\\'\"abfv0";
    static constexpr std::string_view kTo = "\n\t\r\\'\"\a\b\f\v";
    const char c = s_[i];
    if (c == '\n') return i + 1;
    if (c >= '0' && c <= '7') {
      uint32_t n = 0;
      size_t end = i;
      for (; end < s_.size() && end < i + 3 && s_[end] >= '0' && s_[end] <= '7'; ++end) {
        n = n * 8 + (s_[end] - '0');
      }
      append_utf8(out, n);
      return end;
    }
    if (const size_t k = kFrom.find(c); k < kTo.size()) {
      out += kTo[k];
      return i + 1;
    }
    const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (width == 0) {
      if (c == 'N') return fail("named characters (\\N{...}) are not supported");
      out += '\\';  // an unknown escape stays as written
      return i;
    }
    uint32_t n = 0;
    for (size_t k = 1; k <= width; ++k) {
      const int d = i + k < s_.size() ? hex_digit(s_[i + k]) : -1;
      if (d < 0) return fail(fmt::format("'\\{}' needs {} hexadecimal digits", c, width));
      n = n * 16 + d;
    }
    if (n > 0x10FFFF || (n >= 0xD800 && n < 0xE000)) return fail("an escape is not a character");
    append_utf8(out, n);
    return i + 1 + width;
  }

  std::string text_;
  std::string_view s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> lex(std::string_view source) {
  if (!valid_utf8(source)) return bad_input("the template is not valid UTF-8");
  return Lexer(source).run();
}

}  // namespace pagefold::jinja
