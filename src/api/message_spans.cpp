#include "api/message_spans.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace pagefold {
namespace {

constexpr uint32_t kPrivate = 0xfffe;  // characters from U+100000 on
constexpr int kMostRuns = 24;          // of the template, to learn where messages end
constexpr std::string_view kBlank = " \t\r\n";

// The offset of the private-use character at `at`, if there is one.
std::optional<uint32_t> private_use_at(std::string_view text, size_t at) {
  if (at + 4 > text.size() || static_cast<uint8_t>(text[at]) != 0xF4) return std::nullopt;
  uint32_t c = 4;
  for (size_t i = 1; i < 4; ++i) c = c << 6 | (static_cast<uint8_t>(text[at + i]) & 63);
  return c >= 0x100000 ? std::optional(c - 0x100000) : std::nullopt;
}

void note_used(std::string_view text, std::vector<bool>& used) {
  for (size_t at = text.find('\xF4'); at != std::string_view::npos;
       at = text.find('\xF4', at + 1)) {
    const auto c = private_use_at(text, at);
    if (c && *c < kPrivate) used[*c] = true;
  }
}

class Extents {
 public:
  explicit Extents(const WrittenChat& w) : w_(w) {}

  // False: the template does not show the messages.
  bool find();
  size_t size() const { return n_; }
  const std::string& role(size_t i) const { return roles_[i]; }
  ByteSpan span(size_t i) const { return {i == 0 ? 0 : lower_[i - 1], upper_[i]}; }

 private:
  std::string clean(std::string text) const;
  std::optional<std::string> first_messages(size_t n, bool marked) const;
  std::optional<size_t> end_of(size_t i);
  const std::optional<std::string>& trailer_of(size_t i);
  std::string with_mark(const std::string& content, size_t i) const;

