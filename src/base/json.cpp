#include "base/json.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/integer_range.h"

namespace pagefold {
namespace {

namespace sj = simdjson::dom;

// Depth is bounded by the parser, so the recursion is too.
Json to_tree(const sj::element& e) {
  switch (e.type()) {
    case sj::element_type::OBJECT: {
      Json object = Json::object();
      // The ordered tree searches its keys one by one; an index keeps big objects linear. Of equal
      // keys the last value counts.
      using Fields = std::vector<Json::object_t::value_type>;
      auto& fields = static_cast<Fields&>(object.get_ref<Json::object_t&>());
      std::unordered_map<std::string_view, size_t> index;
      for (const auto field : sj::object(e)) {
        const auto [at, added] = index.emplace(field.key, fields.size());
        if (added) {
          fields.emplace_back(std::string(field.key), to_tree(field.value));
        } else {
          fields[at->second].second = to_tree(field.value);
        }
      }
      return object;
    }
    case sj::element_type::ARRAY: {
      Json array = Json::array();
      for (const auto item : sj::array(e)) array.push_back(to_tree(item));
      return array;
    }
    case sj::element_type::STRING:
      return Json(std::string(std::string_view(e)));
    case sj::element_type::INT64:
      return Json(int64_t(e));
    case sj::element_type::UINT64:
      return Json(uint64_t(e));
    case sj::element_type::DOUBLE:
      return Json(double(e));
    case sj::element_type::BOOL:
      return Json(bool(e));
    case sj::element_type::NULL_VALUE:
      return Json(nullptr);
  }
  return Json(nullptr);
}

// Where a text stops being JSON, found by a second parser that says so: byte, from 1; 0: it takes
// all. Values are not kept, and nothing recurses.
class FaultFinder : public nlohmann::json_sax<Json> {
 public:
  static size_t find(std::string_view text) {
    FaultFinder finder(text);
    Json::sax_parse(text, &finder);
    return finder.at_;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  // position: of the last byte read. A string that does not fit begins where its token does; the
  // token of anything else may hold what went before, so its letters and digits are walked back.
  bool parse_error(size_t position, const std::string& token,
                   const Json::exception& fault) override {
    at_ = std::clamp<size_t>(position, 1, std::max<size_t>(text_.size(), 1));
    if (token.ends_with('"') && token.size() <= at_) {
      at_ -= token.size() - 1;
      return false;
    }
    const auto of_a_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '+' || c == '.';
    };
    // A literal is found wrong at the first byte that differs, which may be the one behind it.
    const bool literal =
        std::string_view(fault.what()).find("invalid literal") != std::string::npos;
    if (literal && at_ > 1 && !of_a_word(text_[at_ - 1]) && of_a_word(text_[at_ - 2])) --at_;
    if (at_ <= text_.size() && of_a_word(text_[at_ - 1]))
      while (at_ > 1 && of_a_word(text_[at_ - 2])) --at_;
    return false;
  }

 private:
  explicit FaultFinder(std::string_view text) : text_(text) {}

  std::string_view text_;
  size_t at_ = 0;
};

bool is_wide_integer(std::string_view number) {
  if (number.find_first_of(".eE") != std::string_view::npos) return false;
  int64_t with_sign = 0;
  uint64_t without = 0;
  const char *begin = number.data(), *end = begin + number.size();
  return std::from_chars(begin, end, with_sign).ec == std::errc::result_out_of_range &&
         (number.starts_with('-') ||
          std::from_chars(begin, end, without).ec == std::errc::result_out_of_range);
}

// The byte, from 1, of the first integer that 64 bits do not hold in a text that is JSON otherwise;
// 0: there is none. The parsers refuse the text without saying where it is.
size_t find_wide_integer(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
      const size_t end = std::min(text.find_first_not_of("0123456789+-.eE", i), text.size());
      if (is_wide_integer(text.substr(i, end - i))) return i + 1;
      i = end - 1;
    }
  }
  return 0;
}

Status json_fault(std::string_view text, simdjson::error_code error) {
  const std::string_view what = simdjson::error_message(error);
  if (error == simdjson::DEPTH_ERROR || error == simdjson::CAPACITY) {
    return bad_data("invalid JSON: {}", what);
  }
  const size_t at = std::min(FaultFinder::find(text), text.size());
  if (at == 0) {
    const size_t wide = find_wide_integer(text);
    if (wide == 0) return bad_data("invalid JSON: {}", what);
    return bad_data(
        "invalid JSON at byte {} of {}: this number must be {}", wide, text.size(),
        integer_range(std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()));
  }
  const std::string_view here = text.substr(at - 1);
  if (here.starts_with("NaN") || here.starts_with("nan") || here.starts_with("Inf") ||
      here.starts_with("inf") || here.starts_with("-Inf") || here.starts_with("-inf")) {
    return bad_data("invalid JSON at byte {} of {}: JSON knows no NaN or infinite numbers", at,
                    text.size());
  }
  return bad_data("invalid JSON at byte {} of {}: {}", at, text.size(), what);
}

}  // namespace

Result<Json> parse_json(std::string_view text, size_t max_depth) {
  sj::parser parser;
  if (parser.allocate(text.size() + 1, max_depth) != simdjson::SUCCESS) {
    return exhausted("no memory for a JSON text of {} bytes", text.size());
  }
  auto document = parser.parse(text.data(), text.size());
  if (document.error() != simdjson::SUCCESS) {
    return json_fault(text, document.error());
  }
  return to_tree(document.value_unsafe());
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_json_string(std::string& out, std::string_view text) { out += dump_json(Json(text)); }

std::string_view json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "object";
    case Json::value_t::array:
      return "array";
    case Json::value_t::string:
      return "string";
    case Json::value_t::boolean:
      return "boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "integer";
    case Json::value_t::number_float:
      return "number";
    default:
      return "value";
  }
}

}  // namespace pagefold
