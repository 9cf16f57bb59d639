#include "server/http_parser.h"

#include <algorithm>

namespace pagefold {
namespace {

constexpr std::string_view kNoHttp = "The message is not valid HTTP/1.1.";
constexpr size_t kMaxMethod = 32;
constexpr size_t kMaxChunkLine = 4096;

// A character of a method or of a field's name.
bool is_token(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Names, addresses and a port: what no parser takes for a path, a user or a second host.
bool is_host_character(char c) {
  return is_token(c) || c == ':' || c == '[' || c == ']' || c == '(' || c == ')' || c == ';' ||
         c == '=';
}

// nullptr: absent. `several`: whether there is more than one.
const std::string* find_field(const HttpRequest& request, std::string_view name, bool& several) {
  const std::string* found = nullptr;
  several = false;
  for (const auto& [key, value] : request.headers) {
    if (!equal_ignoring_case(key, name)) continue;
    several = found != nullptr;
    if (several) return found;
    found = &value;
  }
  return found;
}

}  // namespace

bool HttpParser::take_line_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') {
    if (!after_cr_) fail(400, "A line of the message does not end with CR LF.");
    after_cr_ = false;
    return !failed();
  }
  if (after_cr_) {
    fail(400, "A line of the message holds a CR without LF.");
  } else if (c == '\r') {
    after_cr_ = true;
  } else if ((byte < 0x20 && c != '\t') || byte == 0x7f) {
    fail(400, "A line of the message holds a control character.");
  } else {
    line_ += c;
  }
  return false;
}

size_t HttpParser::feed(std::string_view data) {
  size_t used = 0;
  while (used < data.size() && !failed() && part_ != Part::done) {
    if (part_ == Part::body || part_ == Part::chunk_data) {
      used += take_data(data.substr(used));
      continue;
    }
    const bool chunk = part_ == Part::chunk_size || part_ == Part::chunk_end;
    if (chunk && line_.size() >= kMaxChunkLine) {
      fail(400, "A chunk's first line is too long.");
      break;
    }
    if (!chunk && ++head_bytes_ > limits_.max_header_bytes) {
      fail(431, "The request headers are larger than this server accepts.");
      break;
    }
    const bool head_was_open = !head_done();
    if (take_line_byte(data[used++])) {
      end_line();
      line_.clear();
      if (head_was_open && head_done()) break;
    }
  }
  return used;
}

void HttpParser::end_line() {
  switch (part_) {
    case Part::request_line:
      return read_request_line();
    case Part::field:
      return line_.empty() ? end_head() : read_field(false);
    case Part::chunk_size:
      return read_chunk_size();
    case Part::chunk_end:
      if (!line_.empty()) return fail(400, "A chunk of the body is longer than it says.");
      part_ = Part::chunk_size;
      return;
    case Part::trailer:
      if (!line_.empty()) return read_field(true);
      part_ = Part::done;
      return;
    default:
      return;
  }
}