  const WrittenChat& w_;
  size_t n_ = 0;
  std::vector<std::string> roles_, marks_;
  std::vector<std::string> blanks_;                             // at the end of each message's text
  std::vector<std::optional<size_t>> ends_;                     // of each message's text
  std::vector<size_t> lower_, upper_;                           // bounds of the end of each message
  std::map<std::string, std::optional<std::string>> trailers_;  // by role
  int runs_ = 0;
};

// Without what is no text: the conversation's own marks, and what lies behind its end.
std::string Extents::clean(std::string text) const {
  if (!w_.cut_at.empty()) text.resize(std::min(text.rfind(w_.cut_at), text.size()));
  for (const std::string& piece : w_.noise) text = without_piece(std::move(text), piece);
  return text;
}

std::string Extents::with_mark(const std::string& content, size_t i) const {
  std::string_view text = content;
  size_t end = text.size();
  if (!w_.cut_at.empty() && text.ends_with(w_.cut_at)) end -= w_.cut_at.size();
  end -= blanks_[i].size();
  return content.substr(0, end) + marks_[i] + content.substr(end);
}

// The template's text of the first n messages, nothing begun after them.
std::optional<std::string> Extents::first_messages(size_t n, bool marked) const {
  Json context = w_.context;
  Json& messages = context["messages"];
  messages.erase(messages.begin() + static_cast<long>(n), messages.end());
  context["add_generation_prompt"] = false;
  Json& content = messages.back()["content"];
  if (marked) content = with_mark(content.get<std::string>(), n - 1);
  auto text = w_.chat.render(context);
  if (!text.ok()) return std::nullopt;
  return clean(*std::move(text));
}

// What the template writes after the text of a message of this role.
const std::optional<std::string>& Extents::trailer_of(size_t i) {
  const auto known = trailers_.find(roles_[i]);
  if (known != trailers_.end()) return known->second;
  std::optional<std::string>& trailer = trailers_[roles_[i]];
  if (runs_++ >= kMostRuns) return trailer;
  const auto text = first_messages(i + 1, true);
  const size_t at = text ? text->rfind(marks_[i]) : std::string::npos;
  if (at == std::string::npos) return trailer;
  std::string rest = text->substr(at + marks_[i].size());
  if (rest.starts_with(blanks_[i])) rest.erase(0, blanks_[i].size());
  trailer = std::move(rest);
  return trailer;
}

std::optional<size_t> Extents::end_of(size_t i) {
  if (!ends_[i]) {  // a message without text of its own, such as a call of a tool
    if (runs_++ >= kMostRuns) return std::nullopt;
    const auto text = first_messages(i + 1, false);
    if (text && w_.text.starts_with(*text)) return text->size();
    return std::nullopt;
  }
  const std::optional<std::string>& trailer = trailer_of(i);
  if (!trailer) return std::nullopt;
  for (const std::string& blank : {std::string(), blanks_[i]}) {
    if (w_.text.substr(*ends_[i]).starts_with(blank + *trailer)) {
      return *ends_[i] + blank.size() + trailer->size();
    }
  }
  return *ends_[i];
}

bool Extents::find() {
  Json context = w_.context;
  Json& messages = context["messages"];
  n_ = messages.size();
  std::vector<bool> used(kPrivate, false);
  note_used(dump_json(context), used);
  note_used(w_.chat.source(), used);
  for (uint32_t c = 0; c < kPrivate && marks_.size() < n_; ++c) {
    if (!used[c]) marks_.push_back(private_use_character(c));
  }
  if (marks_.size() < n_) return false;
  ends_.resize(n_);
  blanks_.resize(n_);
  std::map<std::string, size_t, std::less<>> index;
  for (size_t i = 0; i < n_; ++i) {
    index[marks_[i]] = i;
    roles_.push_back(messages[i].value("role", ""));
    Json& content = messages[i]["content"];
    if (!content.is_string()) continue;
    std::string text = content.get<std::string>();
    std::string_view own = text;
    if (!w_.cut_at.empty() && own.ends_with(w_.cut_at)) own.remove_suffix(w_.cut_at.size());
    const size_t last = own.find_last_not_of(kBlank);
    if (last == std::string_view::npos) continue;  // templates treat empty ones differently
    blanks_[i] = own.substr(last + 1);
    content = with_mark(text, i);
  }
  const auto rendered = w_.chat.render(context);
  if (!rendered.ok()) return false;
  // Marks are taken out one by one, so that their places are those in the text without them.
  const std::string marked = clean(*rendered);
  std::string plain;
  plain.reserve(w_.text.size());
  for (size_t at = 0; at < marked.size();) {
    const auto mark = private_use_at(marked, at)
                          ? index.find(std::string_view(marked).substr(at, 4))
                          : index.end();
    if (mark != index.end()) {
      ends_[mark->second] = plain.size();
      at += 4;
    } else {
      plain.push_back(marked[at++]);
    }
  }
  const bool shown = std::any_of(ends_.begin(), ends_.end(), [](const auto& e) { return e; });
  if (plain != w_.text || !shown) return false;
  lower_.assign(n_, 0);
  upper_.assign(n_, plain.size());
  std::vector<std::optional<size_t>> known(n_);
  for (size_t i = 0; i < n_; ++i) known[i] = end_of(i);
  size_t low = 0, high = plain.size();
  for (size_t i = 0; i < n_; ++i) lower_[i] = low = std::max(low, known[i].value_or(low));
  for (size_t i = n_; i-- > 0;) {
    if (known[i] && *known[i] > high) return false;  // written in another order
    upper_[i] = high = known[i].value_or(high);
  }
  return true;
}

// What the definitions of tools add to the text.
std::optional<ByteSpan> tool_bytes(const WrittenChat& w) {
  Json context = w.context;
  context.erase("tools");
  const auto rendered = w.chat.render(context);
  if (!rendered.ok()) return std::nullopt;
  std::string text = *rendered;
  if (!w.cut_at.empty()) text.resize(std::min(text.rfind(w.cut_at), text.size()));
  for (const std::string& piece : w.noise) text = without_piece(std::move(text), piece);
  const size_t most = std::min(text.size(), w.text.size());
  size_t front = 0, back = 0;
  while (front < most && text[front] == w.text[front]) ++front;
  while (back < most - front && text[text.size() - 1 - back] == w.text[w.text.size() - 1 - back]) {
    ++back;
  }
  return ByteSpan{front, w.text.size() - back};
}

bool wanted_role(const KeepWish& wish, std::string_view role) {
  return std::any_of(wish.roles.begin(), wish.roles.end(), [&](const std::string& r) {
    return r == role || (r == "system" && role == "developer");
  });
}

Result<std::vector<size_t>> wanted_messages(const WrittenChat& w, const KeepWish& wish) {
  const Json& messages = w.context["messages"];
  std::vector<size_t> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (wanted_role(wish, messages[i].value("role", ""))) out.push_back(i);
  }
  const int64_t n = static_cast<int64_t>(messages.size()) - w.first_index;
  for (const int64_t i : wish.messages) {
    const int64_t at = i < 0 ? n + i : i;
    if (at >= 0 && at < n) {
      out.push_back(static_cast<size_t>(at + w.first_index));
    } else if (!wish.lenient) {
      return bad_input("kv.keep: there is no message {}, the conversation has {}", i, n);
    }
  }
  if (wish.tools && w.tools_index) out.push_back(*w.tools_index);
  return out;
}

}  // namespace

