// Failures of the outside world (files, models, JSON, clients) are values: Status and Result<T>.
// Bugs are PF_CHECK (check.h); expected outcomes such as "no free block" are ordinary return
// values. No exception crosses a module.
#pragma once

#include <absl/status/statusor.h>
#include <fmt/core.h>

#include <string>
#include <utility>

namespace pagefold {

using Status = absl::Status;
template <class T>
using Result = absl::StatusOr<T>;

inline Status ok_status() { return absl::OkStatus(); }

// The caller's input is wrong: HTTP 400, exit code 2.
template <class... A>
Status bad_input(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kInvalidArgument, fmt::format(f, std::forward<A>(a)...)};
}
// A file or a message is damaged: names the file and the field.
template <class... A>
Status bad_data(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kDataLoss, fmt::format(f, std::forward<A>(a)...)};
}
// Well-formed, but this engine does not run it: names what.
template <class... A>
Status unsupported(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kUnimplemented, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status not_found(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kNotFound, fmt::format(f, std::forward<A>(a)...)};
}
// The system refused (open, mmap, socket) or a limit was reached.
template <class... A>
Status io_error(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kUnavailable, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Status exhausted(fmt::format_string<A...> f, A&&... a) {
  return {absl::StatusCode::kResourceExhausted, fmt::format(f, std::forward<A>(a)...)};
}

// "WHERE: message", keeping the code: each layer adds what it knows.
inline Status with_context(const Status& s, std::string_view where) {
  return {s.code(),
          fmt::format("{}: {}", where, std::string_view(s.message().data(), s.message().size()))};
}
inline std::string message_of(const Status& s) { return {s.message().data(), s.message().size()}; }

}  // namespace pagefold

#define PF_CONCAT_(a, b) a##b
#define PF_CONCAT(a, b) PF_CONCAT_(a, b)

// PF_TRY(expr): return the failure of a Status expression.
#define PF_TRY(expr)                                                  \
  do {                                                                \
    if (::pagefold::Status pf_s_ = (expr); !pf_s_.ok()) return pf_s_; \
  } while (false)

// PF_ASSIGN(lhs, expr): lhs = value of a Result expression, or return its failure.
#define PF_ASSIGN(lhs, expr) PF_ASSIGN_(PF_CONCAT(pf_result_, __LINE__), lhs, expr)
#define PF_ASSIGN_(tmp, lhs, expr)               \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)
