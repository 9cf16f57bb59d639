#include "server/request_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "base/random.h"

namespace pagefold {
namespace {

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

bool all_hex(std::string_view text) { return std::all_of(text.begin(), text.end(), is_hex); }

bool all_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

// Random at the start of the process, then counted through a cipher.
std::string new_id(std::string_view prefix) {
  static const uint64_t key = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  static std::atomic<uint64_t> counter{0};
  const auto w = philox4x32(key, counter.fetch_add(1));
  return fmt::format("{}{:08x}{:08x}{:08x}{:08x}", prefix, w[0], w[1], w[2], w[3]);
}

bool usable_request_id(std::string_view id) {
  constexpr size_t kMost = 128;
  return !id.empty() && id.size() <= kMost && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
}

// version 2, trace 32, parent 16, flags 2 digits, with '-' between.
bool valid_traceparent(std::string_view v) {
  constexpr size_t kSize = 55;
  if (v.size() < kSize || v.size() > 256 || v[2] != '-' || v[35] != '-' || v[52] != '-') {
    return false;
  }
  const std::string_view version = v.substr(0, 2), trace = v.substr(3, 32),
                         parent = v.substr(36, 16);
  if (!all_hex(version) || version == "ff" || !all_hex(trace) || all_zero(trace) ||
      !all_hex(parent) || all_zero(parent) || !all_hex(v.substr(53, 2))) {
    return false;
  }
  return version == "00" ? v.size() == kSize : v.size() == kSize || v[kSize] == '-';
}

}  // namespace pagefold
