// deps: pagefold_server
// Bytes of a connection through the HTTP parser: whole, and in pieces whose sizes the first byte
// picks. Both must read the same messages, and what is read must be whole and within the limits.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "server/http_parser.h"
#include "server/request_ids.h"

namespace {

using namespace pagefold;

constexpr HttpParser::Limits kLimits{
    .max_header_bytes = 512, .max_fields = 8, .max_body_bytes = 256};

void require(bool ok) {
  if (!ok) std::abort();
}

// Every message up to a fault or the end, as text.
std::vector<std::string> messages(std::string_view text, size_t piece) {
  std::vector<std::string> out;
  auto parser = std::make_unique<HttpParser>(kLimits);
  std::string pending;
  for (size_t at = 0; at < text.size(); at += piece) {
    pending += text.substr(at, piece);
    for (;;) {
      const size_t used = parser->feed(pending);
      require(used <= pending.size());
      pending.erase(0, used);
      if (parser->failed()) {
        require(!parser->done() && parser->fault().status >= 400 && parser->fault().status < 600);
        out.push_back("fault " + std::to_string(parser->fault().status));
        return out;
      }
      if (parser->done()) {
        HttpRequest& r = parser->request();
        require(r.body.size() <= kLimits.max_body_bytes && r.headers.size() <= kLimits.max_fields);
        std::string all = r.method + ' ' + r.target + '\n';
        for (const auto& [name, value] : r.headers) {
          require((name + value).find_first_of("\r\n") == std::string::npos);
          usable_request_id(value);
          valid_traceparent(value);
          all += name + '=' + value + '\n';
        }
        all += parser->keep_alive() ? "+" : "-";
        out.push_back(all + r.body + std::string(r.path()));
        parser = std::make_unique<HttpParser>(kLimits);
      } else if (used == 0 || pending.empty()) {
        if (pending.empty()) break;
        require(parser->head_done());  // it stops there once
      }
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  require(messages(text, text.size() + 1) == messages(text, 1 + data[0] % 16));
  return 0;
}
