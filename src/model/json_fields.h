// Typed access to the fields of a JSON object from outside. Absent and null fields are the
// fallback; a field of another kind is an error that names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/integer_range.h"
#include "base/json.h"
#include "base/result.h"

namespace pagefold {

// where: the file, for messages; both must outlive the object.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string_view where) : object_(object), where_(where) {}

  const Json* get(std::string_view key) const {
    const auto it = object_.find(std::string(key));
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool present(std::string_view key) const { return object_.contains(std::string(key)); }
  Result<int64_t> integer(std::string_view key, int64_t fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_number_integer()) return wrong(key, "an integer", *v);
    if (v->is_number_unsigned() && v->get<uint64_t>() > INT64_MAX)
      return bad_data("{}: field '{}' must be {}, not {}", where_, key,
                      integer_range(INT64_MIN, INT64_MAX), v->get<uint64_t>());
    return v->get<int64_t>();
  }
  Result<int64_t> required(std::string_view key) const {
    if (!get(key)) return bad_data("{}: field '{}' is missing", where_, key);
    return integer(key, 0);
  }
  Result<double> number(std::string_view key, double fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_number()) return wrong(key, "a number", *v);
    return v->get<double>();
  }
  Result<bool> boolean(std::string_view key, bool fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_boolean()) return wrong(key, "true or false", *v);
    return v->get<bool>();
  }
  Result<std::string> text(std::string_view key, std::string fallback) const {
    const Json* v = get(key);
    if (!v) return fallback;
    if (!v->is_string()) return wrong(key, "a string", *v);
    return v->get<std::string>();
  }
  // Null: absent.
  Result<const Json*> object(std::string_view key) const {
    const Json* v = get(key);
    if (v && !v->is_object()) return wrong(key, "an object", *v);
    return v;
  }
  Status wrong(std::string_view key, std::string_view expected, const Json& got) const {
    return bad_data("{}: field '{}' must be {}, not {}", where_, key, expected, json_kind(got));
  }

 private:
  const Json& object_;
  std::string_view where_;
};

}  // namespace pagefold