std::string private_use_character(uint32_t offset) {
  const uint32_t c = 0x100000 + offset;
  return {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
          static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
}

std::string without_piece(std::string text, const std::string& piece) {
  size_t to = 0, from = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, from)) {
    std::copy(text.begin() + static_cast<long>(from), text.begin() + static_cast<long>(at),
              text.begin() + static_cast<long>(to));
    to += at - from;
    from = at + piece.size();
  }
  if (from == 0) return text;
  std::copy(text.begin() + static_cast<long>(from), text.end(),
            text.begin() + static_cast<long>(to));
  text.resize(to + text.size() - from);
  return text;
}

Result<std::vector<ByteSpan>> kept_bytes(const WrittenChat& w, const KeepWish& wish) {
  std::vector<ByteSpan> out;
  PF_ASSIGN(const std::vector<size_t> messages, wanted_messages(w, wish));
  if (!messages.empty()) {
    Extents extents(w);
    if (!extents.find()) {
      return bad_input(
          "kv.keep: the model's chat template does not show where messages begin and end; give "
          "spans of tokens");
    }
    for (const size_t i : messages) out.push_back(extents.span(i));
  }
  if (wish.tools && w.context.contains("tools") && !w.context["tools"].empty()) {
    const auto tools = tool_bytes(w);
    if (!tools) {
      return bad_input(
          "kv.keep: the model's chat template does not show where the tools are; give spans of "
          "tokens");
    }
    out.push_back(*tools);
  }
  return out;
}

namespace {

// Where each token begins and ends.
bool align(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string_view text,
           bool forged, std::vector<ByteSpan>& out) {
  out.resize(ids.size());
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = tokenizer.token_bytes(ids[i], false);
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(bytes)) {
      out[i] = {at, at + bytes.size()};
    } else if (at == 0 && tokenizer.is_special(ids[i])) {
      out[i] = {0, 0};  // the tokenizer's own beginning
    } else if (bytes.starts_with(' ') && rest.starts_with(std::string_view(bytes).substr(1))) {
      out[i] = {at, at + bytes.size() - 1};  // SentencePiece begins words with a space
    } else {
      // A normaliser changed the text: what lies before the next special token is one piece.
      if (forged) return false;
      size_t next = i;
      while (next < ids.size() && !tokenizer.is_special(ids[next])) ++next;
      const size_t end =
          next == ids.size() ? text.size() : text.find(tokenizer.token_bytes(ids[next], false), at);
      if (next == i || end == std::string_view::npos) return false;
      for (size_t k = i; k < next; ++k) out[k] = {at, end};
      i = next - 1;
    }
    at = out[i].end;
  }
  return at == text.size();
}

}  // namespace

std::optional<std::vector<KeepSpan>> tokens_of_bytes(const Tokenizer& tokenizer,
                                                     const std::vector<int32_t>& ids,
                                                     std::string_view text, bool forged,
                                                     const std::vector<ByteSpan>& bytes) {
  std::vector<ByteSpan> tokens;
  if (!align(tokenizer, ids, text, forged, tokens)) return std::nullopt;
  std::vector<KeepSpan> out;
  for (const ByteSpan& b : bytes) {
    const auto begin = std::partition_point(tokens.begin(), tokens.end(),
                                            [&](const ByteSpan& t) { return t.end <= b.begin; });
    const auto end = std::partition_point(begin, tokens.end(),
                                          [&](const ByteSpan& t) { return t.begin < b.end; });
    // What comes before the text (BOS) belongs to what begins it.
    const int64_t first = b.begin == 0 ? 0 : begin - tokens.begin();
    if (first < end - tokens.begin()) out.push_back({first, end - tokens.begin()});
  }
  return out;
}

}  // namespace pagefold
