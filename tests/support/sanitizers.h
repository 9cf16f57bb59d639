// Whether the address or the thread sanitizer watches this build. They keep memory of their own,
// and long sums take minutes: tests of memory and of long sums ask here. g++ says it by macros,
// clang only through __has_feature.
#pragma once

namespace pagefold::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace pagefold::testing