void HttpParser::read_request_line() {
  const std::string_view line = line_;
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return fail(400, kNoHttp);
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (method.empty() || method.size() > kMaxMethod ||
      !std::all_of(method.begin(), method.end(), is_token)) {
    return fail(400, kNoHttp);
  }
  const bool printable = std::all_of(target.begin(), target.end(),
                                     [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  const bool absolute = target.size() > 7 && (equal_ignoring_case(target.substr(0, 7), "http://") ||
                                              equal_ignoring_case(target.substr(0, 8), "https://"));
  if (!printable || (!target.starts_with('/') && !absolute && target != "*")) {
    return fail(400, "The target of the request is no path.");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return fail(400, kNoHttp);
  http10_ = version == "HTTP/1.0";
  keep_alive_ = !http10_;
  request_.method = std::string(method);
  request_.target = std::string(target);
  part_ = Part::field;
}

void HttpParser::read_field(bool trailer) {
  if (++fields_ > limits_.max_fields) {
    return fail(431, "The request has more header fields than this server accepts.");
  }
  const std::string_view line = line_;
  if (line.front() == ' ' || line.front() == '\t') {
    return fail(400, "A header line is folded, which is not accepted.");
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 ||
      !std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), is_token)) {
    return fail(400, "A header line does not begin with a name and a colon.");
  }
  // What comes behind the body must not change how the request was read.
  if (trailer) return;
  request_.headers.emplace_back(std::string(line.substr(0, colon)),
                                std::string(trimmed(line.substr(colon + 1))));
}

void HttpParser::read_host(const std::string& host) {
  if (!std::all_of(host.begin(), host.end(), is_host_character)) {
    fail(400, "The header Host holds no host.");
  }
}

void HttpParser::read_connection(std::string_view words) {
  while (!words.empty()) {
    const size_t comma = std::min(words.find(','), words.size());
    const std::string_view word = trimmed(words.substr(0, comma));
    if (equal_ignoring_case(word, "close")) {
      keep_alive_ = false;
    } else if (http10_ && equal_ignoring_case(word, "keep-alive")) {
      keep_alive_ = true;
    }
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
}

// Where the message ends. Everything that two readers could understand differently is refused.
void HttpParser::read_framing() {
  bool several_lengths = false, several_codings = false;
  const std::string* length = find_field(request_, "Content-Length", several_lengths);
  const std::string* coding = find_field(request_, "Transfer-Encoding", several_codings);
  if (length && coding) {
    return fail(400, "Content-Length and Transfer-Encoding exclude each other.");
  }
  if (several_lengths || several_codings) {
    return fail(400, "Content-Length or Transfer-Encoding is given more than once.");
  }
  if (coding) {
    if (http10_) return fail(400, "HTTP/1.0 has no Transfer-Encoding.");
    if (!equal_ignoring_case(*coding, "chunked")) {
      return fail(501, "The only Transfer-Encoding this server takes is chunked.");
    }
    part_ = Part::chunk_size;
    return;
  }
  if (length) {
    if (length->empty() || length->size() > 18 ||
        !std::all_of(length->begin(), length->end(), is_digit)) {
      return fail(400, "Content-Length is no number of bytes.");
    }
    for (const char c : *length) left_ = left_ * 10 + static_cast<uint64_t>(c - '0');
    if (left_ > limits_.max_body_bytes) {
      return fail(413, "The request body is larger than this server accepts.");
    }
  }
  part_ = left_ > 0 ? Part::body : Part::done;
}

void HttpParser::end_head() {
  bool several = false;
  const std::string* host = find_field(request_, "Host", several);
  if (several) return fail(400, "The header Host is given more than once.");
  if (!host && !http10_) return fail(400, "The header Host is missing.");
  if (host) read_host(*host);
  for (const auto& [name, value] : request_.headers) {
    if (equal_ignoring_case(name, "Connection")) read_connection(value);
  }
  const std::string* expect = find_field(request_, "Expect", several);
  expects_continue_ = expect && equal_ignoring_case(*expect, "100-continue");
  if (failed()) return;
  if (expect && !expects_continue_) return fail(417, "The header Expect asks for the unknown.");
  read_framing();
}

void HttpParser::read_chunk_size() {
  size_t i = 0;
  left_ = 0;
  for (; i < line_.size() && hex_digit(line_[i]) >= 0; ++i) {
    if (i == 15) return fail(413, "The request body is larger than this server accepts.");
    left_ = left_ * 16 + static_cast<uint64_t>(hex_digit(line_[i]));
  }
  const std::string_view rest = trimmed(std::string_view(line_).substr(i));
  if (i == 0 || !(i == line_.size() || rest.starts_with(';'))) {
    return fail(400, "A chunk of the body does not begin with its size.");
  }
  if (left_ > limits_.max_body_bytes - request_.body.size()) {
    return fail(413, "The request body is larger than this server accepts.");
  }
  part_ = left_ > 0 ? Part::chunk_data : Part::trailer;
}

size_t HttpParser::take_data(std::string_view data) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, data.size()));
  request_.body.append(data.substr(0, n));
  left_ -= n;
  if (left_ == 0) part_ = part_ == Part::body ? Part::done : Part::chunk_end;
  return n;
}

}  // namespace pagefold
