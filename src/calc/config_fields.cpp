#include "calc/config_fields.h"

#include "base/integer_range.h"
#include "calc/layers.h"

namespace pagefold::calc {
namespace {

constexpr size_t kMostEntries = kMostLayers;

std::string what_it_is(const Json& value) {
  return value.is_number() ? dump_json(value) : std::string(json_kind(value));
}

}  // namespace

Result<int64_t> ConfigFields::integer(std::string_view key, const Json& value, int64_t least,
                                      int64_t most) const {
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  const int64_t n = value.is_number_integer() && !huge ? value.get<int64_t>() : least - 1;
  if (n < least || n > most) {
    return bad_data("{}: field '{}' must be {}, not {}", where_, key, integer_range(least, most),
                    what_it_is(value));
  }
  return n;
}

Result<int64_t> ConfigFields::count(std::initializer_list<std::string_view> keys,
                                    int64_t fallback) const {
  for (const std::string_view key : keys) {
    if (const Json* v = get(key)) return integer(key, *v, 1);
  }
  return fallback;
}

Result<int64_t> ConfigFields::required(std::initializer_list<std::string_view> keys,
                                       int64_t most) const {
  for (const std::string_view key : keys) {
    if (const Json* v = get(key)) return integer(key, *v, 1, most);
  }
  return bad_data("{}: field '{}' is missing", where_, *keys.begin());
}

Result<int64_t> ConfigFields::maybe_zero(std::string_view key, int64_t fallback) const {
  const Json* v = get(key);
  return v == nullptr ? Result<int64_t>(fallback) : integer(key, *v, 0);
}

Result<bool> ConfigFields::flag(std::string_view key, bool fallback) const {
  const Json* v = get(key);
  if (v == nullptr) return fallback;
  if (v->is_boolean()) return v->get<bool>();
  return bad_data("{}: field '{}' must be true or false, not {}", where_, key, json_kind(*v));
}

Result<std::string> ConfigFields::text(std::string_view key) const {
  const Json* v = get(key);
  if (v == nullptr) return std::string();
  if (v->is_string()) return v->get<std::string>();
  return bad_data("{}: field '{}' must be a string, not {}", where_, key, json_kind(*v));
}

Result<std::vector<std::string>> ConfigFields::words(std::string_view key) const {
  std::vector<std::string> out;
  const Json* v = get(key);
  if (v == nullptr) return out;
  if (!v->is_array() || v->size() > kMostEntries) {
    return bad_data("{}: field '{}' must be a list of at most {} words", where_, key, kMostEntries);
  }
  for (const Json& w : *v) {
    if (!w.is_string()) return bad_data("{}: field '{}' must be a list of words", where_, key);
    out.push_back(w.get<std::string>());
  }
  return out;
}

Result<std::vector<int64_t>> ConfigFields::numbers(std::string_view key) const {
  std::vector<int64_t> out;
  const Json* v = get(key);
  if (v == nullptr) return out;
  if (!v->is_array() || v->size() > kMostEntries) {
    return bad_data("{}: field '{}' must be a list of at most {} numbers", where_, key,
                    kMostEntries);
  }
  for (const Json& n : *v) {
    PF_ASSIGN(const int64_t value, integer(key, n, 0));
    out.push_back(value);
  }
  return out;
}

}  // namespace pagefold::calc
