#include "server/field_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/integer_range.h"

namespace pagefold {

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto v = value.get<uint64_t>();
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(v);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double d = value.get<double>();
  if (!(std::abs(d) <= 0x1p53) || d != std::floor(d)) return std::nullopt;
  return static_cast<int64_t>(d);
}

FieldReader::FieldReader(const Json& object, std::string path, std::optional<ApiError>& error)
    : object_(object), path_(std::move(path)), error_(error) {}

std::string FieldReader::path_of(std::string_view name) const {
  if (path_.empty()) return std::string(name);
  return name.empty() ? path_ : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(std::string_view name, std::string message) {
  if (error_) return;
  const std::string path = path_of(name);
  error_ = ApiError{.status = 400, .message = path + ": " + std::move(message), .param = path};
}

void FieldReader::fail_with(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::read_inside(std::string_view parent, const Json& object, std::string_view name,
                              bool& out) {
  FieldReader(object, path_of(parent), error_).read(name, out);
}

void FieldReader::wrong_kind(std::string_view name, std::string_view expected, const Json& got) {
  fail(name, fmt::format("expected {}, got {}", expected, json_kind(got)));
}

const Json* FieldReader::find(std::string_view name) {
  known_.push_back(name);
  if (error_ || !object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

const Json* FieldReader::find_kind(std::string_view name, Json::value_t kind,
                                   std::string_view expected) {
  const Json* value = find(name);
  if (value != nullptr && value->type() != kind) {
    wrong_kind(name, expected, *value);
    return nullptr;
  }
  return value;
}

const Json* FieldReader::find_string(std::string_view name) {
  return find_kind(name, Json::value_t::string, "a string");
}
const Json* FieldReader::find_array(std::string_view name) {
  return find_kind(name, Json::value_t::array, "an array");
}
const Json* FieldReader::find_object(std::string_view name) {
  return find_kind(name, Json::value_t::object, "an object");
}

void FieldReader::read(std::string_view name, bool& out) {
  if (const Json* v = find_kind(name, Json::value_t::boolean, "true or false"))
    out = v->get<bool>();
}

void FieldReader::read(std::string_view name, std::string& out) {
  if (const Json* v = find_string(name)) out = v->get<std::string>();
}

void FieldReader::read(std::string_view name, std::optional<int64_t>& out, int64_t low,
                       int64_t high) {
  const Json* v = find(name);
  if (v == nullptr) return;
  if (!v->is_number()) return wrong_kind(name, "an integer", *v);
  const auto integer = as_integer(*v);
  if (!integer || *integer < low || *integer > high) {
    return fail(name, "must be " + integer_range(low, high));
  }
  out = *integer;
}

void FieldReader::read(std::string_view name, int64_t& out, int64_t low, int64_t high) {
  std::optional<int64_t> value;
  read(name, value, low, high);
  if (value) out = *value;
}

void FieldReader::read(std::string_view name, float& out, double low, double high, bool open) {
  const Json* v = find(name);
  if (v == nullptr) return;
  if (!v->is_number()) return wrong_kind(name, "a number", *v);
  const double d = v->get<double>();
  const bool inside = (open ? d > low : d >= low) && d <= high;
  if (!inside) {
    const std::string_view least = open ? "above" : "at least";
    if (high == std::numeric_limits<float>::max()) {
      return fail(name, fmt::format("must be a finite number {} {}", least, low));
    }
    return fail(name, fmt::format("must be {} {} and at most {}", least, low, high));
  }
  out = static_cast<float>(d);
}

void FieldReader::ignore(std::initializer_list<std::string_view> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void FieldReader::refuse(std::initializer_list<std::string_view> names) {
  for (const auto name : names) {
    const Json* v = find(name);
    if (v == nullptr || *v == Json(false)) continue;
    if ((v->is_array() || v->is_object()) && v->empty()) continue;
    if (v->is_string() && v->get_ref<const std::string&>().empty()) continue;
    fail(name, "not supported yet by this server; leave the field out");
  }
}

std::vector<std::string_view> FieldReader::unknown() const {
  std::vector<std::string_view> names;
  if (!object_.is_object()) return names;
  for (const auto& item : object_.items()) {
    if (std::find(known_.begin(), known_.end(), item.key()) == known_.end()) {
      names.push_back(item.key());
    }
  }
  return names;
}

}  // namespace pagefold
