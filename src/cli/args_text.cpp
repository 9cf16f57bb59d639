// The part of the command line that works on words, before any flag is known.
#include <algorithm>

#include "cli/args.h"

namespace pagefold {
namespace {

// Flags whose value is free text.
constexpr std::string_view kTextFlags[] = {"-p", "--prompt", "--system", "--stop", "--api-key"};

}  // namespace

std::vector<std::string> normalise_args(std::vector<std::string> args) {
  std::vector<std::string> out;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string& arg = args[i];
    if (arg == "--") {  // the rest is no flag
      out.insert(out.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    if (arg.starts_with("--")) {
      const auto end = std::find(arg.begin(), arg.end(), '=');
      std::replace(arg.begin(), end, '_', '-');
    }
    const bool text =
        std::find(std::begin(kTextFlags), std::end(kTextFlags), arg) != std::end(kTextFlags);
    if (text && i + 1 < args.size() && args[i + 1].starts_with('-') && args[i + 1].size() > 1) {
      arg = (arg == "-p" ? std::string("--prompt") : arg) + "=" + args[++i];
    }
    out.push_back(arg);
  }
  return out;
}

}  // namespace pagefold
