// One HTTP/1.1 request from bytes, as they come (RFC 9112). Strict where parsers of different
// programs could disagree on where a message ends, since that is how requests are smuggled past a
// proxy: each line ends with CR LF, no folded lines, no space before a colon, exactly one Host, one
// Content-Length of digits or one Transfer-Encoding of "chunked", never both. No socket, no Asio.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.h"

namespace pagefold {

// Why a message is refused; the text is ours.
struct HttpFault {
  int status = 0;  // 0: none
  std::string_view message;
};

class HttpParser {
 public:
  struct Limits {
    size_t max_header_bytes = 64 << 10;  // request line, fields and trailer
    size_t max_fields = 256;
    size_t max_body_bytes = 4 << 20;
  };
  explicit HttpParser(const Limits& limits) : limits_(limits) {}

  // Takes bytes from the front of `data` and says how many. Stops at the end of the head (once), at
  // the end of the message, and at a fault; else it takes all.
  size_t feed(std::string_view data);

  bool head_done() const { return part_ > Part::field; }
  bool done() const { return part_ == Part::done; }
  bool failed() const { return fault_.status != 0; }
  const HttpFault& fault() const { return fault_; }

  // Valid once the head is done.
  bool http10() const { return http10_; }
  bool keep_alive() const { return keep_alive_; }
  bool expects_continue() const { return expects_continue_; }
  // The request without its trailer; its body is whole once done().
  HttpRequest& request() { return request_; }

 private:
  enum class Part : uint8_t {
    request_line,
    field,
    // below here the head is done
    body,
    chunk_size,
    chunk_data,
    chunk_end,
    trailer,
    done,
  };
  void fail(int status, std::string_view message) { fault_ = {status, message}; }
  bool take_line_byte(char c);  // true: line_ is a whole line
  void end_line();
  void read_request_line();
  void read_field(bool trailer);
  void end_head();
  void read_host(const std::string& host);
  void read_framing();
  void read_connection(std::string_view words);
  void read_chunk_size();
  size_t take_data(std::string_view data);

  Limits limits_;
  Part part_ = Part::request_line;
  HttpFault fault_;
  HttpRequest request_;
  std::string line_;
  bool after_cr_ = false;
  size_t head_bytes_ = 0, fields_ = 0;
  uint64_t left_ = 0;  // bytes of the body, or of the chunk
  bool http10_ = false, keep_alive_ = true, expects_continue_ = false;
};

}  // namespace pagefold
