// Runs another program: an argument list, never a shell.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pagefold {

// Looks argv[0] up in PATH, runs it with no input and with its output on our stderr, waits. A
// non-zero exit is an error that names the program.
Status run_program(const std::vector<std::string>& argv);

}  // namespace pagefold
