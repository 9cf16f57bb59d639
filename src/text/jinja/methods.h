// What string methods and filters share.
#pragma once

#include "text/jinja/interp.h"

namespace pagefold::jinja {

Method find_string_method(std::string_view name);
Result<Value> format_method(Interp& in, const Value& v, const Args& args);

std::string upper_text(const std::string& s);
std::string lower_text(const std::string& s);
std::string capitalize_text(const std::string& s);
// Takes characters listed in `chars` off the ends.
std::string_view strip_chars(std::string_view s, std::string_view chars, bool left, bool right);
// count < 0: all.
Result<Value> replace_text(Heap& heap, const std::string& s, const std::string& from,
                           const std::string& to, int64_t count);

}  // namespace pagefold::jinja
