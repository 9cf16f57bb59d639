// Runs another program: an argument list, never a shell.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pagefold {

// Looks argv[0] up in PATH, runs it with no input, its output on our stderr and `folder` as its
// place for temporary files (TMPDIR), waits. Of what it writes to stderr, warnings are passed on
// at once; the rest, at most the last 64 KiB, is put into `errors` for the caller to say in its own
// words. A non-zero exit is an error that names the program.
Status run_program(const std::vector<std::string>& argv, const std::string& folder,
                   std::string& errors);

// The line that says why: the last that begins with ERROR, else the last one; without "ERROR: ".
std::string last_error(const std::string& errors);

}  // namespace pagefold
