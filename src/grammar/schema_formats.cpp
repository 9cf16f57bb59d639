#include "grammar/schema_formats.h"

#include <array>
#include <string>
#include <utility>

namespace pagefold::grammar {
namespace {

// Years of four digits; days as many as the month surely has.
constexpr std::string_view kDate =
    "[12]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr std::string_view kHex4 = "[0-9a-fA-F]{1,4}";
constexpr std::string_view kUrlText = "[A-Za-z0-9._~!$&()*+,;=:@-]*";

std::string join(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const auto part : parts) out += part;
  return out;
}

}  // namespace

std::optional<std::string> format_regex(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return join({"(?:", kDate, ")T", kTime});
  if (format == "duration") {
    return "P(?:\\d{1,4}D(?:T\\d{1,2}H(?:\\d{1,2}M)?)?|T\\d{1,4}[HMS]|\\d{1,3}W|\\d{1,3}Y)";
  }
  const std::string host = join({kLabel, "(?:\\.", kLabel, "){0,5}"});
  if (format == "hostname") return host;
  if (format == "email") {
    return join({"[A-Za-z0-9_+-]{1,40}(?:\\.[A-Za-z0-9_+-]{1,20}){0,3}@", kLabel, "(?:\\.", kLabel,
                 "){0,3}\\.[A-Za-z]{2,10}"});
  }
  if (format == "ipv4") return join({kByte, "(?:\\.", kByte, "){3}"});
  if (format == "ipv6") return join({kHex4, "(?::", kHex4, "){7}"});
  if (format == "uuid") {
    return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  }
  if (format == "uri") {
    return join({"[a-z][a-z0-9+.-]{1,12}://", host, "(?::\\d{1,4})?(?:/", kUrlText, ")*(?:\\?",
                 kUrlText, ")?(?:#", kUrlText, ")?"});
  }
  return std::nullopt;
}

}  // namespace pagefold::grammar
