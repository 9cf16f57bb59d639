// The command line: flags, aliases and their checks. Only args*.cpp include CLI11.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace pagefold {

struct ParsedArgs {
  Action action;
  std::string log_level = "info";
};
// args: without the program's name. Errors (kInvalidArgument) name the flag and what would be
// right.
Result<ParsedArgs> parse_args(std::vector<std::string> args);

// Makes flag names uniform: --Some_flag=x_y -> --Some-flag=x_y. A value that follows a text flag
// (prompt, system, stop ...) is joined to it, so that it may begin with '-'. Exposed for tests.
std::vector<std::string> normalise_args(std::vector<std::string> args);

}  // namespace pagefold
