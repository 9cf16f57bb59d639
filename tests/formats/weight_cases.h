// The worked cases of tests/formats/cases: packed weights with the integers and floats they stand
// for, computed apart from this code. Words are hexadecimal strings.
#pragma once

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"

namespace pagefold::testing {

inline Json weight_cases(const std::string& name) {
  const auto text =
      read_file(std::string(PAGEFOLD_SOURCE_DIR) + "/tests/formats/cases/" + name, size_t{1} << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  auto json = parse_json(text.value_or("null"));
  EXPECT_TRUE(json.ok()) << json.status();
  return json.value_or(Json());
}

// Nested lists of numbers or hexadecimal strings, flattened.
template <class T>
void flatten(const Json& json, std::vector<T>& out) {
  if (json.is_array()) {
    for (const Json& item : json) flatten(item, out);
  } else if (json.is_string() && json.get<std::string>().starts_with("0x")) {
    out.push_back(static_cast<T>(std::stoul(json.get<std::string>(), nullptr, 16)));
  } else {
    // "nan", "inf" and "-inf" are written as words.
    out.push_back(json.is_string() ? static_cast<T>(std::stod(json.get<std::string>()))
                                   : json.get<T>());
  }
}
template <class T>
std::vector<T> list_of(const Json& json) {
  std::vector<T> out;
  flatten(json, out);
  return out;
}
template <class T>
std::vector<T> base64_of(const Json& json) {
  std::string raw;
  EXPECT_TRUE(absl::Base64Unescape(json.get<std::string>(), &raw));
  std::vector<T> out(raw.size() / sizeof(T));
  std::memcpy(out.data(), raw.data(), out.size() * sizeof(T));
  return out;
}
template <class T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

}  // namespace pagefold::testing
