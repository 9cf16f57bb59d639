// What the subcommands share in talking to people and scripts: answers on stdout, all else on
// stderr.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

// "pagefold: error: ..." on stderr. Returns the exit code: 2 for wrong use, else 1.
int report(const Status& status);

// Model text on a stream, flushed. On a terminal control characters other than line feed and tab
// are left out: a model's answer must not be able to move the cursor or set titles. Takes text in
// pieces; a character never spans two.
void print_text(std::FILE* out, std::string_view text);
// The filter, exposed for tests: C0, DEL and C1 (U+0080 - U+009F) are dropped.
std::string without_controls(std::string_view text);

// False when stdout could not take what was written (a full disk, a closed pipe).
bool stdout_ok();

// Whether a file can be written there beside which a temporary one fits: to be asked before long
// work for it.
Status check_writable(const std::string& path);

}  // namespace pagefold
