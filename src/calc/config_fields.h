// Fields of a config.json as the calculator wants them: positive integers, null taken for absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace pagefold::calc {

class ConfigFields {
 public:
  static constexpr int64_t kMost = int64_t{1} << 40;

  ConfigFields(const Json& object, std::string_view where) : object_(object), where_(where) {}

  const Json* get(std::string_view key) const {
    const auto it = object_.find(std::string(key));
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(std::string_view key) const { return get(key) != nullptr; }
  // The first of the keys that is there; `fallback` when none is. 1 ... kMost.
  Result<int64_t> count(std::initializer_list<std::string_view> keys, int64_t fallback) const;
  Result<int64_t> count(std::string_view key, int64_t fallback) const {
    return count({key}, fallback);
  }
  Result<int64_t> required(std::initializer_list<std::string_view> keys,
                           int64_t most = kMost) const;
  Result<int64_t> required(std::string_view key) const { return required({key}); }
  // As count(), but 0 is allowed.
  Result<int64_t> maybe_zero(std::string_view key, int64_t fallback) const;
  Result<bool> flag(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key) const;  // absent: empty
  Result<std::vector<std::string>> words(std::string_view key) const;
  Result<std::vector<int64_t>> numbers(std::string_view key) const;
  std::string_view where() const { return where_; }

 private:
  Result<int64_t> integer(std::string_view key, const Json& value, int64_t least,
                          int64_t most = kMost) const;
  const Json& object_;
  std::string_view where_;
};

}  // namespace pagefold::calc
