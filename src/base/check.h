// PF_CHECK: a broken promise between two pieces of our own code. Prints and aborts, in every build.
// Never reachable from user input. PF_DCHECK is for checks too costly for a release build.
#pragma once

#include <string_view>

namespace pagefold {
[[noreturn]] void check_failed(const char* file, int line, const char* expr, std::string_view note);
}

#define PF_CHECK(cond, ...)                     \
  (__builtin_expect(static_cast<bool>(cond), 1) \
       ? static_cast<void>(0)                   \
       : ::pagefold::check_failed(__FILE__, __LINE__, #cond, ::std::string_view{__VA_ARGS__}))

#ifdef NDEBUG
#define PF_DCHECK(cond, ...) static_cast<void>(0)
#else
#define PF_DCHECK(cond, ...) PF_CHECK(cond, ##__VA_ARGS__)
#endif
