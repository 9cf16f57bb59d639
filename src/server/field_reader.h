// Typed access to the fields of a JSON object from a client. The first fault is kept and everything
// after it is a no-op, so that a parser reads straight down; null counts as absent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace pagefold {

class FieldReader {
 public:
  // `error` outlives the reader and collects the fault. path: "" or "messages[2]", for `param`.
  FieldReader(const Json& object, std::string path, std::optional<ApiError>& error);

  bool ok() const { return !error_; }
  // The field if it is present and not null. Marks it as known.
  const Json* find(std::string_view name);
  // The same, with a kind check: "string", "array", "object".
  const Json* find_string(std::string_view name);
  const Json* find_array(std::string_view name);
  const Json* find_object(std::string_view name);

  void read(std::string_view name, bool& out);
  void read(std::string_view name, std::string& out);
  // Integers; 3.0 counts as one.
  void read(std::string_view name, int64_t& out, int64_t low, int64_t high);
  void read(std::string_view name, std::optional<int64_t>& out, int64_t low, int64_t high);
  // Any finite number in [low, high], or (low, high] if `open`.
  void read(std::string_view name, float& out, double low,
            double high = std::numeric_limits<float>::max(), bool open = false);
  // A switch in a nested object that was found as `parent`.
  void read_inside(std::string_view parent, const Json& object, std::string_view name, bool& out);
  // Known and without effect here.
  void ignore(std::initializer_list<std::string_view> names);
  // 400 if the field is there with a value that asks for something.
  void refuse(std::initializer_list<std::string_view> names);

  void fail(std::string_view name, std::string message);
  void fail_with(ApiError error);
  std::string path_of(std::string_view name) const;
  // Names the parser never asked for, for the debug log.
  std::vector<std::string_view> unknown() const;

 private:
  const Json* find_kind(std::string_view name, Json::value_t kind, std::string_view expected);
  void wrong_kind(std::string_view name, std::string_view expected, const Json& got);
  const Json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
  std::vector<std::string_view> known_;
};

// An integer, or a float with an integral value, within +-2^63.
std::optional<int64_t> as_integer(const Json& value);

}  // namespace pagefold
