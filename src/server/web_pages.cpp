#include "server/web_pages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "web_files.h"  // made by cmake/embed.cmake

namespace pagefold {
namespace {

std::string_view media_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

// Nothing but files of this server, no inline script or style, no frame around the page.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

bool send_web_page(const HttpRequest& request, Responder& responder) {
  constexpr std::string_view kFolder = "/ui/";
  const std::string_view path = request.path();
  std::string_view name;
  if (path == "/") {
    name = "index.html";
  } else if (path.starts_with(kFolder)) {
    name = path.substr(kFolder.size());
  } else {
    return false;
  }
  const auto file = std::find_if(web::kFiles.begin(), web::kFiles.end(),
                                 [&](const web::File& f) { return f.name == name; });
  if (file == web::kFiles.end()) return false;
  constexpr std::string_view kMethods = "GET, HEAD, OPTIONS";
  if (request.method == "OPTIONS") {
    responder.send(204, {{"Allow", std::string(kMethods)}}, "");
    return true;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    responder.send(405, {{"Content-Type", "text/plain"}, {"Allow", std::string(kMethods)}},
                   "This path answers GET only.\n");
    return true;
  }
  responder.send(200,
                 {{"Content-Type", std::string(media_type(name))},
                  {"Cache-Control", "no-cache"},
                  {"Content-Security-Policy", std::string(kPolicy)},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Opener-Policy", "same-origin"},
                  {"Cross-Origin-Resource-Policy", "same-origin"}},
                 std::string(file->bytes));
  return true;
}

}  // namespace pagefold
